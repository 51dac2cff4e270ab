"""Products of bfloat16 in the order in which a processor's matrix tiles add up: a result has these bits everywhere.

The depth is cut into blocks of 32. In a block the even terms form one chain of multiply-adds and the odd ones another,
both from +0; the two are added, and their sum is added to those of the blocks before. Every step is rounded once to
float32, to the nearest and then even, and denormal numbers count as zeros of their sign, before a step and after it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

BLOCK = 32
SMALLEST = np.float32(2.0**-126)  # that is not denormal


def product(a: Any, b: Any, total: Any = None) -> Any:
    """a @ b in float32, added to `total`, for stacks of matrices a (..., rows, depth) and b (..., depth, columns)."""
    a, b = (flushed(x.astype(np.float32)) for x in (a, b))
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    total = np.zeros((*lead, a.shape[-2], b.shape[-1]), np.float32) if total is None else total
    for begin in range(0, a.shape[-1], BLOCK):
        chains = [np.zeros_like(total), np.zeros_like(total)]
        for k in range(begin, begin + BLOCK):
            if k < a.shape[-1]:
                chains[k % 2] = multiply_add(a[..., k, None], b[..., k, None, :], chains[k % 2])
            else:
                chains[k % 2] = chains[k % 2] + np.float32(0)  # 0 * 0 makes +0 of -0
        with np.errstate(over="ignore", invalid="ignore"):
            total = flushed(total + flushed(chains[0] + chains[1]))
    return total


def with_bias(sums: Any, b: Any) -> Any:
    """The sums plus a bias that broadcasts, or None; to be rounded to bfloat16."""
    return sums if b is None else flushed(sums + flushed(b.astype(np.float32)))


def multiply_add(a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once.

    Of two bfloat16 the product is exact in float64. The sum is too, or one of the two is so much smaller than the other
    that float32 rounds to the other either way.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return flushed((a.astype(np.float64) * b + c).astype(np.float32))


def flushed(x: Any) -> Any:
    """Zeros of the same sign in place of denormal numbers."""
    return np.where(np.abs(x) < SMALLEST, np.copysign(np.float32(0), x), x)
