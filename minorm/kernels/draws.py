"""Uniform numbers on any device, the same on each: a kernel makes them where they shall be, from blocks of a generator.

A generator that does not count, as those of NumPy but Philox, draws on the CPU, and what it drew is copied.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from minorm import devices
from minorm.devices import capture, generators
from minorm.kernels import select

BLOCK = 256  # bits of a generator's block
WORD = 32  # bits that an element of dropout takes


def uniform(
    shape: tuple[int, ...], dtype: Any, device: Any = None, generator: Any = None, low: float = 0.0, high: float = 1.0
) -> Any:
    """u * (high - low) + low, u on [0, 1): an array of float32 or float64, computed in that; device None is the CPU."""
    with devices.on(device) as xp:
        blocks = take_blocks(generator, prod(shape), dtype.itemsize * 8, xp is np)
        if blocks is None:
            numbers = xp.asarray(generators.source(generator).random(shape, dtype), dtype)
        else:
            numbers = select.backend(xp.empty(0)).random.uniform(shape, dtype, blocks)
        if (low, high) != (0, 1):
            numbers *= high - low
            numbers += low
        return numbers


def take_blocks(generator: Any, count: int, bits: int = WORD, on_host: bool = True) -> Any:
    """Enough blocks for so many elements of so many bits each, as `random.take_blocks` gives them.

    While a CUDA graph is captured a GPU gets a slot for them: the capture draws nothing, each replay draws its own.
    """
    count = -(-count * bits // BLOCK)
    recording = None if on_host else capture.recording()
    if on_host:
        capture.refuse_draws()
    blocks = generators.take_blocks(generator, count if recording is None else 0)
    if blocks is None:
        capture.refuse_draws()
    if recording is None or blocks is None:
        return blocks
    fields = np.zeros((), [("words", np.uint64, len(blocks))])

    def again() -> None:
        recording.next().host["words"] = generators.take_blocks(generator, count)

    recording.again.append(again)
    return recording.keep(fields)
