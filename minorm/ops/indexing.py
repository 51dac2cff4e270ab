"""Reading elements by position. The gradient is zero but for the positions read, where it is added up."""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.autograd import Function
from minorm.kernels.select import backend


def is_basic(index: Any) -> bool:
    """True where `index` holds only integers, slices, `...` and None: then NumPy returns a view."""
    parts = index if isinstance(index, tuple) else (index,)
    return all(p is None or p is Ellipsis or isinstance(p, (int, np.integer, slice)) for p in parts)


class GetItem(Function):
    """x[index] by NumPy's rules, for a basic index: a view."""

    view = True

    def forward(self, x: Any, *, index: Any) -> Any:
        self.shape, self.index = x.shape, index
        return x[index]

    def backward(self, dy: Any) -> Any:
        dx = np.zeros_like(dy, shape=self.shape)
        dx[self.index] = dy
        return dx


class Take(Function):
    """x[index] with arrays of integers or bools in the index: a copy; a position read twice counts twice."""

    def forward(self, x: Any, *, index: Any) -> Any:
        self.shape, self.index = x.shape, index
        return x[index]

    def backward(self, dy: Any) -> Any:
        return backend(dy).indexing.add_at(dy, self.index, self.shape)


class Gather(Function):
    """y[i, j] = x[index[i, j], j] for axis 0, and so on; the index is the second input, of integers."""

    def forward(self, x: Any, index: Any, *, axis: int) -> Any:
        self.shape, self.index, self.axis = x.shape, index, axis
        return np.take_along_axis(x[self._window(index)], index, axis)

    def _window(self, index: Any) -> tuple[slice, ...]:
        return tuple(slice(None) if i == self.axis else slice(0, n) for i, n in enumerate(index.shape))

    def backward(self, dy: Any) -> Any:
        return backend(dy).indexing.add_along(dy, self.index, self.axis, self.shape), None
