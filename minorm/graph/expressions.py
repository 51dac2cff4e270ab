"""What `Function.gradient` is written with: maps of arrays whose gradient is known, and small formulas with Tensors.

Many gradients are linear in dy, and what they read besides, a mask or positions, has no slope. Then `gradient` need not
be written with Tensors: a `LinearMap` runs the code of `backward` on arrays, and its own gradients come from the
transposed code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minorm.graph.graph import Function


class LinearMap(Function):
    """there(x), linear in x; the gradient is back(dy), where `back` is the transposed map, and so on.

    of  the Function whose kept arrays both maps read, which must not have changed; None where they read none
    """

    def forward(
        self, x: Any, *, there: Callable[[Any], Any], back: Callable[[Any], Any], of: Function | None = None
    ) -> Any:
        self.of, self.there, self.back = of, there, back
        return there(x)

    def backward(self, dy: Any) -> Any:
        self.check()
        return self.back(dy)

    def gradient(self, dy: Any) -> Any:
        self.check()
        return LinearMap.apply(dy, of=self.of, there=self.back, back=self.there)

    def check(self) -> None:
        """RuntimeError where what the maps read was changed in place, or freed."""
        if self.of is not None:
            if not vars(self.of):
                raise self.of.freed()
            self.of.check_unchanged()


def constants(of: Function, *gradients: Any) -> tuple[Any, ...]:
    """What backward gives, as Tensors without a graph: where it does not depend on anything."""
    like = next(dy for dy in gradients if dy is not None)
    found = of.backward(*[None if dy is None else dy.array for dy in gradients])
    return tuple([None if dx is None else like.from_array(dx) for dx in found])


def scaled(of: Function, dy: Any) -> Any:
    """The gradient of a Function that multiplies each element of dy by a slope which is constant around x."""
    return LinearMap.apply(dy, of=of, there=of.backward, back=of.backward)


def summed_to(x: Any, shape: tuple[int, ...]) -> Any:
    """The Tensor x summed over the axes along which an operand of `shape` was broadcast to it."""
    if x.shape == shape:
        return x
    new = x.ndim - len(shape)
    stretched = [i for i in range(x.ndim) if i < new or (shape[i - new] == 1 != x.shape[i])]
    return x.sum(tuple(stretched), keepdim=True).reshape(shape) if stretched else x.reshape(shape)


def passing(dy: Any, mask: Any) -> Any:
    """dy where the array `mask` is True, and 0 elsewhere, whatever stands there."""
    return dy.masked_fill(dy.from_array(~mask), 0.0)


def spread(x: Any, shape: tuple[int, ...], axes: tuple[int, ...]) -> Any:
    """A reduced Tensor back at the full `shape`: its value repeated along `axes`."""
    return x.reshape(tuple([1 if i in axes else n for i, n in enumerate(shape)])).expand(shape)
