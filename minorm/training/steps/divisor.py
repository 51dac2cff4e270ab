"""The divisor of a mean loss. The joint loss of parts p is sum(loss_p * divisor_p) / sum(divisor_p).

The parts are batches, micro-batches of a step, or the shares of ranks. The divisor is the number of targets that are
not `ignore_index`. With class weights, it is the sum of the weights of these targets.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

import minorm.functional as F
from minorm import nn
from minorm.devices import dtypes
from minorm.tensor.tensor import Tensor


def divisor(loss_function: Any, targets: Tensor) -> float | None:
    """Return the divisor of the mean loss over `targets`. It is 0 if no target counts, and None if the loss is a sum.

    Known losses are those of minorm (layers, or functions with their arguments in a `functools.partial`), and other
    losses with the attributes `reduction` and `ignore_index`. Any other function is taken for a mean over the samples.
    """
    options = _Options(loss_function)
    reduction = options.get("reduction", None)
    if reduction == "sum":
        return None
    if options.by_sample:
        return samples(targets)
    if not dtypes.is_float(targets.dtype):
        by_class = options.by_class
        ignore_index = options.get("ignore_index", -100 if by_class else None)
        if ignore_index is not None:
            return _weight_of_labels(targets, options.get("weight", None) if by_class else None, ignore_index)
    return targets.numel() if reduction == "mean" else samples(targets)


def samples(targets: Tensor) -> int:
    """Return the number of samples that `targets` belong to."""
    return targets.shape[0] if targets.ndim else 1


class _Options:
    """The arguments of a loss by name. They are the attributes of a layer, or the keywords of a partial."""

    def __init__(self, loss_function: Any) -> None:
        self.bound = isinstance(loss_function, partial)
        self.source = loss_function.keywords if self.bound else loss_function
        function = loss_function.func if self.bound else loss_function
        self.by_class = isinstance(function, (nn.CrossEntropyLoss, nn.NLLLoss, nn.FocalLoss)) or function in (
            F.cross_entropy,
            F.nll_loss,
            F.focal_loss,
        )
        self.by_sample = isinstance(function, nn.DiceLoss) or function is F.dice_loss  # even if labels do not count

    def get(self, name: str, default: Any) -> Any:
        return self.source.get(name, default) if self.bound else getattr(self.source, name, default)


def _weight_of_labels(labels: Tensor, weight: Tensor | None, ignore_index: int) -> float:
    """Return the sum of the labels' class weights or, without weights, the number of labels.

    Labels out of range are no error here, because the loss itself reports them.
    """
    kept = labels != ignore_index
    if weight is None or not weight.numel():
        return int(kept.sum().item())
    counted = labels.detach().cpu().numpy()[kept.cpu().numpy()].astype(np.int64)
    factors = weight.detach().cpu().numpy().ravel().astype(np.float64)
    return float(np.take(factors, counted, mode="clip").sum())
