"""Ghost batch normalization: normalizes a large batch with the statistics of small groups."""

from __future__ import annotations

import math
from typing import Any

from minorm.functional.arguments import whole
from minorm.functional.norm import batch_norm
from minorm.functional.norm.call_table import calls, form_of
from minorm.functional.norm.checks import batch_axes, check_types, equation, mark_changed, running_stats
from minorm.functional.norm.texts import ARGUMENTS, NONFINITE_GROUPS
from minorm.graph import trace
from minorm.normalization.call import NormCall
from minorm.normalization.normalize import Normalize
from minorm.normalization.running import RunningStats
from minorm.support.documented import documented
from minorm.tensor.combining import cat
from minorm.tensor.tensor import Tensor


@documented(
    ARGUMENTS,
    x="(N, C) or (N, C, *positions)",
    num_batches_tracked="an integer Tensor of one element that counts the groups; None counts nothing",
    update_nonfinite=NONFINITE_GROUPS,
    skipped_batches="an integer Tensor of one element that counts the groups left out; None counts nothing",
)
@trace.operation
def ghost_batch_norm(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    virtual_batch_size: int,
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
) -> Tensor:
    """y = (x - mean) / sqrt(var + eps) * weight + bias, with mean and var of each channel over a group of samples.

    x is cut along N into groups of virtual_batch_size. In training one call gives the same outputs, gradients and
    running statistics as a call of `batch_norm` for each group in turn. So each group updates the running statistics
    (the paper's algorithm 1), and num_batches_tracked counts groups. In evaluation `ghost_batch_norm` computes the same
    as `batch_norm`. One pass normalizes all whole groups without a copy. If the last group is smaller, y and the
    gradients are copied once, to join the last group with the whole groups. y has x's shape and type. Raises ValueError
    if virtual_batch_size < 1, or if a group has only one value per channel. After an error the running statistics are
    unchanged.

    Example:
        >>> x = mn.tensor([[1.0], [3.0], [10.0], [30.0]])
        >>> F.ghost_batch_norm(x, None, None, virtual_batch_size=2, training=True)
        tensor([[-1.],
                [ 1.],
                [-1.],
                [ 1.]])

    An ONNX export writes one BatchNormalization (opset 15) for each group, so a file fixes the number of groups;
    Hoffer, Hubara and Soudry 2017, arXiv:1705.08741.
    """
    size = whole("ghost_batch_norm", "virtual_batch_size", virtual_batch_size)
    if size < 1:
        raise ValueError(f"ghost_batch_norm: virtual_batch_size={size}; expected at least 1")
    options = {"compute_dtype": compute_dtype, "backend": backend}
    statistics = running_mean, running_var, weight, bias, training, momentum, eps
    options |= {"num_batches_tracked": num_batches_tracked, "unbiased_running_var": unbiased_running_var}
    options |= {"update_nonfinite": update_nonfinite, "skipped_batches": skipped_batches}
    given = weight, bias, running_mean, running_var
    form = form_of("ghost_batch_norm", backend, (x, *given), (bool(training), size, eps, compute_dtype))
    call = calls.get(form, backend)
    if call is None:
        computed = check_types(
            "ghost_batch_norm", x, compute_dtype, weight=weight, bias=bias, running_mean=running_mean,
            running_var=running_var,
        )  # fmt: skip
        if not training or x.ndim < 2 or len(x) <= size:
            return batch_norm(x, *statistics, **options)
        call = calls.keep(form, _call_of_groups(x, size, given, eps, computed, backend))
    if trace.state.calls is not None:
        return cat([batch_norm(part, *statistics, **options) for part in x.split(size)])
    running = running_stats(
        "ghost_batch_norm",
        running_mean,
        running_var,
        momentum,
        unbiased_running_var,
        num_batches_tracked,
        skipped_batches,
        update_nonfinite,
    )
    each = None if running is None else _Each(running)
    groups, rest = divmod(len(x), size)
    head = x if not rest else x[: groups * size]
    grouped = head.reshape(groups, size, *x.shape[1:])
    y = Normalize.apply(grouped, weight, bias, call=call, running=each).reshape(head.shape)
    mark_changed(running, running_mean, running_var, num_batches_tracked)
    return y if not rest else cat([y, batch_norm(x[groups * size :], *statistics, **options)])


def _call_of_groups(
    x: Tensor, size: int, given: tuple[Tensor | None, ...], eps: float, computed: Any, backend: Any
) -> NormCall:
    """Return one NormCall for all whole groups. The call takes an array in which the groups are an extra first axis.
    `given` holds weight, bias and running statistics.
    """
    axes, param = batch_axes(x, *given)
    groups, rest = divmod(len(x), size)
    positions = math.prod(x.shape[axis] for axis in axes[1:])
    if 1 in (size * positions, rest * positions):
        raise ValueError(
            f"ghost_batch_norm: virtual_batch_size={size} leaves one value per channel in a group of x, which has no "
            f"variance to normalize with in training; x.shape is {x.shape}; expected another size, or a batch that "
            "this size divides"
        )
    grouped = x.array[: groups * size].reshape(groups, size, *x.shape[1:])
    varying = () if given[0] is None and given[1] is None else tuple([axis + 1 for axis in param])
    rule = equation("ghost_batch_norm", eps)
    reduced = tuple([axis + 1 for axis in axes])
    return NormCall(grouped, rule, reduced, varying, compute_dtype=computed, backend=backend)


class _Each:
    """Wraps running statistics, so that each group updates them in turn."""

    def __init__(self, running: RunningStats) -> None:
        self.running = running

    def is_kernel_ready(self, rows: int) -> bool:  # noqa: ARG002
        """Return False, since a kernel can update running statistics only once per call."""
        return False

    def update(self, mean: Any, var: Any, count: int, rest: Any) -> None:
        """Call `RunningStats.update` for each group."""
        for group in zip(mean, var, rest, strict=True):
            self.running.update(*group[:2], count, rest=group[2])
