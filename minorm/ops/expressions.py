"""What gradients are written with where they are Tensors: `Function.gradient` of the other modules.

Where backward is linear in dy, and what it reads besides, a mask or positions, has no slope, a `LinearMap` runs it.
"""

from __future__ import annotations

from typing import Any

from minorm.graph.graph import Function
from minorm.graph.linear_map import LinearMap


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
