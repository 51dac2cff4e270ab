"""Uniform random numbers and dropout on a GPU, from the blocks of a counter-based generator, with the same bits as on
the CPU.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from minorm.devices import capture, dtypes
from minorm.kernels.gpu import launch, memory
from minorm.kernels.gpu.operands import arranged, dense, plain
from minorm.kernels.gpu.plans.structs import Struct
from minorm.kernels.gpu.program import Program
from minorm.kernels.reference.random import Blocks, threshold

THREADS = 256
HALVES = 8  # the number of 32-bit words in a block

_program = Program("random.cu")
_NONE = Struct(np.zeros(4, np.uint64))


def uniform(shape: tuple[int, ...], dtype: Any, blocks: Blocks) -> Any:
    out, n = memory.empty(shape, dtype), prod(shape)
    if n:
        index = launch.index_type(n)
        kernel = _program.kernel("uniform", dtype, launch.ACCESS // dtype.itemsize, index)
        grid = (launch.blocks(-(-n * dtype.itemsize // 32), THREADS),)
        kernel(grid, (THREADS,), (out, index.type(n), *_blocks_argument(blocks)))
    return out


def dropout(x: Any, p: float, blocks: Blocks) -> tuple[Any, Any]:
    rows = plain(x)  # random numbers go row by row, as on the CPU; results then get x's order
    kept = memory.empty(x.shape, dtypes.bool)
    out = _dropout(rows, kept, p, blocks)
    return arranged(out, x), arranged(kept, x)


def keep(x: Any, kept: Any, p: float) -> Any:
    x = dense(x)
    return _dropout(x, arranged(kept, x), p, None)


def _dropout(x: Any, kept: Any, p: float, blocks: Blocks | None) -> Any:
    """Return x with the kept elements scaled and all other elements 0. With `blocks`, the kernel draws random numbers
    and fills `kept`. Without `blocks`, it reads `kept`.
    """
    out, n, dtype = memory.empty_like(x), x.size, x.dtype
    if n:
        compute, index = dtypes.compute_type(dtype), launch.index_type(n)
        limit, factor = threshold(p)
        width = launch.ACCESS // dtype.itemsize if launch.is_aligned(x, kept, out) else 1
        kernel = _program.kernel("dropout", dtype, compute, width, blocks is not None, index)
        grid = (launch.blocks(-(-n // HALVES), THREADS),)
        numbers = index.type(n), compute.type(factor), dtypes.uint32.type(limit)
        kernel(grid, (THREADS,), (x, kept, out, *numbers, *_blocks_argument(blocks)))
    return out


def _blocks_argument(blocks: Blocks | capture.Slot | None) -> tuple[Struct, Any]:
    """Return the struct Blocks by value, or its address on the device if a CUDA graph renews the blocks there."""
    if isinstance(blocks, capture.Slot):
        return _NONE, blocks.device
    return (_NONE if blocks is None else Struct(np.array(blocks, np.uint64))), None
