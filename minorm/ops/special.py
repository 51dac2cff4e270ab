"""erf, which NumPy lacks, and the remainder of a division, differentiable."""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm import dtypes
from minorm.autograd import Function
from minorm.kernels.select import backend
from minorm.ops.elementwise import gradient_of, sum_to


class Erf(Function):
    """2 / sqrt(pi) * the integral of exp(-t^2) from 0 to x."""

    def forward(self, x: Any) -> Any:
        self.x = x
        if dtypes.is_float(x.dtype):
            return backend(x).elementwise.erf(x)
        return backend(x).elementwise.erf(x.astype(np.float64)).astype(x.dtype)  # ONNX's takes integers too

    def backward(self, dy: Any) -> Any:
        return backend(dy).elementwise.erf_grad(dy, self.x)


class Remainder(Function):
    """a - q * b with q = a / b rounded down (then it has b's sign), or towards 0 with `truncated` (a's sign)."""

    def forward(self, a: Any, b: Any, *, truncated: bool) -> Any:
        self.a, self.b, self.truncated = a, b, truncated
        return (np.fmod if truncated else np.remainder)(a, b)

    def backward(self, dy: Any) -> Any:
        a, b = self.a, self.b
        da = sum_to(dy, a.shape) if self.needs[0] else None
        if not self.needs[1]:
            return da, None
        whole = np.trunc if self.truncated else np.floor
        return da, gradient_of(b.shape, lambda g, a, b: -g * whole(a / b), dy, a, b)
