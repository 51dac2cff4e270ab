"""Reading and writing elements by position.

The gradient of reading is zero except at the positions that were read, where gradients add up. The gradient of writing
has two parts: at the written positions it goes to the value, and elsewhere to the old elements.

An array of positions is copied first, and forward and backward read only the copy. NumPy checks positions before it
uses them, and other threads can run in between. If a thread then wrote to the caller's array, NumPy could read out of
bounds.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from minorm.devices import constant_of, dtypes
from minorm.graph import trace
from minorm.graph.expressions import LinearMap
from minorm.graph.graph import Function
from minorm.kernels.order import in_order_along
from minorm.kernels.select import as_array, backend, contiguous, is_array
from minorm.ops.elementwise import sum_to
from minorm.support.argument_errors import outside


def is_basic(index: Any) -> bool:
    """Return True if `index` has only integers, slices, `...` and None. NumPy then returns a view."""
    parts = index if isinstance(index, tuple) else (index,)
    return all(p is None or p is Ellipsis or isinstance(p, (int, np.integer, slice)) for p in parts)


def viewing(index: Any) -> tuple[Any, ...]:
    """Return the same basic index with `...` added, so that NumPy returns an array without axes instead of a number."""
    parts = index if isinstance(index, tuple) else (index,)
    return parts if any(part is Ellipsis for part in parts) else (*parts, ...)


def as_masks(index: Any) -> Any:
    """Replace uint8 arrays in the index by masks of bools. In PyTorch, uint8 arrays are masks too."""
    if isinstance(index, tuple):
        return tuple([as_masks(part) for part in index])
    if not is_array(index) or index.dtype != dtypes.uint8:
        return index
    warnings.warn(
        "index: an index of uint8 is a mask, as in PyTorch; expected bools: mask.bool(), or index.long() for positions",
        stacklevel=outside(),
    )
    return index != 0


def in_two_steps(index: Any) -> tuple[Any, Any] | None:
    """Return (basic, rest) such that x[index] = x[basic][rest], or None if one step is enough.

    Two steps are necessary if the index contains both integers and arrays, with other parts between them. In PyTorch,
    integers are applied first. NumPy treats integers as arrays, so in x[0, :, i] the axis of i is first in NumPy and
    last here.
    """
    if not isinstance(index, tuple):
        return None
    single, several = [_is_single(part) for part in index], [_is_several(part) for part in index]
    places = [place for place in range(len(index)) if single[place] or several[place]]
    if not any(single) or not any(several) or places[-1] - places[0] + 1 == len(places):
        return None
    basic: list[Any] = []
    rest: list[Any] = []
    for place, part in enumerate(index):
        if single[place]:
            basic.append(int(part))
        elif several[place]:
            array = as_array(part)
            basic += [slice(None)] * (array.ndim if array.dtype == dtypes.bool else 1)
            rest.append(part)
        else:
            basic.append(part)
            rest.append(Ellipsis if part is Ellipsis else slice(None))
    return tuple(basic), tuple(rest)


def _is_single(part: Any) -> bool:
    """Return True if this part of an index is one integer: a number, or an array without axes."""
    if is_array(part):
        return part.ndim == 0 and part.dtype.kind in "iu"
    return isinstance(part, (int, np.integer)) and not isinstance(part, bool)


def _is_several(part: Any) -> bool:
    return isinstance(part, (list, bool, np.bool_)) or (is_array(part) and not _is_single(part))


class GetItem(Function):
    """x[index] by NumPy's rules, for a basic index. The result is a view."""

    view = True

    def forward(self, x: Any, *, index: Any) -> Any:
        self.shape, self.index = x.shape, index
        y = x[index]
        if isinstance(y, np.generic):  # NumPy copies a single element, unless it returns an array without axes
            y = x[viewing(index)]
        return y

    def backward(self, dy: Any) -> Any:
        dx = np.zeros_like(dy, shape=self.shape)
        dx[self.index] = dy
        return dx

    def gradient(self, dy: Any) -> Any:
        return LinearMap.apply(dy, of=self, there=self.backward, back=lambda dx: as_array(dx[self.index]).copy())


class Take(Function):
    """x[index], where the index contains arrays of integers or bools. The result is a copy. If a position is read
    twice, its gradients add up.
    """

    def forward(self, x: Any, *, index: Any) -> Any:
        self.shape, self.index = x.shape, own(index)
        self.axis = _only_axis(self.index)
        return self.read(x)

    def read(self, x: Any) -> Any:
        return x[self.index] if self.axis is None else in_order_along(self.axis, self.taken, x)

    def taken(self, x: Any, axis: int) -> Any:
        return x[_along(axis, self.index[-1])]

    def backward(self, dy: Any) -> Any:
        if self.axis is None:
            return backend(dy).indexing.add_at(dy, self.index, self.shape)
        return in_order_along(self.axis, self.added, dy)

    def gradient(self, dy: Any) -> Any:
        return LinearMap.apply(dy, of=self, there=self.backward, back=self.read)

    def added(self, dy: Any, axis: int) -> Any:
        shape = (*dy.shape[:axis], self.shape[self.axis], *dy.shape[axis + 1 :])
        return contiguous(backend(dy).indexing.add_at(dy, _along(axis, self.index[-1]), shape))


