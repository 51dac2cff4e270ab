"""Elementary functions of one or two numbers, with their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.graph.expressions import summed_to
from minorm.graph.graph import Function
from minorm.kernels.order import in_order
from minorm.kernels.select import backend
from minorm.ops.elementwise import gradient_of


def in_wide(formula: Callable[..., Any], *arrays: Any) -> Any:
    """Return formula(*arrays), element by element. 16-bit floats compute in float32, and only the result is rounded."""
    kind = arrays[0].dtype
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        wide = in_order(formula, *[a.astype(dtypes.compute_type(a.dtype), copy=False) for a in arrays])
    return wide.astype(kind, copy=False)


def in_wide_tensors(of: Function, dy: Any, *arrays: Any) -> tuple[Any, ...]:
    """Return dy and the inputs of a Function as Tensors, to compute its gradient. 16-bit floats become float32."""
    wide = dtypes.compute_type(dy.dtype)
    return dy.to(wide), *[of.input(i, array, dy).to(wide) for i, array in enumerate(arrays)]


class Atan(Function):
    """The angle in radians, between -pi/2 and pi/2, whose tangent is x."""

    def forward(self, x: Any) -> Any:
        self.x = x
        return in_order(np.arctan, x)

    def backward(self, dy: Any) -> Any:
        return in_order(lambda dy, x: dy / (x * x + dy.dtype.type(1)), dy, self.x)

    def gradient(self, dy: Any) -> Any:
        x = self.input(0, self.x, dy)
        return dy / (x * x + 1)


class Log1p(Function):
    """log(1 + x), which loses no digits for small x."""

    def forward(self, x: Any) -> Any:
        self.x = x
        return backend(x).elementwise.log1p(x)

    def backward(self, dy: Any) -> Any:
        return in_order(lambda dy, x: dy / (x + dy.dtype.type(1)), dy, self.x)

    def gradient(self, dy: Any) -> Any:
        return dy / (self.input(0, self.x, dy) + 1)


class Expm1(Function):
    """e^x - 1, which loses no digits for small x."""

    def forward(self, x: Any) -> Any:
        self.y = backend(x).elementwise.expm1(x)
        return self.y

    def backward(self, dy: Any) -> Any:
        return in_order(lambda dy, y: dy * (y + dy.dtype.type(1)), dy, self.y)

    def gradient(self, dy: Any) -> Any:
        return dy * (self.output(self.y, dy) + 1)


class Asin(Function):
    """The angle in radians, between -pi/2 and pi/2, whose sine is x."""

    def forward(self, x: Any) -> Any:
        self.x = x
        return in_order(np.arcsin, x)

    def backward(self, dy: Any) -> Any:
        return in_order(lambda dy, x: dy / np.sqrt((dy.dtype.type(1) - x) * (dy.dtype.type(1) + x)), dy, self.x)

    def gradient(self, dy: Any) -> Any:
        x = self.input(0, self.x, dy)
        return dy / ((1 - x) * (1 + x)).sqrt()


class Acos(Function):
    """The angle in radians, between 0 and pi, whose cosine is x."""

    def forward(self, x: Any) -> Any:
        self.x = x
        return in_order(np.arccos, x)

    def backward(self, dy: Any) -> Any:
        return in_order(lambda dy, x: -dy / np.sqrt((dy.dtype.type(1) - x) * (dy.dtype.type(1) + x)), dy, self.x)

    def gradient(self, dy: Any) -> Any:
        x = self.input(0, self.x, dy)
        return -dy / ((1 - x) * (1 + x)).sqrt()


class Sinh(Function):
    """(e^x - e^-x) / 2."""

    def forward(self, x: Any) -> Any:
        self.x = x
        return in_order(np.sinh, x)

    def backward(self, dy: Any) -> Any:
        return in_order(lambda dy, x: dy * np.cosh(x), dy, self.x)

    def gradient(self, dy: Any) -> Any:
        return dy * Cosh.apply(self.input(0, self.x, dy))


class Cosh(Function):
    """(e^x + e^-x) / 2."""

    def forward(self, x: Any) -> Any:
        self.x = x
        return in_order(np.cosh, x)

    def backward(self, dy: Any) -> Any:
        return in_order(lambda dy, x: dy * np.sinh(x), dy, self.x)

    def gradient(self, dy: Any) -> Any:
        return dy * Sinh.apply(self.input(0, self.x, dy))


class Asinh(Function):
    """The number whose hyperbolic sine is x: log(x + sqrt(x^2 + 1))."""

    def forward(self, x: Any) -> Any:
        self.x = x
        return in_order(np.arcsinh, x)

    def backward(self, dy: Any) -> Any:
        return in_order(lambda dy, x: dy / np.hypot(x, dy.dtype.type(1)), dy, self.x)

    def gradient(self, dy: Any) -> Any:
        x = self.input(0, self.x, dy)
        return dy / (x * x + 1).sqrt()


class Acosh(Function):
    """The number of at least 0 whose hyperbolic cosine is x: log(x + sqrt(x^2 - 1)); NaN below 1."""

    def forward(self, x: Any) -> Any:
        self.x = x
        return in_order(np.arccosh, x)

    def backward(self, dy: Any) -> Any:
        return in_order(lambda dy, x: dy / (np.sqrt(x - dy.dtype.type(1)) * np.sqrt(x + dy.dtype.type(1))), dy, self.x)

    def gradient(self, dy: Any) -> Any:
        x = self.input(0, self.x, dy)
        return dy / ((x - 1).sqrt() * (x + 1).sqrt())


class Atanh(Function):
    """The number whose hyperbolic tangent is x: log((1 + x) / (1 - x)) / 2."""

    def forward(self, x: Any) -> Any:
        self.x = x
        return in_order(np.arctanh, x)

    def backward(self, dy: Any) -> Any:
        return in_order(lambda dy, x: dy / ((dy.dtype.type(1) - x) * (dy.dtype.type(1) + x)), dy, self.x)

    def gradient(self, dy: Any) -> Any:
        x = self.input(0, self.x, dy)
        return dy / ((1 - x) * (1 + x))


class Logit(Function):
    """log(x / (1 - x)). x is first clipped to the range eps to 1 - eps, and the slope outside this range is 0.

    With eps=None nothing is clipped, and both value and slope are NaN outside the range 0 to 1.
    """

    def forward(self, x: Any, *, eps: float | None) -> Any:
        self.x, self.eps = x, eps
        return in_wide(self.value, x)

    def value(self, x: Any) -> Any:
        one = x.dtype.type(1)
        if self.eps is not None:
            low = x.dtype.type(self.eps)
            x = np.where(x < low, low, np.where(x > one - low, one - low, x))
        return np.log(x / (one - x))

    def outside(self, x: Any) -> Any:
        """Return True where x is below eps or above 1 - eps."""
        low = x.dtype.type(self.eps or 0)
        return (x < low) | (x > x.dtype.type(1) - low)

    def backward(self, dy: Any) -> Any:
        return in_wide(self.sloped, dy, self.x)

    def sloped(self, dy: Any, x: Any) -> Any:
        beyond = dy.dtype.type(np.nan if self.eps is None else 0)
        return np.where(self.outside(x), beyond, dy / np.abs(x * (x.dtype.type(1) - x)))  # for -0.0 too

    def gradient(self, dy: Any) -> Any:
        g, x = in_wide_tensors(self, dy, self.x)
        outside = dy.from_array(self.outside(x.array))
        x = x.masked_fill(outside, 0.5)
        slope = 1 / (x * (1 - x)).abs()
        return (g * slope.masked_fill(outside, float("nan") if self.eps is None else 0.0)).to(dy.dtype)


class Atan2(Function):
    """The angle in radians, from -pi to pi, of the point with x-coordinate b and y-coordinate a.

    The origin has no direction. There, the gradients are 0.
    """

    def forward(self, a: Any, b: Any) -> Any:
        self.a, self.b = a, b
        return in_wide(np.arctan2, a, b)

    @staticmethod
    def sloped(dy: Any, side: Any, other: Any) -> Any:
        square = side * side + other * other
        return np.where(square == 0, dy.dtype.type(0), dy * side / square)

    def backward(self, dy: Any) -> Any:
        def for_a(g: Any, a: Any, b: Any) -> Any:
            return in_wide(self.sloped, g, b, a)

        def for_b(g: Any, a: Any, b: Any) -> Any:
            return in_wide(self.sloped, -g, a, b)

        a, b = self.a, self.b
        return (
            gradient_of(a.shape, for_a, dy, a, b) if self.needs[0] else None,
            gradient_of(b.shape, for_b, dy, a, b) if self.needs[1] else None,
        )

    def gradient(self, dy: Any) -> Any:
        g, a, b = in_wide_tensors(self, dy, self.a, self.b)
        square = a * a + b * b
        origin = square == 0
        share = g / square.masked_fill(origin, 1.0)
        return (
            summed_to((share * b).to(dy.dtype), a.shape) if self.needs[0] else None,
            summed_to((-share * a).to(dy.dtype), b.shape) if self.needs[1] else None,
        )


class LogAddExp(Function):
    """log(e^a + e^b), without overflow."""

    def forward(self, a: Any, b: Any) -> Any:
        self.a, self.b = a, b
        return in_wide(self.value, a, b)

    @staticmethod
    def value(a: Any, b: Any) -> Any:
        apart = np.where(a == b, a.dtype.type(0), np.abs(a - b))  # also 0 for two equal infinities
        return np.maximum(a, b) + np.log1p(np.exp(-apart))

    @staticmethod
    def share(dy: Any, this: Any, other: Any) -> Any:
        return dy / (1 + np.exp(other - this))

    def backward(self, dy: Any) -> Any:
        a, b = self.a, self.b
        return (
            gradient_of(a.shape, lambda g, a, b: in_wide(self.share, g, a, b), dy, a, b) if self.needs[0] else None,
            gradient_of(b.shape, lambda g, a, b: in_wide(self.share, g, b, a), dy, a, b) if self.needs[1] else None,
        )

    def gradient(self, dy: Any) -> Any:
        g, a, b = in_wide_tensors(self, dy, self.a, self.b)
        return (
            summed_to((g * (a - b).sigmoid()).to(dy.dtype), a.shape) if self.needs[0] else None,
            summed_to((g * (b - a).sigmoid()).to(dy.dtype), b.shape) if self.needs[1] else None,
        )


class XLogY(Function):
    """a * log(b), but 0 where a is 0 and b is not NaN. The gradient for a is 0 where a = 0 >= b."""

    def forward(self, a: Any, b: Any) -> Any:
        self.a, self.b = a, b
        return in_wide(self.value, a, b)

    @staticmethod
    def value(a: Any, b: Any) -> Any:
        return np.where((a == 0) & (b == b), a.dtype.type(0), a * np.log(b))

    def for_a(self, dy: Any, a: Any, b: Any) -> Any:
        return np.where((a == 0) & (b <= 0), dy.dtype.type(0), self.value(dy, b))

    def backward(self, dy: Any) -> Any:
        a, b = self.a, self.b
        return (
            gradient_of(a.shape, lambda g, a, b: in_wide(self.for_a, g, a, b), dy, a, b) if self.needs[0] else None,
            gradient_of(b.shape, lambda g, a, b: in_wide(lambda g, a, b: g * a / b, g, a, b), dy, a, b)
            if self.needs[1]
            else None,
        )

    def gradient(self, dy: Any) -> Any:
        g, a, b = in_wide_tensors(self, dy, self.a, self.b)
        nothing = (self.a == 0) & (self.b <= 0)
        base = b.masked_fill(dy.from_array(nothing), 1.0)  # the logarithm of 1 is 0
        return (
            summed_to(g.xlogy(base).to(dy.dtype), a.shape) if self.needs[0] else None,
            summed_to((g * a / b).to(dy.dtype), b.shape) if self.needs[1] else None,
        )
