"""Grids of clusters: plain arithmetic. Every element of a row belongs to one thread of one block."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minorm.kernels.gpu.plans import cluster_plan, norm_plan
from minorm.normalization.nest import Nest, plan

IMAGES = (128, 64, 56, 56)
BATCH = plan(IMAGES, (0, 2, 3), 1, (1,))
GROUPS = plan(IMAGES, (2, 3), 8, (1, 2))
LAYER = plan((4096, 16384), (1,), 1, (1,))
MULTIPROCESSOR = 228 << 10  # bytes of shared memory, 1 KB of which each block takes beside what it asks for
NAMED = 2 << 10  # bytes of named variables at most


def forward(nest: Nest, itemsize: int = 4, in_registers: bool = False, residual: bool = False) -> Any:
    return cluster_plan.forward(nest, itemsize, True, residual, 1024, in_registers)


def backward(nest: Nest, itemsize: int = 4, in_registers: bool = False, relu: bool = False) -> Any:
    return cluster_plan.backward(nest, itemsize, True, relu, 1024, in_registers)


@pytest.mark.parametrize(
    ("found", "blocks", "threads", "beside"),  # beside: blocks on a multiprocessor
    [
        (forward(GROUPS, 4), 2, 256, 4), (forward(GROUPS, 2), 1, 256, 4), (backward(GROUPS, 4), 4, 256, 4),
        (backward(GROUPS, 2), 2, 256, 4), (forward(BATCH, 4), 8, 1024, 1), (forward(BATCH, 2), 8, 512, 2),
        (backward(BATCH, 2), 8, 1024, 1), (forward(LAYER, 4), 2, 128, 6), (forward(LAYER, 2), 1, 128, 6),
        (forward(BATCH, 2, residual=True), 8, 1024, 1),
    ],
)  # fmt: skip
def test_a_cluster_is_small_enough_for_others_beside_it(found: Any, blocks: int, threads: int, beside: int) -> None:
    assert (found.blocks, found.block) == (blocks, (threads,))
    assert found.grid[0] % blocks == 0
    assert MULTIPROCESSOR // (found.shared + NAMED + 1024) == beside
    assert beside * threads <= 1024  # of 64 registers each


def test_what_takes_the_other_kernels() -> None:
    assert backward(BATCH, 4) is None  # 3.2 MB a channel
    assert forward(plan((8, 64, 256, 256), (0, 2, 3)), 4) is None
    assert backward(LAYER) is None  # every column has its scale
    assert forward(plan((8, 16384), (1,))) is None  # 64 blocks do not fill a device
    assert forward(plan((4096, 1024), (1,)), in_registers=True) is None
    assert forward(LAYER, in_registers=True) is not None  # its registers would fill a multiprocessor
    assert backward(plan((4096, 16, 4, 4), (2, 3), 8, (1, 2))) is None  # 256 bytes a row
    last = plan((32, 64, 56, 56), (0, 2, 3), 1, (1,), (64 * 56 * 56, 1, 64 * 56, 64))
    assert forward(last) is backward(last) is None
    small = plan((512, 512, 7, 7), (0, 2, 3), 1, (1,))
    assert forward(small) is backward(small) is None  # its columns lie side by side
    assert cluster_plan.forward(BATCH, 2, False, False, 1024, False) is None  # copies of two bytes
    inner = plan((256, 64, 1024), (1, 2), 1, (2,))  # the scale varies along the inner loop
    assert backward(inner) is None


@given(
    st.integers(1, 300), st.integers(1, 40), st.integers(1, 900), st.sampled_from([1, 2, 4]),
    st.sampled_from([2, 4, 8]), st.sampled_from([400, 5000, 54 << 10]), st.sampled_from([64, 512, 1024]), st.booleans(),
)  # fmt: skip
def test_every_element_has_one_thread(
    rows: int, channels: int, pixels: int, wide: int, itemsize: int, few: int, most: int, grads: bool
) -> None:
    nest = plan((rows, channels, pixels * wide), (1, 2), 1, (1,))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"FULL": 1, "LONG": 0, "SHORT": 0, "FEW": few}.items():
            patch.setattr(cluster_plan, name, value)
        plans = cluster_plan.backward, cluster_plan.forward
        found = plans[0 if grads else 1](nest, itemsize, True, False, most, False)
    if found is None:
        return
    cut, threads = found.cut, found.block[0]
    part, runs, team, packs, turns, together = (int(cut[name]) for name in cut.dtype.names)
    assert found.shared == found.entries * 16 + part * itemsize * (1 + grads) <= cluster_plan.MOST
    assert found.grid == (nest.rows * found.blocks,)
    assert threads % team == team % norm_plan.WARP == 0
    assert -(-turns // together) <= cluster_plan.GROUPS
    seen: Counter[int] = Counter()
    loops = norm_plan.of_statistics(nest)
    run_terms = pixels * wide if found.runs else part
    for rank in range(found.blocks):
        first, end = rank * part, min((rank + 1) * part, loops.terms)
        assert first < end
        for run in range(-(-(end - first) // run_terms)):  # as Part.walk goes
            turn, length = run // (threads // team), min(run_terms, end - first)
            assert turn < turns or not found.runs
            steps = packs if found.runs else packs * turns
            assert team * steps * found.width >= length
            seen.update(first + run * run_terms + at for at in range(0, length, found.width))
    assert set(seen) == set(range(0, loops.terms, found.width))
    assert max(seen.values()) == 1
    assert found.entries == (runs if found.runs else 1) * team // norm_plan.WARP
