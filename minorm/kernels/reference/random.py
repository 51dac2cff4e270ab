"""Philox4x64-10, a counter-based generator: block n, of four words, depends only on n and a key.

A generator only counts blocks. It passes its key and a range of block numbers to a kernel
(`minorm.random.take_blocks`), and the kernel computes all these blocks together. Element i gets word i. If words have
32 bits, each 64-bit word gives two words, the lower half first. NumPy's Philox gives the same words in the same order.

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
    """Return u = w / 2^k on [0, 1), where w is the first k bits of a word. In float32, k is 24 and a word has 32 bits;
    in float64, k is 53 and a word has 64 bits.
    """
    count = int(np.prod(shape, dtype=np.int64))
    if dtype == dtypes.float32:
        numbers = (_words(count, 32, blocks) >> 8).astype(np.float32) * np.float32(2.0**-24)
    else:
        numbers = (_words(count, 64, blocks) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return numbers.reshape(shape)


def dropout(x: Any, p: float, blocks: Blocks) -> tuple[Any, Any]:
    """Return y = x * m / (1 - p), and m. An element has m = True if its 32-bit word is p * 2^32 or more. Elements are
    counted in C order.
    """
    kept = _words(x.size, 32, blocks).reshape(x.shape) >= np.uint32(threshold(p)[0])
    return keep(x, kept, p), kept


def keep(x: Any, kept: Any, p: float) -> Any:
    """Return y = x * kept / (1 - p), where `kept` is True for the elements that dropout keeps."""
    factor = kept * dtypes.compute_type(x.dtype).type(threshold(p)[1])
    with np.errstate(invalid="ignore", over="ignore"):
        return (x * factor).astype(x.dtype, copy=False)


@functools.lru_cache(maxsize=256)
def threshold(p: float) -> tuple[int, float]:
    """Return the smallest random word with which an element is kept, and the factor of the elements that are kept.

    For p = 1 the factor is 0.
    """
    return min(round(p * 2**32), 2**32 - 1), 1 / (1 - p) if p < 1 else 0.0


def _words(count: int, bits: int, blocks: Blocks) -> Any:
    """Return the first `count` words of `blocks`, as words of 32 or 64 bits."""
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
