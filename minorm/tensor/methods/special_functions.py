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
    "eps": "x is first clipped to eps ... 1 - eps, so that the result is finite; None does not clip",
    "atan2.other": "the horizontal coordinate: a number, or a Tensor that broadcasts with x",
}


@documented_methods(ARGUMENTS)
class SpecialFunctions(Operators[TensorT], Generic[TensorT]):
    """Functions of each element. If x has integers, the result has floats."""

    __slots__ = ()

    def erf(self) -> TensorT:
        """2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x."""
        return Erf.apply(as_float(self))

    def erfc(self) -> TensorT:
        """1 - erf(x)"""
        return 1 - Erf.apply(as_float(self))

    def erfinv(self) -> TensorT:
        """The number whose erf is x. The result is infinite where |x| is 1, and NaN where |x| is above 1."""
        return ErfInv.apply(as_float(self))

    def logit(self, eps: float | None = None) -> TensorT:
        """log(x / (1 - x)), the inverse of sigmoid. The result is NaN where x is outside of 0 to 1, unless eps clips x.

        Example:
            >>> mn.tensor([0.5, 1.0]).logit(eps=0.1)
            tensor([0.    , 2.1972])
        """
        return elementary.Logit.apply(as_float(self), eps=eps)

    def atan2(self, other: Any) -> TensorT:
        """The angle in radians, from -pi to pi, of the point with the coordinates (other, x).

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
        """x * log(other). The result is 0 where x is 0 (as for p * log(p)), and NaN where other is NaN.

        Example:
            >>> mn.tensor([0.0, 2.0]).xlogy(mn.tensor([0.0, 1.0]))
            tensor([0., 0.])
        """
        return elementary.XLogY.apply(*operands("xlogy", self, other, real=True))