def _only_axis(index: Any) -> int | None:
    """Return the axis of `places` for an index like [:, :, places], which has one array of positions at its end. For
    any other index, return None.
    """
    if not isinstance(index, tuple) or not index or not is_array(index[-1]):
        return None
    places, before = index[-1], index[:-1]
    whole = all(isinstance(part, slice) and part == slice(None) for part in before)
    return len(before) if whole and places.ndim == 1 and places.dtype.kind in "iu" else None


def _along(axis: int, places: Any) -> Any:
    return (*(slice(None),) * axis, places)


class SetItem(Function):
    """x[index] = value, written to x's memory. If `steps` is not empty, the steps make a view v of x, and v[index] =
    value.

    Each step is a pair (function, options) that makes one view. The function gets the result of the step before.
    """

    def forward(self, x: Any, value: Any, *, steps: tuple[Any, ...], index: Any) -> Any:
        self.steps, self.index, self.shape = steps, own(index), value.shape
        self.order = sorted(range(x.ndim), key=lambda axis: -abs(x.strides[axis]))
        backend(x).indexing.put(_follow(x, steps), self.index, value)
        return x

    def backward(self, dy: Any) -> Any:
        return self._parts(dy, self.needs[0], self.needs[1])

    def _parts(self, dy: Any, kept: bool, written: bool) -> tuple[Any, Any]:
        """Split dy into the gradient of x and the gradient of the value."""
        dx = self._like_x(dy, dy.shape)
        dx[...] = dy
        window = _follow(dx, self.steps)
        dvalue = as_array(window[self.index]).copy() if written else None
        if dvalue is not None:
            spare = max(0, len(self.shape) - dvalue.ndim)  # the value may have more axes, of length 1
            dvalue = sum_to(dvalue, self.shape[spare:]).reshape(self.shape)
        window[self.index] = 0
        return dx if kept else None, dvalue

    def gradient(self, dy: Any) -> Any:
        def kept(g: Any) -> Any:
            return self._parts(g, True, False)[0]

        def written(g: Any) -> Any:
            return self._parts(g, False, True)[1]

        def back(dvalue: Any) -> Any:
            dx = self._like_x(dvalue, dy.shape)
            dx[...] = 0
            window = _follow(dx, self.steps)
            there = window[self.index]
            window[self.index] = np.broadcast_to(
                dvalue.reshape(dvalue.shape[max(0, dvalue.ndim - there.ndim) :]), there.shape
            )
            return dx

        return (
            LinearMap.apply(dy, of=self, there=kept, back=kept) if self.needs[0] else None,
            LinearMap.apply(dy, of=self, there=written, back=back) if self.needs[1] else None,
        )

    def _like_x(self, like: Any, shape: tuple[int, ...]) -> Any:
        """Return a new array with x's memory order, so that the steps of a view of x also make a view of this array."""
        lengths = [shape[axis] for axis in self.order]
        made = np.empty_like(like, order="C", shape=(1, *lengths))[0, ...]
        return made.transpose([self.order.index(axis) for axis in range(len(shape))])


def _follow(array: Any, steps: tuple[Any, ...]) -> Any:
    for function, options in steps:
        array = function().forward(array, **options)
    return array


def own(index: Any) -> Any:
    """Return the index with copies of its arrays, since the caller or other threads may change the originals."""
    if isinstance(index, tuple):
        return tuple(own(part) for part in index)
    if not is_array(index):
        return index
    if 0 not in index.strides:
        return index.copy()
    once = index[tuple(slice(1) if step == 0 else slice(None) for step in index.strides)]
    return np.broadcast_to(once.copy(), index.shape)  # the repeated elements of an expanded index are not copied


class Gather(Function):
    """y[i, j] = x[index[i, j], j] if axis is 0; other axes work in the same way. The second input is the index."""

    def forward(self, x: Any, index: Any, *, axis: int) -> Any:
        self.shape, self.index, self.axis = x.shape, own(index), axis
        return self.read(x)

    def read(self, x: Any) -> Any:
        return np.take_along_axis(x[self._window(self.index)], self.index, self.axis)

    def _window(self, index: Any) -> tuple[slice, ...]:
        return tuple(slice(None) if i == self.axis else slice(0, n) for i, n in enumerate(index.shape))

    def backward(self, dy: Any) -> Any:
        return backend(dy).indexing.add_along(dy, self.index, self.axis, self.shape), None

    def gradient(self, dy: Any) -> Any:
        return LinearMap.apply(dy, of=self, there=lambda dy: self.backward(dy)[0], back=self.read), None


@trace.operation
def rolled(x: Any, step: int, axis: int) -> Any:
    """Return y with y[(i + step) mod n] = x[i] along one axis, as a new Tensor."""
    n = x.shape[axis]
    places = (np.arange(n) - step % max(1, n)) % max(1, n)
    return x[(*(slice(None),) * axis, constant_of(places, x.array))]
