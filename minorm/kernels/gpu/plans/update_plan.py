"""Packs lists of arrays into the struct Parts of update.cu, and computes the grid. This module needs no device."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

MOST, CHUNK, THREADS = 48, 4096, 256

_ADDRESSES = ("p", "g", "m", "v", "peak")
STRUCT = np.dtype(
    [
        *[(name, "u8", MOST) for name in _ADDRESSES],
        ("size", "i8", MOST),
        ("rate", "f8", MOST),
        ("root", "f8", MOST),
        ("first", "i4", MOST + 1),
    ],
    align=True,
)


def launches(sizes: Sequence[int], **columns: Sequence[Any]) -> Iterator[tuple[Any, tuple[int]]]:
    """Yield (struct, grid) for each launch that is necessary for arrays of the sizes `sizes`.

    `columns` has a list for each field of the struct, with one entry for each array.
    """
    for start in range(0, len(sizes), MOST):
        part = slice(start, start + MOST)
        empty, blocks = _empty(tuple(sizes[part]))
        struct = np.frombuffer(bytearray(empty), STRUCT).reshape(())  # empty.copy() of an array would copy each field
        for name, values in columns.items():
            struct[name][: len(values[part])] = values[part]
        yield struct, (blocks,)


@functools.lru_cache(maxsize=256)
def _empty(sizes: tuple[int, ...]) -> tuple[bytes, int]:
    """Return the bytes of the struct before its addresses are set, and the number of blocks; both are the same at every
    step.
    """
    struct = np.zeros((), STRUCT)
    blocks = np.cumsum([0, *[-(-size // CHUNK) for size in sizes]])
    struct["size"][: len(sizes)] = sizes
    struct["first"][:] = blocks[-1]
    struct["first"][: len(blocks)] = blocks
    return struct.tobytes(), int(blocks[-1])
