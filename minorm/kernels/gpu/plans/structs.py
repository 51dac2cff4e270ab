"""Structs that kernels take by value; each is made once.

For a structured array, CuPy would read the array's description at every launch, which takes the host 5 to 8
microseconds. For a Struct it reads only the address.
"""

from __future__ import annotations

import functools
from typing import Any

import cupy

from minorm.kernels.gpu.plans import window_struct


class Struct(cupy.cuda.function.CPointer):  # type: ignore[misc]  # CuPy has no types
    """The fields of a structured array without axes, as an argument of a kernel."""

    def __init__(self, fields: Any) -> None:
        super().__init__(fields.ctypes.data)
        self.fields = fields  # keeps the memory at the address alive


@functools.lru_cache(maxsize=1024)
def windows_of(*how: Any) -> Struct:
    """Return the struct Windows; the arguments are those of `window_struct.packed`."""
    return Struct(window_struct.packed(*how))
