"""Dropout sets each element to zero with probability p, and multiplies all other elements by 1 / (1 - p).

So the mean stays the same.
"""

from __future__ import annotations

import numpy as np

from minorm.devices import to_device_of
from minorm.graph.expressions import scaled
from minorm.graph.graph import Function
from minorm.kernels import select


class Dropout(Function):
    """x * m / (1 - p), where m is 0 with probability p, else 1. m is drawn from `blocks` (draws.take_blocks).

    If `blocks` is None, `generator` draws m on the CPU.
    """

    def forward(self, x, *, p, blocks, generator):
        self.p, kernels = p, select.backend(x).random
        if blocks is not None:
            y, self.kept = kernels.dropout(x, p, blocks)
            return y
        self.kept = to_device_of(generator.random(x.shape, np.float32) >= p, x)
        return kernels.keep(x, self.kept, p)

    def backward(self, dy):
        return select.backend(dy).random.keep(dy, self.kept, self.p)

    def gradient(self, dy):
        return scaled(self, dy)
