"""Clusters on the double and the shim: what a kernel must do there, as on a device, and what launches are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import shim
from cupy_cuda import Device

from minorm.kernels.gpu.source import source

pytestmark = pytest.mark.skipif(not shim.available, reason="no g++")

BARRIER = "cluster_arrive(); cluster_wait();"
NEIGHBOUR = (  # every block gives its neighbour's number, which it reads from the neighbour's memory
    source("cluster.cuh")
    + """
template <int BLOCKS> __global__ void __cluster_dims__(BLOCKS, 1, 1) neighbour(double* out) {
    __shared__ double own;
    double* const more = reinterpret_cast<double*>(dynamic_shared());
    if (threadIdx.x == 0) own = blockIdx.x, more[1] = blockIdx.x + 0.5;
    BARRIER
    const int other = (cluster_rank() + 1) % BLOCKS;
    const double found = of_block(own, other) + of_block(more[1], other);
    BARRIER
    out[blockIdx.x * 2 + threadIdx.x] = found;
}
template <int BYTES> __global__ void copied(const char* from, char* to) {
    char* const kept = dynamic_shared() + threadIdx.x * BYTES;
    copy_async<BYTES>(kept, from + threadIdx.x * BYTES);
    end_copies();
    WAIT
    for (int i = 0; i < BYTES; i++) to[threadIdx.x * BYTES + i] = kept[i];
}
"""
)


def neighbours(blocks: int, first: str = BARRIER, second: str = BARRIER, seed: int = 0, text: str = NEIGHBOUR) -> Any:
    name = f"neighbour<{blocks}>"
    code = text.replace("BARRIER", first, 1).replace("BARRIER", second, 1).replace("WAIT", "")
    kernel = shim.Module(code=code, options=("-std=c++17", "-default-device"), name_expressions=[name]).get_function(
        name
    )
    out = np.zeros((3 * blocks, 2))
    shim.State.seed = seed
    try:
        kernel((3 * blocks,), (2,), (out,), shared_mem=16)
    finally:
        shim.State.seed = 0
    return out


def expected(blocks: int) -> Any:
    number = np.arange(3 * blocks)
    other = number // blocks * blocks + (number + 1) % blocks
    return np.repeat(2.0 * other + 0.5, 2).reshape(-1, 2)


@pytest.mark.parametrize("blocks", [1, 2, 4, 8])
@pytest.mark.parametrize("seed", range(3))
def test_blocks_read_each_others_memory(blocks: int, seed: int) -> None:
    np.testing.assert_array_equal(neighbours(blocks, seed=seed), expected(blocks))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("missing", ["first", "second"])
def test_without_a_barrier_a_block_reads_what_is_not_there(missing: str, seed: int) -> None:
    """Before the first barrier it has not been written; after the last one the other block may have ended."""
    found = neighbours(4, seed=seed, **{missing: ""})
    assert np.isnan(found).any()


def test_halves_of_a_barrier_come_in_turn() -> None:
    with pytest.raises(shim.KernelError, match="without arriving"):
        neighbours(2, first="cluster_wait();")
    with pytest.raises(shim.KernelError, match="for which it must wait"):
        neighbours(2, first="cluster_arrive(); cluster_arrive(); cluster_wait();")


def test_a_block_outside_of_the_cluster_is_refused() -> None:
    with pytest.raises(shim.KernelError, match="no such block"):
        neighbours(2, text=NEIGHBOUR.replace("% BLOCKS", "+ BLOCKS"))


def test_memory_that_is_not_shared_is_refused() -> None:
    with pytest.raises(shim.KernelError, match="not shared memory"):
        neighbours(2, text=NEIGHBOUR.replace("__shared__ double own", "double own"))


def test_a_kernel_without_cluster_dims_has_clusters_of_one_block() -> None:
    with pytest.raises(shim.KernelError, match="no such block"):
        neighbours(2, text=NEIGHBOUR.replace("__cluster_dims__(BLOCKS, 1, 1)", ""))


def test_launches_that_the_driver_refuses() -> None:
    name = "neighbour<4>"
    code = NEIGHBOUR.replace("BARRIER", BARRIER).replace("WAIT", "")
    kernel = shim.Module(code=code, options=("-std=c++17", "-default-device"), name_expressions=[name]).get_function(
        name
    )
    out = np.zeros((8, 2))
    with pytest.raises(shim.KernelError, match="INVALID_CLUSTER_SIZE"):
        kernel((6,), (2,), (out,), shared_mem=16)
    with pytest.raises(shim.KernelError, match="max_dynamic_shared_size_bytes is 49152"):
        kernel((8,), (2,), (out,), shared_mem=50000)
    with pytest.raises(shim.KernelError, match="INVALID_VALUE"):
        kernel.max_dynamic_shared_size_bytes = 1 << 18
    kernel.max_dynamic_shared_size_bytes = 50000
    kernel((8,), (2,), (out,), shared_mem=50000)
    with Device(1), pytest.raises(shim.KernelError, match="max_dynamic_shared_size_bytes is 49152"):  # each asks anew
        kernel((8,), (2,), (out,), shared_mem=50000)


@pytest.mark.parametrize("size", [4, 8, 16])
@pytest.mark.parametrize("later", [None, 1, 0])
def test_a_copy_arrives_when_it_is_waited_for(size: int, later: int | None) -> None:
    name = f"copied<{size}>"
    wait = "" if later is None else f"wait_for_copies({later});"
    code = NEIGHBOUR.replace("BARRIER", BARRIER).replace("WAIT", wait)
    kernel = shim.Module(code=code, options=("-std=c++17", "-default-device"), name_expressions=[name]).get_function(
        name
    )
    given, found = np.arange(8 * size, dtype=np.uint8), np.zeros(8 * size, np.uint8)
    kernel((1,), (8,), (given, found), shared_mem=8 * size)
    np.testing.assert_array_equal(found, given if later == 0 else np.full_like(given, 255))
