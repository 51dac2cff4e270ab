"""The normalizations with running statistics. batch_norm takes mean and var over the batch and all positions.
instance_norm takes mean and var over the positions.

In training, mean and var come from x and update the running statistics. In evaluation, mean and var are the running
statistics. A group of ranks can share the statistics, and a mask can leave elements out.
"""

from __future__ import annotations

from typing import Any

from minorm.functional.norm.activated_norms import activated
from minorm.functional.norm.call_table import calls, form_of
from minorm.functional.norm.checks import (
    batch_axes,
    check_mask,
    check_per_channel,
    check_types,
    check_unmasked,
    equation,
    last_inputs,
    mark_changed,
    running_stats,
)
from minorm.functional.norm.texts import ARGUMENTS
from minorm.graph import trace
from minorm.kernels.variance import backend_of
from minorm.normalization.call import NormCall
from minorm.normalization.normalize import Normalize, NormalizeWith
from minorm.normalization.sync_normalize import NormalizeAcross, PooledStats
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor


@documented(
    ARGUMENTS,
    x="(N, C) or (N, C, *positions)",
    running_mean="(C), or (C, *positions) for statistics over N alone; None, in training only, means that no "
    "running mean is kept",
    running_var="as running_mean",
    weight="the scale, of running_mean's shape; None is 1",
    bias="the bias, of running_mean's shape; None is 0",
)
@activated
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
    update_nonfinite: bool = False,
    skipped_batches: Tensor | None = None,
    compute_dtype: Any = None,
    backend: Any = None,
    process_group: Any = None,
    variance: str | None = None,
    mask: Tensor | None = None,
    activation: str | None = None,
    residual: Tensor | None = None,
) -> Tensor:
    """y = (x - mean) / sqrt(var + eps) * weight + bias, with mean and var of each channel over all other axes.

    With training=True, mean and var are taken over the batch and all positions, and they update the running statistics
    in place:

        running = running * momentum + batch * (1 - momentum)

    With training=False, mean and var are the running statistics, which then get gradients too. The tensors may have
    different float types. y has x's shape and type. In training a single value per channel raises ValueError, since a
    single value has no variance. Inside `nn.accumulate_stats` x is part of a larger batch, so no error is raised and y
    is bias. An empty batch gives an empty y and changes nothing. If the mask is True for only one element of a channel,
    y is bias at this element. If the mask is True for no element of a channel, the running statistics of the channel do
    not change. Raises ValueError if C = 0 or if the shapes do not fit together, and NotImplementedError for a mask on
    several ranks.

    Example:
        >>> x = mn.tensor([[1.0], [3.0]])
        >>> mean, var = mn.zeros(1), mn.ones(1)
        >>> F.batch_norm(x, mean, var, training=True)
        tensor([[-1.],
                [ 1.]])
        >>> mean  # 0 * 0.9 + 2 * 0.1
        tensor([0.2])

    Its ONNX operator is BatchNormalization (opset 15); Ioffe and Szegedy 2015, arXiv:1502.03167.
    """
    tensors = x, weight, bias, running_mean, running_var, mask
    form = form_of("batch_norm", backend, tensors, (bool(training), eps, compute_dtype, variance, activation))
    call = calls.get(form, backend)
    if call is None:
        rule, backend = equation("batch_norm", eps), backend_of("batch_norm", variance, backend)
        computed = check_types(
            "batch_norm", x, compute_dtype, weight=weight, bias=bias, running_mean=running_mean, running_var=running_var
        )
        axes, param = batch_axes(x, weight, bias, running_mean, running_var)
        check_mask("batch_norm", x, mask)
        if not training and (running_mean is None or running_var is None):
            raise ValueError(
                "batch_norm: running_mean or running_var is None and training=False; "
                "expected both, or training=True to normalize with the statistics of x"
            )
        made = NormCall(
            x.array, rule, axes, () if weight is None and bias is None else param, compute_dtype=computed,
            backend=backend, masked=mask is not None, activation=activation,
        )  # fmt: skip
        call = calls.keep(form, made)
    given = last_inputs(mask, residual)
    if not training:
        return NormalizeWith.apply(x, running_mean, running_var, weight, bias, *given, call=call)
    across = process_group is not None and _is_across(process_group)
    running = running_stats(
        "batch_norm",
        running_mean,
        running_var,
        momentum,
        unbiased_running_var,
        num_batches_tracked,
        skipped_batches,
        update_nonfinite,
    )
    if call.nest.columns == 1 and not across and mask is None and not (running is not None and running.is_part):
        raise ValueError(
            f"batch_norm: one value per channel has no variance to normalize with in training; x.shape is {x.shape}; "
            "expected more than one value per channel: a larger batch, or training=False"
        )
    if across:
        check_unmasked("batch_norm", mask, process_group)
        y = NormalizeAcross.apply(x, weight, bias, call=call, group=process_group, running=running)
    else:
        y = Normalize.apply(x, weight, bias, *given, call=call, running=running)
    mark_changed(running, running_mean, running_var, num_batches_tracked)
    return y


