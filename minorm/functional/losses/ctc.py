"""ctc_loss: compares a text with a longer sequence, without knowing which step belongs to which letter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minorm.devices import to_device
from minorm.functional.arguments import floats
from minorm.functional.losses.loss import _check_reduction
from minorm.graph import trace
from minorm.ops.ctc import CTC
from minorm.support.argument_errors import not_a_tensor
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor

Lengths = Tensor | Sequence[int]


@documented(
    {},
    log_probs="(steps, batch, classes), the output of log_softmax; or (steps, classes)",
    targets="classes other than blank, integers: (batch, longest), or all texts one after the other",
    input_lengths="(batch) integers: the number of steps of each sample",
    target_lengths="(batch) integers: the length of each text",
    blank="the class that stands for no letter",
    reduction='"mean" divides each loss by the length of its text, and takes the mean over the batch; "sum" adds the '
    'losses, "none" keeps each loss',
    zero_infinity="True gives a text that does not fit into its steps a loss of 0 instead of infinity",
)
@trace.operation
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Lengths,
    target_lengths: Lengths,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """loss = -log p, where p is the probability of a text, summed over all ways to spread its letters over the steps.

    Equal letters in a row are one letter, unless a blank stands between them. As in PyTorch, the gradient of log_probs
    is the gradient of the logits from which log_softmax computed log_probs. Raises ValueError if a length or a class is
    out of range.

    Example:
        >>> log_probs = mn.full((2, 1, 2), 0.5).log()  # two steps, two classes: blank and 1
        >>> F.ctc_loss(log_probs, mn.tensor([[1]]), [2], [1])  # -log(3/4): 1 1, 1 -, - 1
        tensor(0.2877)

    Graves et al. 2006.
    """
    name = "ctc_loss"
    floats(name, log_probs=log_probs)
    _check_reduction(name, reduction)
    if not isinstance(targets, Tensor):
        raise not_a_tensor(name, "targets", targets)
    single = log_probs.ndim == 2
    x = log_probs.unsqueeze(1) if single else log_probs
    if x.ndim != 3 or not 0 <= blank < x.shape[2]:
        raise ValueError(f"{name}: log_probs has shape {log_probs.shape}, blank is {blank}; expected (steps, batch, "
                         "classes), and a blank from 0 to classes - 1")  # fmt: skip
    if not x.shape[0]:
        raise ValueError(f"{name}: log_probs has shape {log_probs.shape}; expected at least one step")
    steps, lengths = (_lengths(given, x.shape[1]) for given in (input_lengths, target_lengths))
    if (steps > x.shape[0]).any() or (steps < 0).any() or (lengths < 0).any():
        raise ValueError(
            f"{name}: input_lengths are {steps.tolist()[:8]}; expected 0 to {x.shape[0]}, the number of steps"
        )
    texts = _texts(to_device(targets.array, "cpu"), lengths)
    if texts.size and (texts.min() < 0 or texts.max() >= x.shape[2]):
        raise ValueError(f"{name}: targets hold {texts.min()} to {texts.max()}; expected classes 0 to {x.shape[2] - 1}")
    loss = CTC.apply(x, texts=texts, steps=steps, lengths=lengths, blank=blank, zero_infinity=bool(zero_infinity))
    if reduction == "mean":
        return (loss / Tensor(np.maximum(lengths, 1).astype(x.dtype)).to(x.device)).mean()
    if reduction == "sum":
        return loss.sum()
    return loss.squeeze(0) if single else loss


def _lengths(given: Any, batch: int) -> Any:
    array = to_device(given.array, "cpu") if isinstance(given, Tensor) else np.asarray(given)
    lengths = array.reshape(-1).astype(np.int64)
    if lengths.shape != (batch,):
        raise ValueError(f"ctc_loss: lengths have shape {array.shape}; expected ({batch},), one for each example")
    return lengths


def _texts(targets: Any, lengths: Any) -> Any:
    """Return `targets` as an array (batch, longest). Each row holds the classes of one text, followed by zeros."""
    longest = int(lengths.max(initial=0))
    if targets.ndim == 2 or (targets.ndim == 1 and len(lengths) == 1):
        texts = targets.reshape(len(lengths), -1)
        if texts.shape[1] < longest:
            raise ValueError(f"ctc_loss: targets have shape {targets.shape}; expected {longest} classes in each row")
        there = np.arange(longest) < lengths[:, None]
        return np.where(there, texts[:, :longest], 0)
    if targets.size != lengths.sum():
        raise ValueError(
            f"ctc_loss: targets hold {targets.size} classes; expected {lengths.sum()}, the sum of target_lengths"
        )
    there = np.arange(longest) < lengths[:, None]
    texts = np.zeros((len(lengths), longest), np.int64)
    texts[there] = targets
    return texts
