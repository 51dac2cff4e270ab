"""The normalizations of single samples: group_norm over groups of channels, layer_norm and rms_norm over trailing axes.

These functions keep no state between batches, so training and evaluation are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.functional.norm.activated_norms import activated
from minorm.functional.norm.call_table import calls, form_of, whole_numbers
from minorm.functional.norm.checks import (
    check_groups,
    check_mask,
    check_types,
    equation,
    last_inputs,
    shape_of,
    trailing_axes,
)
from minorm.functional.norm.texts import ARGUMENTS, RMS_EPS
from minorm.normalization.call import NormCall
from minorm.normalization.normalize import Normalize
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor


@documented(
    ARGUMENTS,
    x="(N, C, *positions)",
    weight="(C), a scale for each channel, or (num_groups), one for each group; None is 1",
    bias="a number for each channel or group, of weight's shape; None is 0",
)
@activated
def group_norm(
    x: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *,
    compute_dtype: Any = None,
    backend: Any = None,
    mask: Tensor | None = None,
    activation: str | None = None,
    residual: Tensor | None = None,
) -> Tensor:
    """y = (x - mean) / sqrt(var + eps) * weight + bias, with mean and var of each group of channels in each sample.

    A group is C / num_groups neighbouring channels, with all their positions. y has x's shape and type. Raises
    ValueError if num_groups does not divide C.

    Example:
        >>> F.group_norm(mn.tensor([[1.0, 3.0, 10.0, 30.0]]), num_groups=2)
        tensor([[-1.,  1., -1.,  1.]])

    Its ONNX operator is GroupNormalization: opset 21 if weight and bias have shape (C), opset 18 if the shape is
    (num_groups); Wu and He 2018, arXiv:1803.08494.
    """
    options = num_groups, eps, compute_dtype, activation
    form = form_of("group_norm", backend, (x, weight, bias, mask), options)
    call = calls.get(form, backend)
    if call is None:
        computed = check_types("group_norm", x, compute_dtype, weight=weight, bias=bias)
        num_groups = check_groups("group_norm", x, num_groups)
        rule = equation("group_norm", eps)
        channels = x.shape[1]
        shapes = {p.shape for p in (weight, bias) if p is not None}
        if shapes and shapes not in ({(channels,)}, {(num_groups,)}):
            raise ValueError(
                f"group_norm: weight has shape {shape_of(weight)}, bias {shape_of(bias)}; expected ({channels},), a "
                f"number for each channel, or ({num_groups},), a number for each group; x.shape is {x.shape}"
            )
        per_channel = shapes == {(channels,)}
        if num_groups == 1:
            axes = tuple(range(1, x.ndim))
            param: tuple[int, ...] = (1,) if per_channel else ()
        else:
            axes = tuple(range(2, x.ndim))
            param = (1, 2) if per_channel else (1,) if shapes else ()
        check_mask("group_norm", x, mask)
        made = NormCall(
            x.array, rule, axes, param, num_groups, compute_dtype=computed, backend=backend, masked=mask is not None,
            activation=activation,
        )  # fmt: skip
        call = calls.keep(form, made)
    return Normalize.apply(x, weight, bias, *last_inputs(mask, residual), call=call)


@documented(
    ARGUMENTS,
    x="(..., *normalized_shape)",
    weight="the scale, of shape normalized_shape and any float type; None is 1",
    bias="the bias, of shape normalized_shape and any float type; None is 0",
)
@activated
def layer_norm(
    x: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *,
    compute_dtype: Any = None,
    backend: Any = None,
    mask: Tensor | None = None,
    activation: str | None = None,
    residual: Tensor | None = None,
) -> Tensor:
    """y = (x - mean) / sqrt(var + eps) * weight + bias, with mean and var over the trailing axes.

    y has x's shape and type. A mask (N, T, 1) for x (N, T, D) leaves out whole tokens; the y of these tokens is 0.
    Raises ValueError if x does not end in normalized_shape.

    Example:
        >>> F.layer_norm(mn.tensor([[1.0, 3.0], [10.0, 30.0]]), normalized_shape=2)
        tensor([[-1.,  1.],
                [-1.,  1.]])

    Its ONNX operator is LayerNormalization (opset 17); Ba, Kiros and Hinton 2016, arXiv:1607.06450.
    """
    options = whole_numbers(normalized_shape), eps, compute_dtype, activation
    form = form_of("layer_norm", backend, (x, weight, bias, mask), options)
    call = calls.get(form, backend)
    if call is None:
        computed = check_types("layer_norm", x, compute_dtype, weight=weight, bias=bias)
        axes = trailing_axes("layer_norm", x, normalized_shape, weight=weight, bias=bias)
        rule = equation("layer_norm", eps)
        check_mask("layer_norm", x, mask)
        made = NormCall(
            x.array, rule, axes, () if weight is None and bias is None else axes, compute_dtype=computed,
            backend=backend, masked=mask is not None, activation=activation,
        )  # fmt: skip
        call = calls.keep(form, made)
    return Normalize.apply(x, weight, bias, *last_inputs(mask, residual), call=call)


@documented(
    ARGUMENTS, x="(..., *normalized_shape)", weight="the scale, of shape normalized_shape; None is 1", eps=RMS_EPS
)
@activated
def rms_norm(
    x: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
    *,
    compute_dtype: Any = None,
    backend: Any = None,
    mask: Tensor | None = None,
    activation: str | None = None,
    residual: Tensor | None = None,
) -> Tensor:
    """y = x / sqrt(mean(x^2) + eps) * weight, with the mean over the trailing axes.

    y has x's shape and type. Raises ValueError if x does not end in normalized_shape.

    Example:
        >>> F.rms_norm(mn.tensor([3.0, 4.0]), normalized_shape=2)
        tensor([0.8485, 1.1314])

    Its ONNX operator is RMSNormalization (opset 23); Zhang and Sennrich 2019, arXiv:1910.07467.
    """
    options = whole_numbers(normalized_shape), eps, compute_dtype, activation
    form = form_of("rms_norm", backend, (x, weight, mask), options)
    call = calls.get(form, backend)
    if call is None:
        computed = check_types("rms_norm", x, compute_dtype, weight=weight)
        axes = trailing_axes("rms_norm", x, normalized_shape, weight=weight)
        rule = equation("rms_norm", float(np.finfo(dtypes.compute_type(x.dtype)).eps) if eps is None else eps, False)
        check_mask("rms_norm", x, mask)
        made = NormCall(
            x.array, rule, axes, () if weight is None else axes, compute_dtype=computed, backend=backend,
            masked=mask is not None, activation=activation,
        )  # fmt: skip
        call = calls.keep(form, made)
    return Normalize.apply(x, weight, None, *last_inputs(mask, residual), call=call)
