"""The pool of buffers: NumPy's semantics, reuse, alignment, lifetime, threads, fork, bounds."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minorm.kernels.cpu import memory

MB = 1 << 20


@pytest.fixture
def pool():
    """An emptied pool with room for what the test leaves; its limit is put back."""
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
    assert size <= room <= size * 9 / 8 + 64
    assert x.ctypes.data % 64 == 0
    if size >= 2 * MB:
        assert x.ctypes.data % (2 * MB) == 0  # a whole huge page
    x[0] = x[-1] = 1


def test_memory_is_reused(pool):
    x = pool.empty((100, 100), np.float32)
    place = x.ctypes.data
    fresh = pool.statistics()["fresh"]
    del x
    for shape in ((100, 100), (10, 1000), (9999,)):  # the same size class
        y = pool.empty(shape, np.float32)
        assert y.ctypes.data == place
        del y
    assert pool.statistics()["fresh"] == fresh


def test_idle_memory_of_up_to_twice_the_size_is_reused(pool):
    page = 4096
    held = [pool.empty((size,), np.uint8) for size in (4 * page, 8 * page, 9 * page)]
    places = [x.ctypes.data for x in held]
    del held
    fresh = pool.statistics()["fresh"]
    x = pool.empty((4 * page,), np.uint8)  # its own size first
    y = pool.empty((4 * page,), np.uint8)
    assert [x.ctypes.data, y.ctypes.data] == places[:2]
    assert pool.statistics()["fresh"] == fresh
    z = pool.empty((4 * page,), np.uint8)  # what is larger still waits for a larger one
    assert pool.statistics()["fresh"] == fresh + 1
    assert pool.empty((9 * page,), np.uint8).ctypes.data == places[2]
    assert [memoryview(a.base).nbytes for a in (x, y, z)] == [4 * page, 8 * page, 4 * page]


def test_scratch_borrows_idle_memory_of_any_size(pool):
    large = pool.empty((1 << 20,), np.float32)
    place = large.ctypes.data
    del large
    fresh = pool.statistics()["fresh"]
    scratch = pool.scratch((5000,), np.float32)
    assert (scratch.shape, scratch.dtype, scratch.ctypes.data) == ((5000,), np.float32, place)
    del scratch
    assert pool.empty((1 << 20,), np.float32).ctypes.data == place
    assert pool.statistics()["fresh"] == fresh


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
    del arrays
    assert pool.statistics()["idle_bytes"] == 8 * MB
    x = pool.empty((20 * MB,), np.uint8)
    del x  # larger than the limit: given back at once, and what lay idle stays
    assert pool.statistics()["idle_bytes"] == 8 * MB
    y = pool.empty((5 * MB,), np.uint8)
    del y  # the longest idle go first
    assert pool.statistics()["idle_bytes"] == 9 * MB
    with pytest.raises(ValueError, match="set_limit"):
        pool.set_limit(-1)


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
