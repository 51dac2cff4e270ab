"""The normalizations: each function decides which axes are reduced and how scale and bias vary, nothing else.

    y = (x - mean) / sqrt(var + eps) * weight + bias

                        statistics over                     weight and bias vary along
    batch_norm          all axes but C                      C
    instance_norm       all axes but N, C                   C
    group_norm          all axes but N, and a group of C    C (or the groups)
    layer_norm          the trailing axes                   the same axes
    rms_norm            the trailing axes, without mean     the same axes
    mean_variance_norm  any axes, eps outside the root      none
    normalization       any axes, and a group of C          any

Statistics are carried as (shift, mean - shift, 1/std) and computed so that float32 keeps its seven digits however far
the data lies from 0; docs/maths.md says how. They are population statistics: the variance divides by N.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from minorm import dtypes, trace
from minorm.documented import documented
from minorm.functional.arguments import whole
from minorm.functional.normalization_arguments import ANY_AXES, ARGUMENTS, AXES, AXIS_GROUPS, GUARD_EPS, RMS_EPS
from minorm.functional.normalization_checks import (
    batch_axes,
    broadcast_axes,
    check_batch,
    check_groups,
    check_per_channel,
    check_types,
    check_unmasked,
    equation,
    listed_axes,
    mark_changed,
    masked,
    running_stats,
    shape_of,
    trailing_axes,
)
from minorm.kernels.variance import backend_of
from minorm.ops.normalization import Normalize, NormalizeWith
from minorm.ops.sync_normalization import NormalizeAcross, PooledStats
from minorm.tensor import Tensor


@documented(
    ARGUMENTS,
    x="(N, C) or (N, C, *positions)",
    running_mean="(C), or (C, *positions) for statistics over N alone; None keeps none, in training",
    running_var="as running_mean",
    weight="of running_mean's shape; None is 1",
    bias="of running_mean's shape; None is 0",
)
@trace.operation
def batch_norm(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | None = 0.9,
    eps: float = 1e-5,
    *,
    num_batches_tracked: Tensor | None = None,
    unbiased_running_var: bool = False,
    compute_dtype: Any = None,
    backend: Any = None,
    process_group: Any = None,
    variance: str | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """y = (x - mean) / sqrt(var + eps) * weight + bias, mean and var of each channel over the batch and all positions.

    training=True takes mean and var from x and blends them into the running ones, in place:

        running = running * momentum + batch * (1 - momentum)

    training=False normalizes with the running statistics; gradients flow to them too. Each tensor may be of any float
    type. y has x's shape and type. ValueError for one value per channel in training (there is no variance), for C = 0,
    and for shapes that do not fit. An empty batch gives an empty y and changes nothing. With a mask, a channel with
    one element becomes bias there, one with none keeps its running values; NotImplementedError for a mask on several
    ranks.

    Example:
        >>> x = mn.tensor([[1.0], [3.0]])
        >>> mean, var = mn.zeros(1), mn.ones(1)
        >>> F.batch_norm(x, mean, var, training=True)
        tensor([[-1.],
                [ 1.]])
        >>> mean  # 0 * 0.9 + 2 * 0.1
        tensor([0.2])

    ONNX BatchNormalization 15; Ioffe and Szegedy 2015, arXiv:1502.03167.
    """
    rule, backend = equation("batch_norm", eps), backend_of("batch_norm", variance, backend)
    computed = check_types(
        "batch_norm", x, compute_dtype, weight=weight, bias=bias, running_mean=running_mean, running_var=running_var
    )
    axes, param = batch_axes(x, (weight, bias, running_mean, running_var))
    check_batch(x, axes, weight, bias, running_mean, running_var)
    given = masked("batch_norm", x, mask)
    if weight is None and bias is None:
        param = ()
    if not training:
        if running_mean is None or running_var is None:
            raise ValueError(
                "batch_norm: running_mean or running_var is None and training=False; "
                "expected both, or training=True to normalize with the statistics of x"
            )
        return NormalizeWith.apply(
            x, running_mean, running_var, weight, bias, *given, axes=axes, param=param, equation=rule,
            compute_dtype=computed, backend=backend,
        )  # fmt: skip
    across = process_group is not None and _is_across(process_group)
    count = 1
    for axis in axes:
        count *= x.shape[axis]
    if count == 1 and not across and not given:
        raise ValueError(
            f"batch_norm: one value per channel has no variance to normalize with in training; x.shape is {x.shape}; "
            "expected more than one value per channel: a larger batch, or training=False"
        )
    running = running_stats(
        "batch_norm", running_mean, running_var, momentum, unbiased_running_var, num_batches_tracked
    )
    if across:
        check_unmasked("batch_norm", mask, process_group)
        y = NormalizeAcross.apply(
            x, weight, bias, axes=axes, param=param, equation=rule, group=process_group, running=running,
            compute_dtype=computed, backend=backend,
        )  # fmt: skip
    else:
        y = Normalize.apply(
            x, weight, bias, *given, axes=axes, param=param, equation=rule, running=running, compute_dtype=computed,
            backend=backend,
        )  # fmt: skip
    mark_changed(running, running_mean, running_var, num_batches_tracked)
    return y


@documented(
    ARGUMENTS,
    x="(N, C, *positions), with at least one axis of positions",
    use_input_stats="True normalizes with the statistics of x, False with the running ones",
    process_group=(
        "what this rank of a distributed run talks to the others through (minorm.distributed.Group): the running "
        "statistics take the mean over the samples of all ranks. None is this rank alone. An export leaves it out"
    ),
)
@trace.operation
def instance_norm(
    x: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float | None = 0.9,
    eps: float = 1e-5,
    *,
    num_batches_tracked: Tensor | None = None,
    unbiased_running_var: bool = False,
    compute_dtype: Any = None,
    backend: Any = None,
    process_group: Any = None,
    variance: str | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """y = (x - mean) / sqrt(var + eps) * weight + bias, mean and var of each channel of each sample over its positions.

    use_input_stats=True takes mean and var from x, and blends their means over the batch into the running ones if
    these are given: over the samples of all ranks with a process_group, over those that have elements with a mask. y
    has x's shape and type. ValueError for a single position.

    Example:
        >>> F.instance_norm(mn.tensor([[[1.0, 3.0], [10.0, 30.0]]]))
        tensor([[[-1.,  1.],
                 [-1.,  1.]]])

    ONNX InstanceNormalization 22 (without running statistics); Ulyanov et al. 2016, arXiv:1607.08022.
    """
    rule, backend = equation("instance_norm", eps), backend_of("instance_norm", variance, backend)
    computed = check_types(
        "instance_norm", x, compute_dtype, weight=weight, bias=bias, running_mean=running_mean, running_var=running_var
    )
    if x.ndim < 3:
        raise ValueError(f"instance_norm: x has shape {x.shape}; expected (N, C, *positions) with at least 3 axes")
    check_per_channel("instance_norm", x, weight=weight, bias=bias, running_mean=running_mean, running_var=running_var)
    given = masked("instance_norm", x, mask)
    param = () if weight is None and bias is None else (1,)
    if not use_input_stats:
        if running_mean is None or running_var is None:
            raise ValueError(
                "instance_norm: running_mean or running_var is None and use_input_stats=False; "
                "expected both, or use_input_stats=True"
            )
        axes = (0, *range(2, x.ndim))
        return NormalizeWith.apply(
            x, running_mean, running_var, weight, bias, *given, axes=axes, param=param, equation=rule,
            compute_dtype=computed, backend=backend,
        )  # fmt: skip
    positions = tuple(range(2, x.ndim))
    if x.shape[2:].count(1) == x.ndim - 2 and not given:
        raise ValueError(
            f"instance_norm: one position per channel has no variance to normalize with; x.shape is {x.shape}; "
            "expected more than one position"
        )
    running = running_stats(
        "instance_norm", running_mean, running_var, momentum, unbiased_running_var, num_batches_tracked
    )
    across = process_group is not None and _is_across(process_group)
    seen: PooledStats | None = None
    observe: Any = None
    if running is not None and across:
        check_unmasked("instance_norm", mask, process_group)
        seen = observe = PooledStats(running, x.array)
    elif running is not None and given:
        observe = running.update_counted
    elif running is not None:
        observe = lambda mean, var, count: running.update(mean.mean(0), var.mean(0), count, len(mean))  # noqa: E731
    y = Normalize.apply(
        x, weight, bias, *given, axes=positions, param=param, equation=rule, observe=observe, compute_dtype=computed,
        backend=backend,
    )  # fmt: skip
    if seen is not None:
        seen.pool(process_group)
    mark_changed(running, running_mean, running_var, num_batches_tracked)
    return y


@documented(
    ARGUMENTS,
    x="(N, C, *positions)",
    weight="(C), a scale for each channel, or (num_groups), one for each group; None is 1",
    bias="of weight's shape; None is 0",
)
@trace.operation
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
) -> Tensor:
    """y = (x - mean) / sqrt(var + eps) * weight + bias, mean and var of each group of channels of each sample.

    A group is C / num_groups neighbouring channels, with all their positions. y has x's shape and type. ValueError
    where num_groups does not divide C.

    Example:
        >>> F.group_norm(mn.tensor([[1.0, 3.0, 10.0, 30.0]]), num_groups=2)
        tensor([[-1.,  1., -1.,  1.]])

    ONNX GroupNormalization 21 (weight and bias of C) and 18 (of num_groups); Wu and He 2018, arXiv:1803.08494.
    """
    computed = check_types("group_norm", x, compute_dtype, weight=weight, bias=bias)
    num_groups = check_groups("group_norm", x, num_groups)
    rule = equation("group_norm", eps)
    channels = x.shape[1]
    shapes = {p.shape for p in (weight, bias) if p is not None}
    if shapes and shapes not in ({(channels,)}, {(num_groups,)}):
        raise ValueError(
            f"group_norm: weight has shape {shape_of(weight)}, bias {shape_of(bias)}; expected ({channels},), a number "
            f"for each channel, or ({num_groups},), a number for each group; x.shape is {x.shape}"
        )
    per_channel = shapes == {(channels,)}
    if num_groups == 1:
        axes = tuple(range(1, x.ndim))
        param: tuple[int, ...] = (1,) if per_channel else ()
    else:
        axes = tuple(range(2, x.ndim))
        param = (1, 2) if per_channel else (1,) if shapes else ()
    given = masked("group_norm", x, mask)
    return Normalize.apply(
        x, weight, bias, *given, axes=axes, num_groups=num_groups, param=param, equation=rule, compute_dtype=computed,
        backend=backend,
    )  # fmt: skip


@documented(
    ARGUMENTS,
    x="(..., *normalized_shape)",
    weight="of shape normalized_shape and any float type; None is 1",
    bias="of shape normalized_shape and any float type; None is 0",
)
@trace.operation
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
) -> Tensor:
    """y = (x - mean) / sqrt(var + eps) * weight + bias, mean and var over the trailing axes.

    y has x's shape and type. A mask (N, T, 1) for x (N, T, D) leaves out whole tokens, where y is 0. ValueError where
    x does not end in normalized_shape.

    Example:
        >>> F.layer_norm(mn.tensor([[1.0, 3.0], [10.0, 30.0]]), normalized_shape=2)
        tensor([[-1.,  1.],
                [-1.,  1.]])

    ONNX LayerNormalization 17; Ba, Kiros and Hinton 2016, arXiv:1607.06450.
    """
    computed = check_types("layer_norm", x, compute_dtype, weight=weight, bias=bias)
    axes = trailing_axes("layer_norm", x, normalized_shape, weight=weight, bias=bias)
    rule = equation("layer_norm", eps)
    param = () if weight is None and bias is None else axes
    given = masked("layer_norm", x, mask)
    return Normalize.apply(
        x, weight, bias, *given, axes=axes, param=param, equation=rule, compute_dtype=computed, backend=backend
    )


@documented(ARGUMENTS, x="(..., *normalized_shape)", weight="of shape normalized_shape; None is 1", eps=RMS_EPS)
@trace.operation
def rms_norm(
    x: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
    *,
    compute_dtype: Any = None,
    backend: Any = None,
    mask: Tensor | None = None,
) -> Tensor:
    """y = x / sqrt(mean(x^2) + eps) * weight, the mean over the trailing axes.

    y has x's shape and type. ValueError where x does not end in normalized_shape.

    Example:
        >>> F.rms_norm(mn.tensor([3.0, 4.0]), normalized_shape=2)
        tensor([0.8485, 1.1314])

    ONNX RMSNormalization 23; Zhang and Sennrich 2019, arXiv:1910.07467.
    """
    computed = check_types("rms_norm", x, compute_dtype, weight=weight)
    axes = trailing_axes("rms_norm", x, normalized_shape, weight=weight)
    eps = float(np.finfo(dtypes.compute_type(x.dtype)).eps) if eps is None else eps
    rule = equation("rms_norm", eps, False)
    param = () if weight is None else axes
    given = masked("rms_norm", x, mask)
    return Normalize.apply(
        x, weight, None, *given, axes=axes, param=param, equation=rule, compute_dtype=computed, backend=backend
    )


@documented(ARGUMENTS, x="of any rank that has all of `axes`", axes=AXES, eps=GUARD_EPS)
@trace.operation
def mean_variance_norm(
    x: Tensor,
    axes: Sequence[int] = (0, 2, 3),
    eps: float = 1e-9,
    *,
    compute_dtype: Any = None,
    backend: Any = None,
    variance: str | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """y = (x - mean) / (sqrt(var) + eps), mean and var over `axes`: eps is outside the root.

    y has x's shape and type. Where all values are equal y is 0, and the gradient of x, which has no limit there, is
    taken for 0 too. ValueError for axes that x lacks.

    Example:
        >>> F.mean_variance_norm(mn.tensor([[1.0, 3.0]]), axes=(1,))
        tensor([[-1.,  1.]])

    ONNX MeanVarianceNormalization 13.
    """
    computed = check_types("mean_variance_norm", x, compute_dtype)
    found = listed_axes("mean_variance_norm", x, axes)
    rule, backend = equation("mean_variance_norm", eps, True, True), backend_of("mean_variance_norm", variance, backend)
    given = masked("mean_variance_norm", x, mask)
    return Normalize.apply(x, None, None, *given, axes=found, equation=rule, compute_dtype=computed, backend=backend)


@documented(
    ARGUMENTS,
    x="of any rank that has all of `axes`",
    scale="of x's rank, each axis 1 or x's length, or num_groups on axis 1; None is 1",
    bias="as scale; None is 0",
    axes=ANY_AXES,
    num_groups=AXIS_GROUPS,
)
@trace.operation
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
) -> Tensor:
    """y = (x - mean) / sqrt(var + eps) * scale + bias, mean and var over any axes and the channels of a group.

    scale and bias are [1, C, 1, 1] for an instance, [1, G, 1, 1] for a group, [1, 1, D2, D3] for a layer
    normalization. y has x's shape and type. ValueError for axes that x lacks, and for groups beside a reduced axis 1.

    Example:
        >>> F.normalization(mn.tensor([[1.0, 3.0]]), axes=(1,))
        tensor([[-1.,  1.]])

    TensorRT INormalizationLayer; ONNX has no operator for all of it: export writes one that equals it, or the formula.
    """
    computed = check_types("normalization", x, compute_dtype, scale=scale, bias=bias)
    if hasattr(axes, "__index__") and not isinstance(axes, (bool, np.ndarray)):
        axes = operator.index(axes)
        if axes <= 0 or axes >> x.ndim:
            raise ValueError(
                f"normalization: axes={axes:#b} is no mask of the {x.ndim} axes of x; expected bits 0 to {x.ndim - 1}; "
                f"x.shape is {x.shape}"
            )
        axes = [i for i in range(x.ndim) if axes >> i & 1]
    found = listed_axes("normalization", x, axes)
    num_groups = whole("normalization", "num_groups", num_groups)
    if num_groups != 1:
        check_groups("normalization", x, num_groups)
        if 1 in found:
            raise ValueError(
                f"normalization: axes {found} hold the channel axis 1, which num_groups={num_groups} splits; "
                "expected it to be left out: the channels of a group are reduced anyway"
            )
    param = broadcast_axes(x, scale, bias, num_groups)
    return Normalize.apply(
        x,
        scale,
        bias,
        axes=found,
        num_groups=num_groups,
        param=param,
        equation=equation("normalization", eps),
        compute_dtype=computed,
        backend=backend,
    )


def _is_across(group: Any) -> bool:
    """Are there other ranks to ask? What a trace records is one rank's alone."""
    return group.size > 1 and trace.state.calls is None
