"""The gradient of batch normalization over ranks. It uses the formula of tensor_form.py with means over all ranks.

Each mean and each gradient of a mean needs one message. Every rank sends the messages, even if its part is empty.
"""

from __future__ import annotations

from typing import Any

from minorm.devices import dtypes
from minorm.graph.graph import Function
from minorm.normalization.call import NormCall
from minorm.normalization.tensor_form import TensorForm

Array = Any
LABEL = "the sums of batch_norm's second gradient"


class SumAcross(Function):
    """Sums an array over all ranks, and gives every rank the sum.

    The results of all ranks depend on the sum. So the gradient of x is the sum of the gradients of all ranks.
    """

    def forward(self, x: Array, *, group: Any) -> Array:
        self.group = group
        return group.all_reduce(x, label=LABEL)

    def backward(self, dy: Array) -> Array:
        return self.group.all_reduce(dy, label=LABEL)

    def gradient(self, dy: Any) -> Any:
        return SumAcross.apply(dy, group=self.group)


class FormAcross(TensorForm):
    """A `TensorForm` whose means are over `count` numbers of each channel on all ranks. x is this rank's part."""

    def __init__(self, call: NormCall, like: Any, x: Array, group: Any, count: int) -> None:
        super().__init__(call, like, None, x)
        self.group, self.total = group, count

    def mean(self, a: Any) -> Any:
        own = a.to(dtypes.float64).sum(self.reduced, keepdim=True)
        return (SumAcross.apply(own, group=self.group) / max(self.total, 1)).to(self.call.dtype)
