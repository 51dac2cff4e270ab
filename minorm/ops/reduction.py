"""Sums, means and extremes over some axes: x.shape loses the reduced axes, or keeps them as ones.

16-bit floats are accumulated in float32 and rounded once; NumPy alone sums 10,000 bfloat16 ones to 256.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm import dtypes
from minorm.autograd import Function


def spread(reduced: Any, shape: tuple[int, ...], axes: tuple[int, ...]) -> Any:
    """A reduced array back at the full `shape`: its value repeated along `axes` (a view)."""
    kept = tuple(1 if i in axes else n for i, n in enumerate(shape))
    return np.broadcast_to(reduced.reshape(kept), shape)


class Sum(Function):
    """The sum over `axes`."""

    def forward(self, x: Any, *, axes: tuple[int, ...], keepdims: bool) -> Any:
        self.shape, self.axes = x.shape, axes
        if not dtypes.is_float(x.dtype):
            return np.sum(x, axis=axes, keepdims=keepdims)
        total = np.sum(x, axis=axes, keepdims=keepdims, dtype=dtypes.compute_type(x.dtype))
        return total.astype(x.dtype, copy=False)

    def backward(self, dy: Any) -> Any:
        return spread(dy, self.shape, self.axes)


class Mean(Function):
    """The mean over `axes`; NaN over nothing."""

    def forward(self, x: Any, *, axes: tuple[int, ...], keepdims: bool) -> Any:
        self.shape, self.axes = x.shape, axes
        self.count = int(np.prod([x.shape[i] for i in axes], dtype=np.int64))
        compute = dtypes.compute_type(x.dtype)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.sum(x, axis=axes, keepdims=keepdims, dtype=compute) / compute.type(self.count)
        return mean.astype(x.dtype, copy=False)

    def backward(self, dy: Any) -> Any:
        share = (dy / dtypes.compute_type(dy.dtype).type(max(1, self.count))).astype(dy.dtype, copy=False)
        return spread(share, self.shape, self.axes)


class Max(Function):
    """The largest element over `axes`; equal ones share the gradient, as in PyTorch's amax."""

    extreme: Any = staticmethod(np.max)

    def forward(self, x: Any, *, axes: tuple[int, ...], keepdims: bool) -> Any:
        self.x, self.axes = x, axes
        self.y = self.extreme(x, axis=axes, keepdims=True)
        return self.y if keepdims else self.y.reshape([n for i, n in enumerate(x.shape) if i not in axes])

    def backward(self, dy: Any) -> Any:
        hit = self.x == self.y
        share = spread(dy, self.x.shape, self.axes) / hit.sum(axis=self.axes, keepdims=True)
        return np.where(hit, share, 0).astype(dy.dtype, copy=False)


class Min(Max):
    """The smallest element over `axes`; equal ones share the gradient."""

    extreme = staticmethod(np.min)


class ArgMax(Function):
    """The index of the first largest element along `axis`, or in the flattened array for None; int64."""

    differentiable = False

    def forward(self, x: Any, *, axis: int | None, keepdims: bool) -> Any:
        return np.argmax(x, axis=axis, keepdims=keepdims)


class ArgMin(Function):
    """The index of the first smallest element along `axis`, or in the flattened array for None; int64."""

    differentiable = False

    def forward(self, x: Any, *, axis: int | None, keepdims: bool) -> Any:
        return np.argmin(x, axis=axis, keepdims=keepdims)
