"""Functions of one number, each with its slope."""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.graph.graph import Function
from minorm.kernels.order import in_order
from minorm.kernels.select import backend


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
    """log(1 + x), exact for small x too."""

    def forward(self, x: Any) -> Any:
        self.x = x
        return backend(x).elementwise.log1p(x)

    def backward(self, dy: Any) -> Any:
        return in_order(lambda dy, x: dy / (x + dy.dtype.type(1)), dy, self.x)

    def gradient(self, dy: Any) -> Any:
        return dy / (self.input(0, self.x, dy) + 1)


class Expm1(Function):
    """e^x - 1, exact for small x too."""

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
