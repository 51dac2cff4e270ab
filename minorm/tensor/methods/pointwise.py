"""Functions of each element, and arithmetic by name. The arguments are those of PyTorch."""

from __future__ import annotations

import math
from typing import Any, Generic

from minorm.devices import dtypes
from minorm.ops import activation, elementary, elementwise, stepwise
from minorm.ops.operands import axis_of, operands
from minorm.ops.special import Remainder
from minorm.support.argument_texts import AXES, OTHER
from minorm.support.documented import documented_methods
from minorm.tensor.methods.comparisons import Comparing
from minorm.tensor.methods.queries import Queries
from minorm.tensor.operators import as_float
from minorm.tensor.reductions import Reductions
from minorm.tensor.shapes import TensorT

ARGUMENTS = (
    OTHER
    | AXES
    | {
        "dim": "the axis along which the result sums to one",
        "rounding_mode": 'None divides exactly, "floor" rounds down, "trunc" rounds towards 0',
        "min": "the lower bound: a number, or a Tensor that broadcasts with x",
        "max": "the upper bound: a number, or a Tensor that broadcasts with x",
        "end": "the result if the weight is 1: a number, or a Tensor that broadcasts with x",
        "weight": "the share of the way from x to `end`: a number, or a Tensor that broadcasts with x",
        "tensor1": "a Tensor that broadcasts with x",
        "tensor2": "a Tensor that broadcasts with x",
        "addcmul.value": "the factor of tensor1 * tensor2",
        "addcdiv.value": "the factor of tensor1 / tensor2",
        "decimals": "the number of digits after the point; a negative number rounds to tens, hundreds ...",
        "nan": "the number that replaces NaN",
        "posinf": "the number that replaces infinity; None is the largest number of x's type",
        "neginf": "the number that replaces minus infinity; None is the lowest number of x's type",
    }
)


