"""Batch renormalization: training gives almost the same results as evaluation, even if the batch is small."""

from __future__ import annotations

import math
from typing import Any

from minorm.functional.arguments import number
from minorm.functional.norm import batch_norm
from minorm.functional.norm.call_table import calls, form_of
from minorm.functional.norm.checks import batch_axes, check_types, equation, mark_changed, running_stats
from minorm.functional.norm.texts import ARGUMENTS
from minorm.graph import trace
from minorm.normalization.call import NormCall
from minorm.normalization.renormalize import Renormalize
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor


@documented(
    ARGUMENTS,
    x="(N, C) or (N, C, *positions)",
    running_mean="(C), the mean of each channel over the batches so far",
    running_var="(C), the variance of each channel over the batches so far",
    rmax="the bound of r, at least 1",
    dmax="the bound of d, at least 0",
)
@trace.operation
def batch_renorm(
    x: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | None = 0.9,
    eps: float = 1e-5,
    rmax: float = 3.0,
    dmax: float = 5.0,
    *,
    num_batches_tracked: Tensor | None = None,
    unbiased_running_var: bool = False,
    update_nonfinite: bool = False,
    skipped_batches: Tensor | None = None,
    compute_dtype: Any = None,
    backend: Any = None,
) -> Tensor:
    """y = ((x - mean) / std * r + d) * weight + bias, with mean and std = sqrt(var + eps) of each channel.

        r = clip(std / running_std, 1 / rmax, rmax)      d = clip((mean - running_mean) / running_std, -dmax, dmax)

    mean and std are over the batch, and running_std is sqrt(running_var + eps). r and d are computed from the old
    running statistics. After that, the batch updates the running statistics as in `batch_norm`. No gradient flows
    through r and d. If r and d are not clipped, y is the same as in evaluation with the old running statistics. In
    evaluation, and in training with rmax=1 and dmax=0, the result is the same as from `batch_norm`. y has x's shape and
    type. Raises ValueError if rmax < 1 or dmax < 0, and the errors that `batch_norm` raises.

    Example:
        >>> x = mn.tensor([[1.0], [3.0]])
        >>> F.batch_renorm(x, mn.zeros(1), mn.ones(1), training=True)  # the same as in evaluation
        tensor([[1.],
                [3.]])

    Its ONNX operator in evaluation is BatchNormalization (opset 15); training has no ONNX form. Ioffe 2017,
    arXiv:1702.03275.
    """
    options = bool(training), eps, rmax, dmax, compute_dtype
    form = form_of("batch_renorm", backend, (x, weight, bias, running_mean, running_var), options)
    call = calls.get(form, backend)
    if call is None:
        computed = check_types(
            "batch_renorm", x, compute_dtype, weight=weight, bias=bias, running_mean=running_mean,
            running_var=running_var,
        )  # fmt: skip
        for name, value, least in (("rmax", rmax, 1), ("dmax", dmax, 0)):
            number("batch_renorm", name, value)
            if not least <= value < math.inf:
                raise ValueError(f"batch_renorm: {name}={value}; expected a number of at least {least}")
        for name, tensor in (("running_mean", running_mean), ("running_var", running_var)):
            if tensor is None:
                raise ValueError(f"batch_renorm: {name} is None; expected the running statistics, which r and d need")
        if not training:
            same = {"compute_dtype": compute_dtype, "backend": backend}
            return batch_norm(x, running_mean, running_var, weight, bias, False, momentum, eps, **same)
        rule = equation("batch_renorm", eps)
        axes, param = batch_axes(x, weight, bias, running_mean, running_var)
        call = calls.keep(form, NormCall(x.array, rule, axes, param, compute_dtype=computed, backend=backend))
    running = running_stats(
        "batch_renorm",
        running_mean,
        running_var,
        momentum,
        unbiased_running_var,
        num_batches_tracked,
        skipped_batches,
        update_nonfinite,
    )
    if call.nest.columns == 1 and not (running is not None and running.is_part):
        raise ValueError(
            f"batch_renorm: one value per channel has no variance to normalize with in training; x.shape is {x.shape}; "
            "expected more than one value per channel: a larger batch, or training=False"
        )
    old = running_mean.array, running_var.array
    y = Renormalize.apply(x, weight, bias, call=call, old=old, rmax=float(rmax), dmax=float(dmax), running=running)
    mark_changed(running, running_mean, running_var, num_batches_tracked)
    return y
