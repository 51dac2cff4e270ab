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
