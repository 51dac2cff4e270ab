"""The discrete Fourier transform, complex numbers as pairs: x[..., 0] + i x[..., 1]."""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.graph.graph import Function


class Fourier(Function):
    """y[k] = sum over j of x[j] e^(-2 pi i j k / n); backwards: with e^(+...), and divided by n.

    As a map of pairs its transposed is that of the other direction, but for the factor n.
    """

    def forward(self, x: Any, *, axis: int, inverse: bool) -> Any:
        self.axis, self.inverse, self.n = axis, inverse, x.shape[axis]
        return self.along(x, inverse)

    def backward(self, dy: Any) -> Any:
        dx = self.along(dy, not self.inverse)
        return (dx / self.n if self.inverse else dx * self.n).astype(dy.dtype)

    def along(self, x: Any, inverse: bool) -> Any:
        """The transform of pairs along the axis, in their type; 16-bit floats in float32."""
        wide = x.astype(dtypes.compute_type(x.dtype), copy=False)
        z = wide[..., 0] + 1j * wide[..., 1]
        z = np.fft.ifft(z, axis=self.axis) if inverse else np.fft.fft(z, axis=self.axis)
        return np.stack([z.real, z.imag], -1).astype(x.dtype)