@documented_methods(ARGUMENTS)
class Pointwise(Comparing[TensorT], Queries[TensorT], Reductions[TensorT], Generic[TensorT]):
    """Methods that compute each element of the result from the elements with the same index."""

    __slots__ = ()

    # Arithmetic

    def add(self, other: Any, *, alpha: float = 1) -> TensorT:
        """x + alpha * other

        Example:
            >>> mn.tensor([1.0, 2.0]).add(10, alpha=2)
            tensor([21., 22.])
        """
        return self + (other if alpha == 1 else other * alpha)

    def sub(self, other: Any, *, alpha: float = 1) -> TensorT:
        """x - alpha * other

        Example:
            >>> mn.tensor([1.0, 2.0]).sub(10, alpha=2)
            tensor([-19., -18.])
        """
        return self - (other if alpha == 1 else other * alpha)

    def mul(self, other: Any) -> TensorT:
        """x * other"""
        return self * other

    def div(self, other: Any, *, rounding_mode: str | None = None) -> TensorT:
        """x / other. rounding_mode "floor" rounds the quotient down, and "trunc" rounds it towards 0.

        Raises ValueError for another mode, and ZeroDivisionError for a rounded division by an integer 0.

        Example:
            >>> mn.tensor([-7, 7]).div(2, rounding_mode="trunc")
            tensor([-3,  3])
        """
        if rounding_mode not in (None, "floor", "trunc"):
            raise ValueError(f"div: rounding_mode is {rounding_mode!r}; expected None, 'floor' or 'trunc'")
        if rounding_mode is None:
            return self / other
        if rounding_mode == "floor":
            return self // other
        a, b = operands("div", self, other)
        if not dtypes.is_float(a.dtype):
            stepwise.expect_divisor("div", b.array)
            return stepwise.Quotient.apply(a, b)
        quotient = (a / b).trunc()
        if not quotient.requires_grad:
            return quotient
        zero = b == 0  # the gradients are 0, which the gradient of a / 0 would turn into NaN
        return elementwise.Where.apply(zero, quotient.detach(), (a / b.masked_fill(zero, 1)).trunc())

    def remainder(self, other: Any) -> TensorT:
        """x - floor(x / other) * other, with the sign of other."""
        return self % other

    def floor_divide(self, other: Any) -> TensorT:
        """floor(x / other)"""
        return self // other

    def neg(self) -> TensorT:
        """-x"""
        return -self

    absolute = Reductions.abs
    multiply, subtract, divide, true_divide, negative = mul, sub, div, div, neg

    def positive(self) -> TensorT:
        """x itself."""
        return self  # type: ignore[return-value]

    def fmod(self, other: Any) -> TensorT:
        """x - trunc(x / other) * other, with the sign of x."""
        return Remainder.apply(*operands("fmod", self, other), truncated=True)

    def square(self) -> TensorT:
        """x * x; the result is an integer if x is a bool."""
        x: Any = self
        x = x.long() if x.dtype == dtypes.bool else x
        return x * x

    def reciprocal(self) -> TensorT:
        """1 / x"""
        return 1 / as_float(self)

    def rsqrt(self) -> TensorT:
        """1 / sqrt(x)"""
        return 1 / as_float(self).sqrt()

    def clamp_min(self, min: Any) -> TensorT:
        """max(x, min), element by element."""
        return self.clip(min=min)

    def clamp_max(self, max: Any) -> TensorT:
        """min(x, max), element by element."""
        return self.clip(max=max)

    def lerp(self, end: Any, weight: Any) -> TensorT:
        """x + weight * (end - x): a point on the way from x to end.

        Example:
            >>> mn.tensor([0.0, 10.0]).lerp(mn.tensor([10.0, 20.0]), 0.25)
            tensor([ 2.5, 12.5])
        """
        return self + (end - self) * weight

    def addcmul(self, tensor1: Any, tensor2: Any, *, value: float = 1) -> TensorT:
        """x + value * tensor1 * tensor2

        Example:
            >>> mn.tensor([1.0]).addcmul(mn.tensor([2.0]), mn.tensor([3.0]), value=10)
            tensor([61.])
        """
        return self + tensor1 * tensor2 * value

    def addcdiv(self, tensor1: Any, tensor2: Any, *, value: float = 1) -> TensorT:
        """x + value * tensor1 / tensor2

        Example:
            >>> mn.tensor([1.0]).addcdiv(mn.tensor([6.0]), mn.tensor([3.0]), value=10)
            tensor([21.])
        """
        return self + tensor1 / tensor2 * value

    def maximum(self, other: Any) -> TensorT:
        """The larger element of each pair. The result is NaN if either element is NaN."""
        return elementwise.Maximum.apply(*operands("maximum", self, other))

    def minimum(self, other: Any) -> TensorT:
        """The smaller element of each pair. The result is NaN if either element is NaN."""
        return elementwise.Minimum.apply(*operands("minimum", self, other))

    # Functions of one number

    def tan(self) -> TensorT:
        """tan(x), the tangent of x in radians."""
        x = as_float(self)
        return x.sin() / x.cos()

    def atan(self) -> TensorT:
        """arctan(x), the angle in radians whose tangent is x."""
        return elementary.Atan.apply(as_float(self))

    arctan = atan

    def log1p(self) -> TensorT:
        """log(1 + x), which is accurate for small x too."""
        return elementary.Log1p.apply(as_float(self))

    def expm1(self) -> TensorT:
        """e^x - 1, which is accurate for small x too."""
        return elementary.Expm1.apply(as_float(self))

    def tanh(self) -> TensorT:
        """(e^x - e^-x) / (e^x + e^-x), the hyperbolic tangent."""
        return activation.Tanh.apply(as_float(self))

    def sigmoid(self) -> TensorT:
        """1 / (1 + e^-x), without overflow."""
        return activation.Sigmoid.apply(as_float(self))

    def relu(self) -> TensorT:
        """max(x, 0). The slope at 0 is 0, and NaN stays NaN."""
        if not dtypes.is_float(self.array.dtype):
            return self.clip(0)
        return activation.Relu.apply(self)

    def softmax(self, dim: int, dtype: Any = None) -> TensorT:
        """exp(x) / sum exp(x), where the sum is along `dim`. If `dtype` is given, x is first converted to this type.

        Example:
            >>> mn.tensor([0.0, 0.0]).softmax(0)
            tensor([0.5, 0.5])
            >>> mn.tensor([0, 1]).softmax(0, dtype=mn.float64).dtype
            dtype('float64')
        """
        return activation.Softmax.apply(_cast(self, dtype), axis=_axis("softmax", dim, self))

    def log_softmax(self, dim: int, dtype: Any = None) -> TensorT:
        """x - log sum exp(x), where the sum is along `dim`. If `dtype` is given, x is first converted to this type.

        Example:
            >>> mn.tensor([0.0, 0.0]).log_softmax(0)
            tensor([-0.6931, -0.6931])
            >>> mn.tensor([0, 1]).log_softmax(0, dtype=mn.float64).dtype
            dtype('float64')
        """
        return activation.LogSoftmax.apply(_cast(self, dtype), axis=_axis("log_softmax", dim, self))

    def log2(self) -> TensorT:
        """log(x) / log(2), the logarithm to the base 2."""
        return as_float(self).log() / math.log(2)

    def log10(self) -> TensorT:
        """log(x) / log(10), the logarithm to the base 10."""
        return as_float(self).log() / math.log(10)

    def exp2(self) -> TensorT:
        """2^x."""
        return 2 ** as_float(self)

    def sinh(self) -> TensorT:
        """The hyperbolic sine: (e^x - e^-x) / 2. It is computed with expm1, so it is accurate for small x too."""
        x = as_float(self)
        return (elementary.Expm1.apply(x) - elementary.Expm1.apply(-x)) / 2

    def cosh(self) -> TensorT:
        """The hyperbolic cosine: (e^x + e^-x) / 2"""
        x = as_float(self)
        return (x.exp() + (-x).exp()) / 2

    # Steps

    def floor(self) -> TensorT:
        """Round down to an integer."""
        return _rounded(self, "floor")

    def ceil(self) -> TensorT:
        """Round up to an integer."""
        return _rounded(self, "ceil")

    def trunc(self) -> TensorT:
        """Round towards 0 to an integer."""
        return _rounded(self, "trunc")

    def round(self, *, decimals: int = 0) -> TensorT:
        """Round to the nearest integer. A tie is rounded to the even integer. `decimals` is the number of digits kept
        after the point.
        """
        if decimals == 0:
            return _rounded(self, "rint")
        scale = 10.0 ** abs(decimals)
        if decimals < 0:
            return _rounded(self / scale, "rint") * scale
        return _rounded(self * scale, "rint") / scale

    def sign(self) -> TensorT:
        """1 where x > 0, -1 where x < 0, and 0 where x is 0 or NaN."""
        if not dtypes.is_float(self.array.dtype):
            return self.clone() if self.array.dtype == dtypes.bool else stepwise.Stepwise.apply(self, step="sign")
        zero, x = operands("sign", 0, stepwise.Rounded.apply(self, step="sign"))
        return elementwise.Where.apply(x.isnan(), zero, x)

    def isnan(self) -> TensorT:
        """True where x is NaN."""
        return stepwise.Stepwise.apply(self, step="isnan")

    def isinf(self) -> TensorT:
        """True where x is infinite."""
        return stepwise.Stepwise.apply(self, step="isinf")

    def isfinite(self) -> TensorT:
        """True where x is neither infinite nor NaN."""
        outside: Any = self.isnan()
        return (outside | self.isinf()).logical_not()

    def nan_to_num(self, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> TensorT:
        """Replace NaN and the infinities by numbers.

        Example:
            >>> mn.tensor([float("nan"), float("inf"), 1.0]).nan_to_num(nan=0.0, posinf=9.0)
            tensor([0., 9., 1.])
        """
        x: Any = self
        if not dtypes.is_float(x.dtype):
            return x
        largest = float(dtypes.largest(x.dtype))
        x = x.masked_fill(x.isnan(), nan)
        x = x.masked_fill(x == float("inf"), largest if posinf is None else posinf)
        return x.masked_fill(x == float("-inf"), -largest if neginf is None else neginf)


def _cast(x: Any, dtype: Any) -> Any:
    return as_float(x) if dtype is None else x.to(dtype)


def _axis(operation: str, dim: int, x: Any) -> int:
    return -1 if x.ndim == 0 and dim in (0, -1) else axis_of(operation, dim, x)


def _rounded(x: Any, step: str) -> Any:
    return stepwise.Rounded.apply(x, step=step) if dtypes.is_float(x.dtype) else x
