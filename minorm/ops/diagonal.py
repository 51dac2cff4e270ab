"""Diagonals: of the last two axes, a view; and of any axes, as einsum reads them: "ii->i"."""

from __future__ import annotations

import numpy as np

from minorm.devices import to_device_of
from minorm.graph.graph import Function


class Diagonal(Function):
    """y[i, j] = x[i, j, i] for the letters "iji": one axis for each letter, in the order in which they first stand."""

    def forward(self, x, *, letters):
        lengths = dict(zip(letters, x.shape, strict=True))
        axes = np.indices(tuple(lengths.values()), sparse=True)
        counting = dict(zip(lengths, (to_device_of(axis, x) for axis in axes), strict=True))
        self.shape, self.places = x.shape, tuple(counting[letter] for letter in letters)
        return x[self.places]

    def backward(self, dy):
        dx = np.zeros_like(dy, shape=self.shape)
        dx[self.places] = dy
        return dx


class MatrixDiagonal(Function):
    """y[..., i] = x[..., i, i + offset], below the main diagonal x[..., i - offset, i]: a view."""

    view = True

    def forward(self, x, *, offset):
        self.shape, self.offset = x.shape, offset
        y = np.diagonal(x, offset, -2, -1)
        if type(y) is np.ndarray:  # NumPy's is read-only
            y.flags.writeable = x.flags.writeable
        return y

    def backward(self, dy):
        dx = np.zeros_like(dy, shape=self.shape)
        MatrixDiagonal().forward(dx, offset=self.offset)[...] = dy
        return dx
