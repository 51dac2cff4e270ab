"""Computes products of bfloat16. Terms are added in the same order as in a processor's matrix tiles, so the bits are
equal on all processors.

The depth is cut into blocks of 32. In a block, the even terms form one chain of multiply-adds, and the odd terms form a
second chain. Both chains start at +0. The results of the two chains are added, and their sum is added to the total of
the earlier blocks. Every step is rounded once to float32, to the nearest number, and in a tie to the even one. Before
and after each step, denormal numbers count as zeros of the same sign.
"""

from __future__ import annotations

from typing import Any

import numpy as np

BLOCK = 32
SMALLEST = np.float32(2.0**-126)  # the smallest number that is not denormal


def product(a: Any, b: Any, total: Any = None) -> Any:
    """Return a @ b + total in float32, for stacks of matrices a (..., rows, depth) and b (..., depth, columns)."""
    a, b = (flushed(x.astype(np.float32)) for x in (a, b))
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    total = np.zeros((*lead, a.shape[-2], b.shape[-1]), np.float32) if total is None else total
    for begin in range(0, a.shape[-1], BLOCK):
        chains = [np.zeros_like(total), np.zeros_like(total)]
        for k in range(begin, begin + BLOCK):
            if k < a.shape[-1]:
                chains[k % 2] = multiply_add(a[..., k, None], b[..., k, None, :], chains[k % 2])
            else:
                chains[k % 2] = chains[k % 2] + np.float32(0)  # a product 0 * 0 turns -0 into +0
        with np.errstate(over="ignore", invalid="ignore"):
            total = flushed(total + flushed(chains[0] + chains[1]))
    return total


def with_bias(sums: Any, b: Any) -> Any:
    """Return the sums plus b, which broadcasts; b may be None. The caller rounds the result to bfloat16."""
    return sums if b is None else flushed(sums + flushed(b.astype(np.float32)))


def multiply_add(a: Any, b: Any, c: Any) -> Any:
    """Return a * b + c, rounded once.

    The product of two bfloat16 numbers is exact in float64. The sum is exact too, unless one term is so small that
    float32 rounds the sum to the other term in any case.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return flushed((a.astype(np.float64) * b + c).astype(np.float32))


def flushed(x: Any) -> Any:
    """Return x, with each denormal number replaced by a zero of the same sign."""
    return np.where(np.abs(x) < SMALLEST, np.copysign(np.float32(0), x), x)
