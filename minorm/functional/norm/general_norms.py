"""Normalizations over any axes. mean_variance_norm adds eps to sqrt(var), and normalization adds eps to var.

The caller chooses the axes to reduce; `normalization` can also split the channels into groups.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from minorm.functional.arguments import whole
from minorm.functional.norm.activated_norms import activated
from minorm.functional.norm.call_table import calls, form_of, whole_numbers
from minorm.functional.norm.checks import (
    broadcast_axes,
    check_groups,
    check_mask,
    check_types,
    equation,
    last_inputs,
    listed_axes,
)
from minorm.functional.norm.texts import ANY_AXES, ARGUMENTS, AXES, AXIS_GROUPS, GUARD_EPS
from minorm.kernels.variance import backend_of
from minorm.normalization.call import NormCall
from minorm.normalization.normalize import Normalize
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor


@documented(ARGUMENTS, x="floats of any rank that has all of `axes`", axes=AXES, eps=GUARD_EPS)
@activated
def mean_variance_norm(
    x: Tensor,
    axes: Sequence[int] = (0, 2, 3),
    eps: float = 1e-9,
    *,
    compute_dtype: Any = None,
    backend: Any = None,
    variance: str | None = None,
    mask: Tensor | None = None,
    activation: str | None = None,
    residual: Tensor | None = None,
) -> Tensor:
    """y = (x - mean) / (sqrt(var) + eps), with mean and var over `axes`. eps is outside the root.

    y has x's shape and type. Where all x over `axes` are equal, y is 0. The gradient has no limit at such points, so
    the gradient of x is set to 0 there. Raises ValueError if x does not have one of the axes.

    Example:
        >>> F.mean_variance_norm(mn.tensor([[1.0, 3.0]]), axes=(1,))
        tensor([[-1.,  1.]])

    Its ONNX operator is MeanVarianceNormalization (opset 13).
    """
    options = whole_numbers(axes), eps, compute_dtype, variance, activation
    form = form_of("mean_variance_norm", backend, (x, mask), options)
    call = calls.get(form, backend)
    if call is None:
        computed = check_types("mean_variance_norm", x, compute_dtype)
        found = listed_axes("mean_variance_norm", x, axes)
        rule = equation("mean_variance_norm", eps, True, True)
        backend = backend_of("mean_variance_norm", variance, backend)
        check_mask("mean_variance_norm", x, mask)
        made = NormCall(
            x.array, rule, found, compute_dtype=computed, backend=backend, masked=mask is not None,
            activation=activation,
        )  # fmt: skip
        call = calls.keep(form, made)
    return Normalize.apply(x, None, None, *last_inputs(mask, residual), call=call)


@documented(
    ARGUMENTS,
    x="of any rank that has all of `axes`",
    scale="a Tensor with as many axes as x; each axis is as long as in x or has length 1; axis 1 may also have length "
    "num_groups. None is 1",
    bias="a Tensor of scale's shape; None is 0",
    axes=ANY_AXES,
    num_groups=AXIS_GROUPS,
)
@activated
def normalization(
    x: Tensor,
    scale: Tensor | None = None,
    bias: Tensor | None = None,
    axes: int | Sequence[int] = (2, 3),
    num_groups: int = 1,
    eps: float = 1e-5,
    compute_dtype: Any = None,
    *,
    backend: Any = None,
    activation: str | None = None,
    residual: Tensor | None = None,
) -> Tensor:
    """y = (x - mean) / sqrt(var + eps) * scale + bias, with mean and var over any axes.

    If num_groups is above 1, mean and var are also over the channels of a group. scale and bias have the shape [1, C,
    1, 1] for an instance normalization, [1, G, 1, 1] for a group normalization, and [1, 1, D2, D3] for a layer
    normalization. y has x's shape and type. Raises ValueError if x does not have one of the axes, or if axis 1 is among
    the axes and num_groups is not 1.

    Example:
        >>> F.normalization(mn.tensor([[1.0, 3.0]]), axes=(1,))
        tensor([[-1.,  1.]])

    TensorRT calls this INormalizationLayer. An ONNX export writes an operator that computes the same; if there is no
    such operator, the export writes the formula.
    """
    options = whole_numbers(axes), num_groups, eps, compute_dtype, activation
    form = form_of("normalization", backend, (x, scale, bias), options)
    call = calls.get(form, backend)
    if call is None:
        computed = check_types("normalization", x, compute_dtype, scale=scale, bias=bias)
        if hasattr(axes, "__index__") and not isinstance(axes, (bool, np.ndarray)):
            axes = operator.index(axes)
            if axes <= 0 or axes >> x.ndim:
                raise ValueError(
                    f"normalization: axes={axes:#b} is no mask of the {x.ndim} axes of x; expected bits 0 to "
                    f"{x.ndim - 1}; x.shape is {x.shape}"
                )
            axes = [i for i in range(x.ndim) if axes >> i & 1]
        found = listed_axes("normalization", x, axes)
        num_groups = whole("normalization", "num_groups", num_groups)
        if num_groups != 1:
            check_groups("normalization", x, num_groups)
            if 1 in found:
                raise ValueError(
                    f"normalization: axes {found} contain the channel axis 1, which num_groups={num_groups} splits; "
                    "expected axes without axis 1, because the channels of a group are reduced anyway"
                )
        param = broadcast_axes(x, scale, bias, num_groups)
        made = NormCall(
            x.array, equation("normalization", eps), found, param, num_groups, compute_dtype=computed, backend=backend,
            activation=activation,
        )  # fmt: skip
        call = calls.keep(form, made)
    return Normalize.apply(x, scale, bias, *last_inputs(None, residual), call=call)
