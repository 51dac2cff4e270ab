"""The pool of buffers: NumPy's semantics, reuse, alignment, lifetime, threads, fork, bounds."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minorm.kernels.cpu import memory

MB = 1 << 20


@pytest.fixture
def pool():
    """Empty the pool and give it room for the test's memory; restore its limit afterwards."""
    limit = memory.statistics()["limit_bytes"]
    gc.collect()
    memory.empty_cache()
    memory.set_limit(max(limit, 256 * MB))
    yield memory
    memory.set_limit(limit)


def is_pooled(array):
    return type(array.base).__name__ == "Block"


@pytest.mark.parametrize("dtype", [np.float32, "float64", np.dtype(np.float16), ml_dtypes.bfloat16, np.int8, bool])
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 5), (7,), (64, 64), (8, 16, 32, 32)])
def test_empty_is_numpys(shape, dtype):
    x = memory.empty(shape, dtype)
    y = np.empty(shape, dtype)
    assert (x.shape, x.dtype, x.strides) == (y.shape, y.dtype, y.strides)
    assert x.flags.c_contiguous
    assert x.flags.writeable
    assert x.flags.aligned
    x[...] = 1
    assert (x == 1).all()


def test_a_length_or_a_list_is_a_shape():
    assert memory.empty(5000, np.float32).shape == (5000,)
    assert memory.empty([50, 100], np.float32).shape == (50, 100)


def test_small_arrays_are_left_to_numpy():
    assert not is_pooled(memory.empty((1023,), np.float32))
    assert is_pooled(memory.empty((1024,), np.float32))


@given(st.integers(1, 1 << 23))
def test_alignment_and_waste(size):
    memory.empty_cache()
    x = memory.empty((size,), np.uint8)
    if size < 4096:
        return
    room = memoryview(x.base).nbytes
    assert size <= room < size + 4096 + 512
    assert x.ctypes.data % 64 == 0
    x[0] = x[-1] = 1


def test_memory_is_reused(pool):
    x = pool.empty((100, 100), np.float32)
    place = x.ctypes.data
    fresh = pool.statistics()["fresh"]
    del x
    for shape in ((100, 100), (10, 1000), (9999,)):
        y = pool.empty(shape, np.float32)
        assert y.ctypes.data == place
        del y
    assert pool.statistics()["fresh"] == fresh


def test_the_smallest_idle_memory_that_is_large_enough_is_reused(pool):
    page = 4096
    held = [pool.empty((size * page,), np.uint8) for size in (8, 1, 4, 1, 6, 1)]
    places = [x.ctypes.data for x in held]
    del held[4], held[2], held[0]  # 8, 4 and 6 pages are idle, and between them some in use
    fresh = pool.statistics()["fresh"]
    x = pool.empty((5 * page,), np.uint8)
    y = pool.empty((4 * page,), np.uint8)
    z = pool.empty((7 * page,), np.uint8)
    assert [a.ctypes.data for a in (x, y, z)] == [places[4], places[2], places[0]]
    rest = pool.empty((page,), np.uint8)  # what x or z left
    assert rest.ctypes.data in (places[4] + 5 * page, places[0] + 7 * page)
    assert pool.statistics()["fresh"] == fresh


@given(st.permutations(range(6)))
def test_idle_neighbours_join(order):
    memory.empty_cache()
    held = {i: memory.empty((MB,), np.uint8) for i in range(6)}
    place = min(x.ctypes.data for x in held.values())
    fresh = memory.statistics()["fresh"]
    for i in order:
        del held[i]
    x = memory.empty((6 * MB,), np.uint8)
    assert x.ctypes.data == place
    assert memory.statistics()["fresh"] == fresh


