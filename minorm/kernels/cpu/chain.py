"""Computes a chain of maps in one pass: a block of elements goes through all maps while it is in the first-level cache.

An operand may have the result's shape, be a single number, or be one row that repeats for every row of the result. For
other operands or memory orders, each map runs in a separate pass, and the result has the same bits.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from math import prod
from typing import Any

import minorm_ext
from minorm.kernels.cpu import elementwise
from minorm.kernels.cpu.memory import empty
from minorm.kernels.cpu.operands import STORAGE, is_plain, plain
from minorm.kernels.reference import chain as reference
from minorm.kernels.reference.chain import LONGEST, Link

_kernels: Any = minorm_ext.kernels("elementwise")


def chain(links: tuple[Link, ...], operands: Sequence[Any], shape: tuple[int, ...]) -> Any:
    """Compute a chain of maps, and return the result of the last map, which has the shape `shape`.

    kernels/reference/chain.py explains the arguments.
    """
    dtype = operands[0].dtype
    size, row = prod(shape), shape[-1] if shape else 1
    pairs, period = [], 1
    for x in operands:
        whole = x.shape == shape
        if not x.flags.carray:
            x = plain(x) if whole and _is_in_rows(x) else x
        if x.dtype != dtype or not is_plain(x):
            break
        if x.size == 1:
            pairs.append((x, 1))
        elif whole:
            pairs.append((x, size))
        elif x.size == x.shape[-1] == row <= LONGEST:
            pairs.append((x, row))
            period = row
        else:
            break
    if len(pairs) < len(operands) or dtype not in STORAGE or not size:
        return reference.chain(links, operands, shape, elementwise)
    steps, count = _steps(links, len(operands))
    threads = minorm_ext.get_num_threads()
    out = empty(shape, dtype)
    scratch = empty((_kernels.chain_scratch(len(operands), count, period, threads),), dtype)
    _kernels.chain(steps, count, pairs, period, out, scratch, size, STORAGE[dtype], threads)
    return out


def _is_in_rows(x: Any) -> bool:
    """Return True if the elements are in memory row by row, perhaps with gaps. For such arrays NumPy's results are also
    row by row.
    """
    strides = x.strides
    return all(a >= b > 0 for a, b in itertools.pairwise(strides))


@functools.lru_cache(maxsize=256)
def _steps(links: tuple[Link, ...], operands: int) -> tuple[tuple[Any, ...], int]:
    """Return the links in the kernel's form, and the number of scratch arrays. A scratch array that no later link reads
    is used again for another result.

    A link never writes its result into an array that the same link reads.
    """
    last = {source: i for i, link in enumerate(links) for source in (link.a, link.b)}
    place = {source: source for source in range(operands)}
    free: list[int] = []
    count, steps = 0, []
    for i, link in enumerate(links):
        if not free:
            free.append(operands + count)
            count += 1
        place[operands + i] = free.pop()
        a = place[link.a]
        b = a if link.b is None else place[link.b]
        number = _kernels.numbers[link.operation]
        steps.append((number, a, b, place[operands + i], link.option or 0.0))
        free += {place[s] for s in (link.a, link.b) if s is not None and s >= operands and last[s] == i}
    return tuple(steps), count
