"""Brings arrays into the form that kernels read: in C order, without gaps, aligned. `STORAGE` has the number of each
type in the kernels.
"""

from __future__ import annotations

from typing import Any

from minorm.devices import dtypes
from minorm.kernels.cpu.memory import empty
from minorm.kernels.reference.copying import WORDS

STORAGE = {dtypes.float16: 0, dtypes.bfloat16: 1, dtypes.float32: 2, dtypes.float64: 3}  # Type, simd/storage.pxd


def is_plain(x: Any) -> bool:
    """Return True if a kernel can read the array without a copy, which is the usual case."""
    flags = x.flags
    return bool(flags.c_contiguous and flags.aligned)


def plain(x: Any) -> Any:
    """Return the array itself, or a copy that a kernel can read."""
    flags = x.flags
    if flags.c_contiguous and flags.aligned:
        return x
    copy = empty(x.shape, x.dtype)
    word = WORDS.get(x.shape[-1] * x.itemsize) if x.ndim and flags.aligned and x.strides[-1] == x.itemsize else None
    if word is None:
        copy[...] = x
    else:
        copy.view(word)[...] = x.view(word)
    return copy