def test_a_training_step_holds_little_more_than_it_uses(pool):
    """As in a network: activations that halve from stage to stage, then gradients of the same sizes in reverse."""
    used = pool.statistics()["used_bytes"]
    for _ in range(3):
        activations = [pool.empty((8 * MB >> layer // 3,), np.uint8) for layer in range(12)]  # 45 MB
        gradient = None
        while activations:
            size = activations[-1].nbytes
            pool.empty((size // 3,), np.uint8)  # scratch memory, idle at once
            gradient = pool.empty((size,), np.uint8)
            activations.pop()
        del gradient
    after = pool.statistics()
    assert after["idle_bytes"] + after["used_bytes"] - used <= 48 * MB


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 60000)), max_size=120), st.sampled_from([0, 1 << 16, 1 << 40])
)
def test_any_order_of_requests_and_deaths(turns, limit):
    """Chunks never overlap, the counts are true, and at the end everything is one piece again."""
    before = memory.statistics()["limit_bytes"]
    used = memory.statistics()["used_bytes"]
    memory.empty_cache()
    memory.set_limit(limit)
    held: dict[int, np.ndarray] = {}
    try:
        for key, size in turns:
            if held.pop(key, None) is None:
                held[key] = memory.empty((size,), np.int64)
                held[key][...] = key
            assert all((x == k).all() for k, x in held.items())
            now = memory.statistics()
            assert 0 <= now["idle_bytes"] <= limit
            assert now["used_bytes"] - used == sum(memoryview(x.base).nbytes for x in held.values() if is_pooled(x))
        held.clear()
        assert memory.statistics()["used_bytes"] == used
        memory.empty_cache()
        assert memory.statistics()["idle_bytes"] == 0
    finally:
        memory.set_limit(before)


def test_arrays_alive_at_once_do_not_overlap(pool):
    arrays = [pool.empty((2000,), np.int64) for _ in range(50)]
    for i, x in enumerate(arrays):
        x[...] = i
    assert all((x == i).all() for i, x in enumerate(arrays))


@pytest.mark.parametrize(
    "view_of",
    [
        lambda x: x[5:10],
        lambda x: x.T,
        lambda x: x.reshape(-1)[::2],
        lambda x: x.view(np.int32),
        memoryview,
        np.from_dlpack,
        lambda x: np.lib.stride_tricks.as_strided(x, (3,), (4,)),
    ],
)
def test_a_view_keeps_the_memory(pool, view_of):
    x = pool.empty((64, 64), np.float32)
    x[...] = 7
    used = pool.statistics()["used_bytes"]
    view = view_of(x)
    before = np.asarray(view).copy()
    del x
    gc.collect()
    assert pool.statistics()["used_bytes"] == used
    for _ in range(3):
        pool.empty((64, 64), np.float32)[...] = -1
    np.testing.assert_array_equal(np.asarray(view), before)
    del view, before
    gc.collect()
    assert pool.statistics()["used_bytes"] < used


@given(
    st.permutations(range(4)),
    st.lists(st.sampled_from([slice(None), slice(None, None, -1), slice(1, None), slice(None, None, 2)]), max_size=4),
    st.lists(st.booleans(), min_size=4, max_size=4),
)
def test_empty_like_keeps_the_order_of_axes(order, slices, stretched):
    x = np.zeros((6, 12, 10, 14), np.float32)[tuple(slices)]
    x = np.broadcast_to(x[tuple(slice(0, 1) if s else slice(None) for s in stretched)], x.shape).transpose(order)
    like = memory.empty_like(x)
    assert like.shape == x.shape
    assert like.dtype == x.dtype
    assert like.strides == np.empty_like(x).strides


def test_statistics_and_empty_cache(pool):
    before = pool.statistics()
    x = pool.empty((3 * MB,), np.uint8)
    assert pool.statistics()["used_bytes"] == before["used_bytes"] + 3 * MB
    assert pool.statistics()["peak_bytes"] >= before["used_bytes"] + 3 * MB
    del x
    after = pool.statistics()
    assert after["used_bytes"] == before["used_bytes"]
    assert after["idle_bytes"] == 3 * MB
    pool.empty_cache()
    assert pool.statistics()["idle_bytes"] == 0


def test_idle_memory_is_bounded(pool):
    pool.set_limit(10 * MB)
    arrays = [pool.empty((4 * MB,), np.uint8) for _ in range(5)]
    arrays[:] = []
    assert pool.statistics()["idle_bytes"] == 10 * MB
    x = pool.empty((20 * MB,), np.uint8)
    idle = pool.statistics()["idle_bytes"]
    del x  # larger than the limit: given back at once, and what lay idle stays
    assert pool.statistics()["idle_bytes"] == idle
    with pytest.raises(ValueError, match="set_limit"):
        pool.set_limit(-1)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_what_is_given_back_takes_no_memory(pool):
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    kept = pool.empty((MB,), np.uint8)  # in the same region
    kept[...] = 7
    before = resident()
    x = pool.empty((64 * MB,), np.uint8)
    x[...] = 1
    last = pool.empty((MB,), np.uint8)
    last[...] = 7
    del x
    assert resident() >= before + 60 * MB
    pool.set_limit(16 * MB)
    assert pool.statistics()["idle_bytes"] == 16 * MB
    assert resident() <= before + 24 * MB
    pool.empty_cache()
    assert resident() <= before + 8 * MB
    assert (kept == 7).all()
    assert (last == 7).all()


def test_freed_in_other_threads(pool):
    used = pool.statistics()["used_bytes"]
    failures = []

    def work(seed):
        rng = np.random.default_rng(seed)
        kept = []
        for turn in range(400):
            value = seed * 1000 + turn
            x = pool.empty((int(rng.integers(1000, 40000)),), np.int64)
            x[...] = value
            kept.append((x, value))
            handed.append(x[:10])  # dies wherever the other threads drop it
            if len(kept) > 10:
                x, value = kept.pop(int(rng.integers(len(kept))))
                if not (x == value).all():
                    failures.append((seed, turn))
            if len(handed) > 20:
                del handed[: int(rng.integers(10))]

    handed: list[np.ndarray] = []
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    handed.clear()
    gc.collect()
    assert pool.statistics()["used_bytes"] == used


def test_a_forked_child_has_a_pool_of_its_own(pool):
    x = pool.empty((MB,), np.uint8)
    x[...] = 1
    del x
    child = os.fork()
    if child == 0:
        y = pool.empty((MB,), np.uint8)
        y[...] = 2
        z = pool.empty((3 * MB,), np.uint8)
        z[...] = 3
        os._exit(0 if (y == 2).all() and (z == 3).all() else 1)
    y = pool.empty((MB,), np.uint8)
    y[...] = 4
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (y == 4).all()


def test_impossible_sizes_are_errors():
    with pytest.raises(ValueError):
        memory.empty((-1, 5), np.float32)
    with pytest.raises((MemoryError, ValueError)):
        memory.empty((1 << 40, 1 << 40), np.float32)
    with pytest.raises(TypeError):
        memory.empty((2, 2), "no such type")


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS")
def test_exhausted_memory_is_a_memory_error_and_the_cache_goes_first():
    program = """
import resource
import numpy as np
from minorm.kernels.cpu import memory
memory.set_limit(1 << 40)
in_use = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (in_use + (200 << 20),) * 2)
x = memory.empty((120 << 20,), np.uint8)
try:
    memory.empty((120 << 20,), np.uint8)
except MemoryError as error:
    assert "125,829,120" in str(error), error
else:
    raise SystemExit("no MemoryError")
del x
assert memory.statistics()["idle_bytes"] == 120 << 20
y = memory.empty((150 << 20,), np.uint8)  # fits only when the idle memory has gone
y[::4096] = 1
assert memory.statistics()["idle_bytes"] == 0
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
