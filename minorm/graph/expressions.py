"""Building blocks for `Function.gradient`: maps of arrays with a known gradient, and small formulas with Tensors.

Many gradients are linear in dy, and depend otherwise only on constants, such as a mask. Then `gradient` needs no
formula with Tensors: a `LinearMap` runs the code of `backward` on arrays. The gradient of the LinearMap is its
transposed map, also on arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minorm.graph.graph import Function


class LinearMap(Function):
    """Computes there(x), which is linear in x. The gradient is back(dy), where `back` is the transposed map.

    of  the Function whose arrays `there` and `back` read; these arrays must not change. None if there are no such
        arrays
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
        """Raise RuntimeError if the arrays that the maps read have been changed in place or freed."""
        if self.of is not None:
            if not vars(self.of):
                raise self.of.freed()
            self.of.check_unchanged()


def constants(of: Function, *gradients: Any) -> tuple[Any, ...]:
    """Call `backward` of the Function `of`, and return the results as Tensors without a graph.

    This is right only if the results are constants, because a Tensor without a graph has no further gradients.
    """
    like = next(dy for dy in gradients if dy is not None)
    found = of.backward(*[None if dy is None else dy.array for dy in gradients])
    return tuple([None if dx is None else like.from_array(dx) for dx in found])


def scaled(of: Function, dy: Any) -> Any:
    """Return the gradient of a Function whose backward multiplies dy by an array that does not change with x."""
    return LinearMap.apply(dy, of=of, there=of.backward, back=of.backward)


def summed_to(x: Any, shape: tuple[int, ...]) -> Any:
    """Return the Tensor x summed over the axes along which an operand of `shape` was broadcast."""
    if x.shape == shape:
        return x
    new = x.ndim - len(shape)
    stretched = [i for i in range(x.ndim) if i < new or (shape[i - new] == 1 != x.shape[i])]
    return x.sum(tuple(stretched), keepdim=True).reshape(shape) if stretched else x.reshape(shape)


def passing(dy: Any, mask: Any) -> Any:
    """Return dy where the array `mask` is True, and 0 elsewhere, even where dy is NaN."""
    return dy.masked_fill(dy.from_array(~mask), 0.0)


def spread(x: Any, shape: tuple[int, ...], axes: tuple[int, ...]) -> Any:
    """Expand x, a Tensor that was reduced over `axes`, to the full `shape`: its values repeat along these axes."""
    return x.reshape(tuple([1 if i in axes else n for i, n in enumerate(shape)])).expand(shape)
