"""Dropout as layers: they act in training mode, and not where the module is frozen."""

from __future__ import annotations

import minorm.functional as F
from minorm.functional.dropout import check_probability
from minorm.nn.module import Module
from minorm.tensor import Tensor


class Dropout(Module):
    """In training, each element is 0 with probability p and x / (1 - p) otherwise; in evaluation, y = x."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        check_probability("Dropout", p)
        self.p, self.inplace = p, inplace

    def forward(self, x: Tensor) -> Tensor:
        """See `F.dropout`."""
        return F.dropout(x, self.p, self.training and not self.frozen)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"p={self.p}, inplace={self.inplace}"
