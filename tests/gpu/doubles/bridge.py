"""The GPU backend's normalization as a backend of NumPy arrays: over to the double of CuPy, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import cupy_functions
import numpy as np

from minorm.kernels.protocol import Statistics


class Norm:
    """Every function of kernels/gpu/norm.py, on NumPy arrays."""

    def __init__(self, cupy: Any) -> None:
        from minorm.kernels.gpu import norm  # inside: it imports what is cupy now

        self.cupy, self.norm = cupy, norm

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = getattr(self.norm, name)
        return lambda *args, **options: self._back(function(*[self._over(arg) for arg in args], **options))

    def _over(self, value: Any) -> Any:
        if isinstance(value, Statistics):
            return Statistics(self.cupy.asarray(value.block))
        if not isinstance(value, np.ndarray):
            return value
        order = np.argsort([-step for step in value.strides], kind="stable")
        copy = self.cupy.asarray(np.ascontiguousarray(value.transpose(order)))  # CuPy keeps no foreign order either
        return copy.transpose(np.argsort(order))

    def _back(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(self._back(part) for part in value)
        if isinstance(value, Statistics):
            return Statistics(value.block.get())
        return value if value is None else value.memory.copy("K")


@contextmanager
def gpu_norm() -> Iterator[Norm]:
    with cupy_functions.installed() as cupy:
        yield Norm(cupy)
