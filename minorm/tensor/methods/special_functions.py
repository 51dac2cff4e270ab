"""The error function, its inverse, and other functions for statistics and losses."""

from __future__ import annotations

from typing import Any, Generic

from minorm.ops import elementary
from minorm.ops.operands import operands
from minorm.ops.special import Erf, ErfInv
from minorm.support.argument_texts import OTHER
from minorm.support.documented import documented_methods
from minorm.tensor.operators import Operators, as_float
from minorm.tensor.shapes import TensorT

ARGUMENTS = OTHER | {
    "eps": "clips x to eps ... 1 - eps first, so that the result is finite; None does not clip",
    "atan2.other": "the other coordinate, a number or a Tensor; x and other broadcast",
}


@documented_methods(ARGUMENTS)
class SpecialFunctions(Operators[TensorT], Generic[TensorT]):
    """Functions of each element; integers give floats."""

    __slots__ = ()

    def erf(self) -> TensorT:
        """2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x."""
        return Erf.apply(as_float(self))

    def erfc(self) -> TensorT:
        """1 - erf(x)"""
        return 1 - Erf.apply(as_float(self))

    def erfinv(self) -> TensorT:
        """The number whose erf is x; infinite where x is -1 or 1, and NaN beyond."""
        return ErfInv.apply(as_float(self))

    def logit(self, eps: float | None = None) -> TensorT:
        """log(x / (1 - x)), the inverse of sigmoid; NaN outside of 0 to 1, unless eps clips x.

        Example:
            >>> mn.tensor([0.5, 1.0]).logit(eps=0.1)
            tensor([0.    , 2.1972])
        """
        return elementary.Logit.apply(as_float(self), eps=eps)

    def atan2(self, other: Any) -> TensorT:
        """The angle in radians, -pi to pi, of the point (other, x), which is `other` to the right and x upwards.

        Example:
            >>> mn.tensor([1.0, -1.0]).atan2(mn.tensor([-1.0, -1.0]))
            tensor([ 2.3562, -2.3562])
        """
        return elementary.Atan2.apply(*operands("atan2", self, other, real=True))

    arctan2 = atan2

    def logaddexp(self, other: Any) -> TensorT:
        """log(e^x + e^other), without overflow.

        Example:
            >>> mn.tensor([1000.0]).logaddexp(mn.tensor([1000.0]))  # 1000 + log 2
            tensor([1000.6932])
        """
        return elementary.LogAddExp.apply(*operands("logaddexp", self, other, real=True))

    def xlogy(self, other: Any) -> TensorT:
        """x * log(other), but 0 where x is 0, as in p * log(p), and NaN where other is NaN.

        Example:
            >>> mn.tensor([0.0, 2.0]).xlogy(mn.tensor([0.0, 1.0]))
            tensor([0., 0.])
        """
        return elementary.XLogY.apply(*operands("xlogy", self, other, real=True))
