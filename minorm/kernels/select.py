"""Arrays choose the backend: NumPy arrays run on the CPU kernels."""

from __future__ import annotations

from typing import Any

from minorm.kernels import cpu


def backend(array: Any) -> Any:  # noqa: ARG001  there is one kind of array so far
    """The backend package for this array: modules norm, conv, pool, matmul, sums, elementwise, update, memory."""
    return cpu
