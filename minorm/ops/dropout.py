"""Dropout: each element is set to zero with probability p, the others grow by 1 / (1 - p), so the mean stays."""

from __future__ import annotations

import numpy as np

from minorm import dtypes
from minorm.autograd import Function
from minorm.devices import to_device_of


class Dropout(Function):
    """x * factor, with factor 0 with probability p and 1 / (1 - p) otherwise, drawn from `generator`."""

    def forward(self, x, *, p, generator):
        compute = dtypes.compute_type(x.dtype)
        kept = to_device_of(generator.random(x.shape, np.float32) >= p, x)
        self.factor = kept * compute.type(1 / (1 - p) if p < 1 else 0)
        return (x * self.factor).astype(x.dtype, copy=False)

    def backward(self, dy):
        return (dy * self.factor).astype(dy.dtype, copy=False)
