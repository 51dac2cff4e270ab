"""Plans an operation on two arrays that broadcast against each other: merges the loops over all three arrays.

    a (8, 64, 56, 56) with the channels last, b (8, 64, 1, 1), y like a
    loops       8 times: 200704 apart in y and a, 64 apart in b
             3136 times:     64 apart in y and a,  0 apart in b
               64 times:      1 apart in all three

The plan depends only on shapes, steps and alignment, so this module needs neither a device nor an array.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from minorm.kernels.gpu import launch

THREADS = 256
MOST = 6  # the most loops in a launch

Ints = tuple[int, ...]
Lying = tuple[Ints, Ints, int, int]  # shape, strides, bytes of an element; the address is a multiple of the last number


class Loop(NamedTuple):
    """A loop: the number of turns, and the steps in the result and in both operands."""

    times: int
    to: int
    a: int
    b: int


class Plan(NamedTuple):
    """The launch of `map_broadcast`.

    swapped  True: the kernel reads b first, and a second
    flat     True: the first operand lies as the result
    wholes   for both operands in the kernel's order: is one access of the result also one access of the operand?
    """

    swapped: bool
    flat: bool
    width: int
    integer: np.dtype[Any]
    loops: Any  # the struct Loops: counts, and the steps in both operands
    wholes: tuple[bool, bool]
    size: int
    grid: tuple[int]


def plan(y: Lying, a: Lying, b: Lying) -> Plan | None:
    """Return the launch, or None if there is no such launch.

    y has no gaps. There is no launch for more than six loops, for negative steps, or if an operand of y's size lies in
    another order than y; it is quicker to turn such an operand first.
    """
    shape, size = y[0], prod(y[0])
    if not all(_broadcasts(operand[0], shape) for operand in (a, b)):
        return None
    steps = [_steps(shape, *operand[:3]) for operand in (y, a, b)]
    if any(min(each, default=0) < 0 for each in steps):
        return None
    found = loops(shape, *steps)
    flat_a, flat_b = (all(loop.to == loop[at] for loop in found) for at in (2, 3))
    swapped = flat_b and not flat_a
    if swapped:
        a, b, found = b, a, tuple(Loop(loop.times, loop.to, loop.b, loop.a) for loop in found)
    for at in (2, 3):
        is_full = all(loop[at] for loop in found)
        if len(found) > MOST or (is_full and found[-1][at] != 1 and size > 1):
            return None
    flat = flat_a or flat_b
    alignment = min(y[3], a[3]) if flat else y[3]
    width = max(1, alignment // max(y[2], a[2], b[2]))
    regular = found[-1].times % width == 0
    wholes = tuple(
        width > 1
        and regular
        and found[-1][at] == 1
        and operand[3] % (width * operand[2]) == 0
        and all(loop[at] % width == 0 for loop in found[:-1])
        for at, operand in ((2, a), (3, b))
    )
    extents = [sum((loop.times - 1) * loop[side] for loop in found) for side in (1, 2, 3)]
    integer = launch.index_type(max(*extents, size))
    filled = [Loop(1, 0, 0, 0)] * (MOST - len(found)) + list(found)
    struct = np.array([(loop.times, loop.a, loop.b) for loop in filled], integer).T.copy()
    grid = (launch.blocks(-(-size // width), THREADS),)
    return Plan(swapped, flat, width, integer, struct, wholes, size, grid)  # type: ignore[arg-type]


def loops(shape: Ints, y: Ints, a: Ints, b: Ints) -> tuple[Loop, ...]:
    """Return the loops, from the outermost to the innermost in the result. Two neighbouring loops become one if a
    single loop reaches the same elements in all three arrays.
    """
    axes = [Loop(*each) for each in zip(shape, y, a, b, strict=True) if each[0] != 1]
    found: list[Loop] = []
    for loop in sorted(axes, key=lambda loop: -loop.to):
        if found and all(found[-1][at] == loop[at] * loop.times for at in (1, 2, 3)):
            found[-1] = Loop(loop.times * found[-1].times, *loop[1:])
        else:
            found.append(loop)
    return tuple(found) or (Loop(1, 1, 1, 1),)


def _broadcasts(own: Ints, shape: Ints) -> bool:
    """Return True if an array of shape `own` can be broadcast to `shape`."""
    lead = len(shape) - len(own)
    return lead >= 0 and all(n in (1, m) for n, m in zip(own, shape[lead:], strict=True))


def _steps(shape: Ints, own: Ints, strides: Ints, itemsize: int) -> Ints:
    """Return the steps, in elements, of an array of shape `own` that is broadcast to `shape`."""
    lead = len(shape) - len(own)
    return (0,) * lead + tuple(0 if n == 1 else step // itemsize for n, step in zip(own, strides, strict=True))
