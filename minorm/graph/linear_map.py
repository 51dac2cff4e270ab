"""LinearMap: a linear map of arrays as a Function, whose gradient is the transposed map.

Many gradients are linear in dy, and what they read besides, a mask or positions, has no slope. Then `gradient` need not
be written with Tensors: this runs the code of `backward` on arrays, and its own gradients come from the transposed code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minorm.graph.graph import Function


class LinearMap(Function):
    """there(x), linear in x; the gradient is back(dy), where `back` is the transposed map, and so on.

    of  the Function whose kept arrays both maps read
    """

    def forward(self, x: Any, *, of: Function, there: Callable[[Any], Any], back: Callable[[Any], Any]) -> Any:
        self.of, self.there, self.back = of, there, back
        return there(x)

    def backward(self, dy: Any) -> Any:
        self.of.check_unchanged()
        return self.back(dy)

    def gradient(self, dy: Any) -> Any:
        self.of.check_unchanged()
        return LinearMap.apply(dy, of=self.of, there=self.back, back=self.there)
