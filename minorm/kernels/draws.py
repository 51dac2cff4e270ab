"""Uniform random numbers that are the same on every device. A kernel on the device computes the numbers from blocks of
a generator.

A generator without a counter, such as all of NumPy's except Philox, draws on the CPU, and the numbers are copied to the
device.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from minorm import devices
from minorm.devices import capture, generators
from minorm.kernels import select

BLOCK = 256  # bits in a block of a generator
WORD = 32  # bits for an element of dropout


def uniform(
    shape: tuple[int, ...], dtype: Any, device: Any = None, generator: Any = None, low: float = 0.0, high: float = 1.0
) -> Any:
    """Return u * (high - low) + low with u on [0, 1), computed in `dtype`, which is float32 or float64. The CPU is the
    device if `device` is None.
    """
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
    """Take blocks for `count` elements of `bits` bits each from the generator, by `random.take_blocks`.

    During the capture of a CUDA graph, no blocks are drawn. The graph gets memory for the blocks instead, and each
    replay draws new blocks into this memory.
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