@documented(
    ARGUMENTS,
    x="(N, C, *positions), with at least one axis of positions",
    use_input_stats="True normalizes with the statistics of x, False with the running statistics",
    process_group=(
        "the minorm.distributed.Group of all ranks: the running statistics are updated with the mean over the samples "
        "of all ranks. None uses the samples of this rank only. An export ignores the group"
    ),
)
@activated
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
    update_nonfinite: bool = False,
    skipped_batches: Tensor | None = None,
    compute_dtype: Any = None,
    backend: Any = None,
    process_group: Any = None,
    variance: str | None = None,
    mask: Tensor | None = None,
    activation: str | None = None,
    residual: Tensor | None = None,
) -> Tensor:
    """y = (x - mean) / sqrt(var + eps) * weight + bias, with mean and var of each channel of each sample.

    With use_input_stats=True, mean and var are taken over the positions of x. The averages of mean and var over the
    samples update the running statistics, if these are given. With a process_group, the averages are over the samples
    of all ranks. With a mask, the averages leave out samples whose mask is False everywhere. y has x's shape and type.
    Raises ValueError if x has a single position.

    Example:
        >>> F.instance_norm(mn.tensor([[[1.0, 3.0], [10.0, 30.0]]]))
        tensor([[[-1.,  1.],
                 [-1.,  1.]]])

    Without running statistics its ONNX operator is InstanceNormalization (opset 22); Ulyanov et al. 2016,
    arXiv:1607.08022.
    """
    tensors = x, weight, bias, running_mean, running_var, mask
    form = form_of("instance_norm", backend, tensors, (bool(use_input_stats), eps, compute_dtype, variance, activation))
    call = calls.get(form, backend)
    if call is None:
        rule, backend = equation("instance_norm", eps), backend_of("instance_norm", variance, backend)
        statistics = {"running_mean": running_mean, "running_var": running_var}
        computed = check_types("instance_norm", x, compute_dtype, weight=weight, bias=bias, **statistics)
        if x.ndim < 3:
            raise ValueError(f"instance_norm: x has shape {x.shape}; expected (N, C, *positions) with at least 3 axes")
        check_per_channel("instance_norm", x, weight=weight, bias=bias, **statistics)
        check_mask("instance_norm", x, mask)
        if not use_input_stats and (running_mean is None or running_var is None):
            raise ValueError(
                "instance_norm: running_mean or running_var is None and use_input_stats=False; "
                "expected both, or use_input_stats=True"
            )
        if use_input_stats and x.shape[2:].count(1) == x.ndim - 2 and mask is None:
            raise ValueError(
                f"instance_norm: one position per channel has no variance to normalize with; x.shape is {x.shape}; "
                "expected more than one position"
            )
        positions = tuple(range(2, x.ndim))
        made = NormCall(
            x.array, rule, positions if use_input_stats else (0, *positions),
            () if weight is None and bias is None else (1,), compute_dtype=computed, backend=backend,
            masked=mask is not None, activation=activation,
        )  # fmt: skip
        call = calls.keep(form, made)
    given = last_inputs(mask, residual)
    if not use_input_stats:
        return NormalizeWith.apply(x, running_mean, running_var, weight, bias, *given, call=call)
    running = running_stats(
        "instance_norm",
        running_mean,
        running_var,
        momentum,
        unbiased_running_var,
        num_batches_tracked,
        skipped_batches,
        update_nonfinite,
    )
    across = process_group is not None and _is_across(process_group)
    seen: PooledStats | None = None
    observe: Any = None
    if running is not None and across:
        check_unmasked("instance_norm", mask, process_group)
        seen = observe = PooledStats(running, x.array)
    elif running is not None and mask is not None:
        observe = running.update_counted
    elif running is not None:
        observe = lambda mean, var, count: running.update(mean.mean(0), var.mean(0), count, len(mean))  # noqa: E731
    y = Normalize.apply(x, weight, bias, *given, call=call, observe=observe)
    if seen is not None:
        seen.pool(process_group)
    mark_changed(running, running_mean, running_var, num_batches_tracked)
    return y


def _is_across(group: Any) -> bool:
    """Return True if other ranks contribute to the statistics. During a trace, return False, because a trace records
    only this rank.
    """
    return group.size > 1 and trace.state.calls is None
