"""Philox4x64-10, a counter-based generator: block n, of four words, depends only on n and a key.

A generator counts blocks, and passes a kernel its key and a range of block numbers (`minorm.random.take_blocks`); the
kernel computes all these blocks together. Element i gets word i. A word of 32 bits is half of a word of 64 bits, the
lower half first. Words and their order are those of NumPy's Philox.

Salmon, Moraes, Dror and Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3".
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from minorm.devices import dtypes

Blocks = tuple[int, int, int, int]  # (n, rank, key, key): the blocks (n + 1, 0, rank, 1), (n + 2, 0, rank, 1) ...
FACTORS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
STEPS = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)  # added to the key from round to round
ROUNDS = 10
LOW = (1 << 32) - 1


def uniform(shape: tuple[int, ...], dtype: Any, blocks: Blocks) -> Any:
    """u = w / 2^k on [0, 1), where w is the first k bits of a word: 24 of 32 bits in float32, 53 of 64 bits
    in float64.
    """
    count = int(np.prod(shape, dtype=np.int64))
    if dtype == dtypes.float32:
        numbers = (_words(count, 32, blocks) >> 8).astype(np.float32) * np.float32(2.0**-24)
    else:
        numbers = (_words(count, 64, blocks) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return numbers.reshape(shape)


def dropout(x: Any, p: float, blocks: Blocks) -> tuple[Any, Any]:
    """Return y = x * m / (1 - p), and m, which is True where an element's 32-bit word, in C order, is at least
    p * 2^32.
    """
    kept = _words(x.size, 32, blocks).reshape(x.shape) >= np.uint32(threshold(p)[0])
    return keep(x, kept, p), kept


def keep(x: Any, kept: Any, p: float) -> Any:
    """y = x * m / (1 - p)."""
    factor = kept * dtypes.compute_type(x.dtype).type(threshold(p)[1])
    with np.errstate(invalid="ignore", over="ignore"):
        return (x * factor).astype(x.dtype, copy=False)


@functools.lru_cache(maxsize=256)
def threshold(p: float) -> tuple[int, float]:
    """Return the smallest word that keeps an element, and the factor of kept elements, which is 0 for p = 1."""
    return min(round(p * 2**32), 2**32 - 1), 1 / (1 - p) if p < 1 else 0.0


def _words(count: int, bits: int, blocks: Blocks) -> Any:
    """Return the first `count` words of 32 or 64 bits of these blocks."""
    before, rank, *key = blocks
    n = np.arange(-(-count * bits // 256), dtype=np.uint64) + np.uint64(before + 1)
    number = n, np.full_like(n, 0), np.full_like(n, rank), np.full_like(n, 1)
    words = np.stack(_stirred(*number, key[0], key[1]), 1).astype("<u8").reshape(-1)
    return words[:count] if bits == 64 else words.view("<u4")[:count]


def _stirred(a: Any, b: Any, c: Any, d: Any, first: int, second: int) -> tuple[Any, Any, Any, Any]:
    for turn in range(ROUNDS):
        (high_a, low_a), (high_c, low_c) = _product(a, FACTORS[0]), _product(c, FACTORS[1])
        a, b = high_c ^ b ^ np.uint64((first + turn * STEPS[0]) % 2**64), low_c
        c, d = high_a ^ d ^ np.uint64((second + turn * STEPS[1]) % 2**64), low_a
    return a, b, c, d


def _product(x: Any, factor: int) -> tuple[Any, Any]:
    """Return the upper and the lower 64 bits of a product, by long multiplication of 32-bit halves."""
    half = np.uint64(32)
    low, high = x & np.uint64(LOW), x >> half
    f_low, f_high = np.uint64(factor & LOW), np.uint64(factor >> 32)
    middle = high * f_low + (low * f_low >> half)
    carried = (middle & np.uint64(LOW)) + low * f_high
    return high * f_high + (middle >> half) + (carried >> half), x * np.uint64(factor)
