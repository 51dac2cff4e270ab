"""Writes updates to some positions of a copy of x, or combines the updates with x's elements there. The second input
holds the positions.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minorm.devices import constant_of, dtypes, to_device
from minorm.graph.expressions import LinearMap
from minorm.graph.graph import Function
from minorm.graph.recorded import expressed
from minorm.kernels.select import backend
from minorm.ops.indexing import own
from minorm.ops.shape import Cat


class Scatter(Function):
    """Starts with y = x, and then sets y[places] = updates, or combines them by +=, *=, min or max.

    A subclass computes the places. If several elements of x and of the updates are the largest (or smallest) at a
    place, they share the gradient. With "none", ONNX forbids several updates at one place; here, each such update gets
    the gradient of the place.
    """

    def forward(self, x, index, updates, *, reduction, axis=None):
        self.places, self.reduction = self.places_of(own(index), x, axis), reduction
        y = backend(x).indexing.scatter(x, self.places, updates, reduction)
        if reduction in ("mul", "min", "max"):
            self.x, self.updates, self.y = x, updates, y
        return y

    def backward(self, dy):
        there = dy[self.places]
        if self.reduction == "add":
            return dy, None, there
        if self.reduction == "none":
            return self.outside(dy), None, there
        slopes = self.of_product() if self.reduction == "mul" else self.of_extreme()
        dx, du = (g.astype(slope.dtype) * slope for g, slope in zip((dy, there), slopes, strict=True))
        return dx.astype(dy.dtype, copy=False), None, du.astype(dy.dtype, copy=False)

    def gradient(self, dy):
        if self.reduction == "mul":
            return expressed(self.product, [self.input(0, self.x, dy), None, self.input(2, self.updates, dy)], [dy])
        there = LinearMap.apply(
            dy,
            of=self,
            there=lambda dy: dy[self.places],
            back=lambda du: backend(du).indexing.add_at(du, self.places, dy.shape),
        )
        if self.reduction == "add":
            return dy, None, there
        if self.reduction == "none":
            return LinearMap.apply(dy, of=self, there=self.outside, back=self.outside), None, there
        ours, theirs = (dy.from_array(slope.astype(dy.dtype, copy=False)) for slope in self.of_extreme())
        return dy * ours, None, there * theirs

    def product(self, x, _, updates):
        """Compute the forward pass of "mul" with Tensors: multiply the factors of each place in pairs, until one factor
        is left.

        Such products have a derivative even if a factor is 0. The multiplication takes log2(largest number of factors)
        rounds.
        """
        targets = self.targets(x)
        touched = np.unique(targets)
        wide = dtypes.compute_type(x.dtype)
        factors = Cat.apply(*[a.to(wide) for a in (x.reshape(-1)[touched], updates.reshape(-1))], axis=0)
        places = np.concatenate([touched, targets])
        while len(places) > len(touched):
            order = np.argsort(places, kind="stable")
            ordered = places[order]
            number = np.arange(len(ordered)) - np.searchsorted(ordered, ordered)  # the number of a factor at its place
            first = np.flatnonzero(number % 2 == 0)
            paired = np.append(number[1:] % 2 == 1, False)[first]
            pairs = factors[order[first[paired]]] * factors[order[first[paired] + 1]]
            factors = Cat.apply(factors[order[first[~paired]]], pairs, axis=0)
            places = np.concatenate([ordered[first[~paired]], ordered[first[paired]]])
        last = factors[np.argsort(places)].to(x.dtype)
        flat = constant_of(touched, x.array)
        put = LinearMap.apply(
            last, there=lambda a: backend(a).indexing.add_at(a, (flat,), (x.numel(),)), back=lambda dy: dy[flat]
        )
        return LinearMap.apply(x, there=self.outside, back=self.outside) + put.reshape(x.shape)

    def targets(self, x):
        """Return, for each element of the updates, its index in the flattened x."""
        places = np.broadcast_arrays(*[to_device(a, "cpu") for a in self.places])
        n = len(places)
        index = np.ravel_multi_index(places, x.shape[:n], mode="wrap")
        rest = math.prod(x.shape[n:])
        return (index[..., None] * rest + np.arange(rest)).reshape(-1)

    def outside(self, dy):
        """Return dy, but 0 at the places that were written."""
        dx = dy.copy()
        dx[self.places] = 0
        return dx

    def of_extreme(self):
        """Return two arrays of shares, for the elements of x and of the updates. The share of an extreme is 1 / (the
        number of equal extremes at its place), and other elements have the share 0.
        """
        ours, theirs = self.x == self.y, self.updates == self.y[self.places]
        wide = dtypes.compute_type(self.x.dtype)
        count = self._combined(ours.astype(wide), theirs.astype(wide), "add")
        share = 1 / np.maximum(count, 1)
        return share * ours, share[self.places] * theirs

    def of_product(self):
        """Return, for each factor, the product of all other factors at its place. Any factor may be 0."""
        wide = dtypes.compute_type(self.x.dtype)
        x, updates = self.x.astype(wide), self.updates.astype(wide)
        zeros = self._combined((x == 0).astype(wide), (updates == 0).astype(wide), "add")
        x_without, updates_without = (np.where(a == 0, wide.type(1), a) for a in (x, updates))
        product = self._combined(x_without, updates_without, "mul")
        return (
            product / x_without * (zeros == (x == 0)),
            product[self.places] / updates_without * (zeros[self.places] == (updates == 0)),
        )

    def _combined(self, x, updates, reduction):
        return backend(x).indexing.scatter(x, self.places, updates, reduction)

    def places_of(self, index: Any, x: Any, axis: int) -> Any:
        """Return the index of the places, as it is used in x[index]."""
        raise NotImplementedError


class ScatterElements(Scatter):
    """y[index[i, j], j] = updates[i, j] if axis is 0; other axes work in the same way."""

    def places_of(self, index, x, axis):
        where = [constant_of(a, x) for a in np.indices(index.shape, sparse=True)]
        where[axis] = index
        return tuple(where)


class ScatterND(Scatter):
    """y[index[i, 0], index[i, 1], ...] = updates[i]. The last axis of the index holds the first coordinates in y."""

    def places_of(self, index, x, axis):  # noqa: ARG002
        return tuple(index[..., i] for i in range(index.shape[-1]))
