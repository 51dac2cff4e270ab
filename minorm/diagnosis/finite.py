"""Find why a loss is not finite: search for the first NaN or infinity in the order in which training computes.

The data are checked before the parameters: a NaN in an image gives the same loss as a step that was too long, but no
learning rate cures it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.nn import Module
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor

CURE = "a lower learning rate is the usual cure"


@documented(
    {},
    message="the text of the error",
    rank="the rank whose loss it was, if all ranks of a distributed run raise this error together",
)
class NonFiniteLoss(ArithmeticError):
    """A loss became NaN or infinite, so training cannot go on.

    Example:
        >>> mn.training.NonFiniteLoss("the loss is nan", rank=1).rank
        1
    """

    def __init__(self, message: str, rank: int | None = None) -> None:
        super().__init__(message)
        self.rank = rank


def reason(model: Module, inputs: Tensor, targets: Tensor, ignore_index: int | None) -> str:
    """Say why the loss of this batch is NaN or infinite, and what to do about it."""
    for name, x in (("inputs", inputs), ("targets", targets)):
        if found := _nonfinite(x):
            return f"the {name} of this batch hold {found}; check the data and their transforms"
    ignored = -100 if ignore_index is None else ignore_index
    if not dtypes.is_float(targets.dtype) and targets.numel() and (targets == ignored).all():
        return (
            f"every target of this batch is ignore_index={ignored}, so the loss is a mean over nothing; leave such "
            "batches out"
        )
    named: list[tuple[str, str, Tensor]] = [("parameter", *pair) for pair in model.named_parameters()]
    if not model.training:  # in training a layer has just updated its buffers with this batch
        named += [("buffer", *pair) for pair in model.named_buffers()]
    ruined = [(kind, name, found) for kind, name, x in named if (found := _nonfinite(x))]
    if ruined:
        kind, name, found = ruined[0]
        more = f", the first of {len(ruined)} such" if len(ruined) > 1 else ""
        return (
            f"the data are finite, but the {kind} {name!r} holds {found}{more}, so an earlier step went wrong; {CURE}"
        )
    return f"inputs, targets and parameters are finite, so numbers inside the model overflow; {CURE}"


def _nonfinite(x: Tensor) -> str:
    """Return, for example, `2 NaN and 1 infinity, the first at [0, 3]`; return "" if every number is finite."""
    if not dtypes.is_float(x.dtype):
        return ""
    array: Any = x.detach().cpu().numpy()
    wrong = ~np.isfinite(array)
    count = int(np.count_nonzero(wrong))
    if not count:
        return ""
    nans = int(np.count_nonzero(np.isnan(array)))
    infinities = f"{count - nans:,} infinit{'y' if count - nans == 1 else 'ies'}"
    counts = [text for number, text in ((nans, f"{nans:,} NaN"), (count - nans, infinities)) if number]
    first = [int(i) for i in np.argwhere(wrong)[0]]
    return " and ".join(counts) + (f", the first at {first}" if first else "")
