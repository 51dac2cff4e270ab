"""Distributes pooling over threads, and packs the struct Pool of pool.cu. This module needs neither a device nor an
array.

A thread computes one access of neighbouring results. With channels last, the neighbours are channels. In C order they
are columns, if the compiler knows the sizes of the windows (KNOWN) and whole accesses fit; otherwise a thread computes
one element.
"""

from __future__ import annotations

import functools
from math import prod
from typing import Any, NamedTuple

import numpy as np

from minorm.kernels.gpu import launch
from minorm.kernels.gpu.plans import window_struct

Ints = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]
Windows = tuple[Ints, Ints, Pairs, Ints]  # kernel, stride, padding, dilation

DIVIDER = np.dtype([("by", "u4"), ("factor", "u4"), ("shift", "u4")])
STRUCT = np.dtype([("windows", window_struct.STRUCT), ("inner", "i4"), ("dividers", DIVIDER, (4,))])
KNOWN = {(2, 2, 0), (3, 2, 1), (3, 1, 1)}  # (taps, stride, padding before), equal for both axes
ANY: Ints = (0, 0, 0)


class Plan(NamedTuple):
    """The kernel and the number of its threads."""

    kernel: str
    options: Ints  # the kernel's template arguments: the width of an access, and the sizes of windows that it knows
    images: int  # the number of threads for an image
    fields: Any  # the fields of the struct


def divider(by: int) -> tuple[int, int, int]:
    """Return the struct Divider: n // by is ((n * factor >> 32) + n) >> shift for 0 <= n < 2^31."""
    shift = (by - 1).bit_length()
    return by, (((1 << shift) - by) << 32) // by + 1, shift


@functools.lru_cache(maxsize=1024)
def plan(size: Ints, out: Ints, how: Windows | None, inner: int, itemsize: int, aligned: bool, backward: bool) -> Plan:
    """Plan threads over the windows `out` (forward) or over the elements `size` of a plane (backward). `inner` is the
    number of channels if they are last in memory, else 1.

    If `how` is None, every window may contain every element.
    """
    if how is None:
        struct, known = window_struct.unknown(prod(size), prod(out)), ANY
        size, out = (prod(size),), (prod(out),)
    else:
        struct, known = window_struct.packed(size, out, *how), _known(len(size), *how)
    lengths = (1,) * (3 - len(size)) + (size if backward else out)
    step = known[1] if backward and known != ANY else 1  # a thread takes as many places as the stride of a window
    rows = -(-lengths[1] // step)
    columns = launch.width(itemsize, size[-1], out[-1] * step) if aligned and inner == 1 and known != ANY else 1
    if columns > 1 and columns % step == 0:
        name, width, digits = "_columns", columns, (lengths[2] // columns, rows, 1)
    else:
        name, width = "_groups" if backward and known != ANY else "", launch.width(itemsize, inner) if aligned else 1
        digits = inner // width, -(-lengths[2] // step), rows
    images = prod(digits) * lengths[0]
    fields = np.zeros((), STRUCT)
    fields["windows"], fields["inner"] = struct, inner
    fields["dividers"] = [divider(count) for count in (images, *digits)]
    options = (width,) if backward and known == ANY else (width, *known)
    return Plan(("backward" if backward else "forward") + name, options, images, fields)


def spread(plane: int, inner: int) -> Any:
    """Return the struct for the kernel `spread`, in which only two dividers and `inner` are set."""
    fields = np.zeros((), STRUCT)
    fields["inner"], fields["dividers"][:2] = inner, [divider(plane * inner), divider(inner)]
    return fields


def divisor_of_all(size: Ints, out: Ints, how: Windows, count_include_pad: bool, divisor: int | None) -> int:
    """Return the divisor that all windows share. If windows that reach beyond the end or into the padding have another
    divisor, return 0.
    """
    if divisor is not None:
        return divisor
    for n, o, k, s, (low, high), d in zip(size, out, *how, strict=True):
        room = n + high if count_include_pad else n
        if (low and not count_include_pad) or (o - 1) * s - low + (k - 1) * d >= room:
            return 0
    return prod(how[0])


def _known(rank: int, kernel: Ints, stride: Ints, padding: Pairs, dilation: Ints) -> Ints:
    """Return (taps, stride, padding before) if both axes of an image have the same three numbers.

    If the axes differ, or if KNOWN does not have these numbers, return ANY.
    """
    axes = {(k, s, low) for k, s, (low, _) in zip(kernel, stride, padding, strict=True)}
    return min(axes) if rank == 2 and len(axes) == 1 and axes <= KNOWN and set(dilation) <= {1} else ANY
