"""Grids of LayerNorm's backward pass whose next row waits in shared memory: plain arithmetic."""

from __future__ import annotations

from typing import Any

import pytest

from minorm.devices import dtypes
from minorm.kernels.gpu.plans import ahead_plan, norm_plan
from minorm.normalization.nest import plan

PACKS = {dtypes.float32: 4, dtypes.bfloat16: 2, dtypes.float64: 4}  # of norm_backward.py
MULTIPROCESSORS, MEMORY = 132, 228 << 10  # of an H100, and bytes of shared memory of each
NAMED = 2 << 10  # bytes of a block's named variables, and those that the device takes


def rows(width: int, dtype: Any, relu: bool = False) -> Any:
    nest = plan((2**26 // width, width), (1,), 1, (1,))
    return ahead_plan.rows(nest, dtype, dtypes.compute_type(dtype), True, PACKS[dtype] // (1 + relu), 512, relu)


@pytest.mark.parametrize("width", [1024, 2048, 4096, 8192, 16384])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16], ids=str)
def test_all_blocks_run_at_once(width: int, dtype: Any) -> None:
    found = rows(width, dtype)
    if found is None:
        assert (width, dtype) == (16384, dtypes.float32)  # which takes more than the largest block
        return
    grid, shared = found
    threads = grid.block[0]
    registers = 80 if grid.packs * grid.width <= ahead_plan.COLUMNS else 128
    beside = min((1 << 16) // (registers * threads), MEMORY // (shared + NAMED))
    assert grid.grid[0] <= beside * MULTIPROCESSORS
    assert grid.grid[0] * threads >= norm_plan.TEAM_THREADS
    assert grid.packs * grid.width * threads >= width


def test_more_threads_run_where_registers_allow_it() -> None:
    assert rows(1024, dtypes.bfloat16)[0].grid == (1536,)  # of 64 threads
    assert rows(1024, dtypes.float64)[0].grid == (512,)
    assert rows(8192, dtypes.bfloat16)[0].packs == 4  # so that two blocks run on a multiprocessor


def test_what_takes_row_backward() -> None:
    assert rows(256, dtypes.float32) is None  # a warp has the row
    assert rows(65536, dtypes.bfloat16) is None
    nest = plan((3, 4, 5, 300), (1, 3), 1, (1, 3))
    assert ahead_plan.rows(nest, dtypes.float32, dtypes.float32, True, 4, 512, False) is None  # two kept loops
    odd = plan((512, 1001), (1,), 1, (1,))
    assert ahead_plan.rows(odd, dtypes.bfloat16, dtypes.float32, True, 2, 512, False) is None  # copies of two bytes
