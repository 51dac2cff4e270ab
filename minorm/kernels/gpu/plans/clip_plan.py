"""Packs lists of arrays into the struct List of clipping.cu, and chooses the chunks. This module needs no device."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

MOST, THREADS = 192, 256
SHORTEST = 1 << 12  # the fewest elements of a chunk
PARTS = 2048  # about the most chunks: each block of clip_norm adds up their sums again
BLOCKS = 1056  # the most blocks of clip_norm: eight for each of 132 multiprocessors

STRUCT = np.dtype([("x", "u8", MOST), ("size", "i8", MOST), ("first", "i4", MOST + 1)], align=True)


class Launch(NamedTuple):
    """One launch for a part of a list: the arrays' struct, and the number of chunks."""

    struct: Any
    chunks: int


def length(sizes: Sequence[int]) -> int:
    """Return the elements of a chunk: a power of two."""
    found, total = SHORTEST, sum(sizes)
    while total > found * PARTS:
        found *= 2
    return found


def launches(addresses: Sequence[int], sizes: Sequence[int], length: int) -> Iterator[Launch]:
    """Yield the launches for arrays at these addresses."""
    for start in range(0, len(sizes), MOST):
        empty, chunks = _empty(tuple(sizes[start : start + MOST]), length)
        struct = empty.copy()
        part = addresses[start : start + MOST]
        struct["x"][: len(part)] = part
        yield Launch(struct, chunks)


@functools.lru_cache(maxsize=256)
def _empty(sizes: tuple[int, ...], length: int) -> tuple[Any, int]:
    """Return the struct before its addresses are set, and the number of chunks; both are the same at every step."""
    struct = np.zeros((), STRUCT)
    chunks = np.cumsum([0, *[-(-size // length) for size in sizes]])
    struct["size"][: len(sizes)] = sizes
    struct["first"][:] = chunks[-1]
    struct["first"][: len(chunks)] = chunks
    return struct, int(chunks[-1])
