"""copying.cu and copying.py: every cast, from any order of memory to any other, repeated, added; against NumPy."""

from __future__ import annotations

import itertools
from typing import Any

import instances
import numpy as np
import pytest
import shim
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minorm.devices import dtypes
from minorm.kernels import cpu
from minorm.kernels.gpu.plans import copy_plan

pytestmark = pytest.mark.skipif(not shim.available, reason="no g++")
ORDERS = [(0, 1, 2, 3), (0, 2, 3, 1), (3, 1, 0, 2), (1, 0, 2, 3)]


@pytest.fixture
def gpu(cuda: Any) -> Any:
    from minorm.kernels.gpu import copying

    instances.compiled(copying._program, needed())
    return copying


def needed() -> list[tuple[Any, ...]]:
    keys: list[tuple[Any, ...]] = []
    for bits in copy_plan.BITS.values():
        full = 16 // bits.itemsize
        keys += [("move", bits, bits, width, False, dtypes.int32) for width in (1, 2, 4, 8, 16) if width <= full]
        for read, write, rows in itertools.product((1, full), (1, full), (16, 64, 256)):
            keys += [("turn", bits, bits, read, write, rows, False, dtypes.int32)]
    for one, other in itertools.product(instances.FLOATS, repeat=2):
        if one != other:
            full = 16 // max(one.itemsize, other.itemsize)
            keys += [("move", one, other, width, False, dtypes.int32) for width in (1, 2, 4) if width <= full]
    for dtype in instances.FLOATS:
        full = 16 // dtype.itemsize
        keys += [("fill", dtype, dtypes.compute_type(dtype), width, dtypes.int32) for width in (1, full)]
        keys += [("move", dtype, dtype, width, True, dtypes.int32) for width in (1, 2, 4, 8) if width <= full]
    return keys


def laid(cuda: Any, x: np.ndarray, order: Any) -> Any:
    """Copy x to the device with its axes, from the outermost to the innermost, in this order."""
    return cuda.array(np.ascontiguousarray(x.transpose(order))).transpose(np.argsort(order).tolist())


def steps(x: Any) -> list[int]:
    """Return the strides, in elements, of the axes with several elements."""
    return [step // x.itemsize for n, step in zip(x.shape, x.strides, strict=True) if n > 1]


@pytest.mark.parametrize("to", instances.FLOATS, ids=str)
@pytest.mark.parametrize("dtype", instances.FLOATS, ids=str)
def test_casts_keep_the_order(dtype: Any, to: Any, gpu: Any, cuda: Any) -> None:
    x = np.random.default_rng(0).standard_normal((2, 5, 3, 8)).astype(dtype)
    x[0, 0, 0, :4] = [0.0, -0.0, np.inf, np.nan]
    cuda.transfers.clear()
    for order in ORDERS:
        there = laid(cuda, x, order)
        y = gpu.cast(there, to)
        instances.close(y, x.astype(to), 0)
        assert steps(y) == steps(there)
    assert not cuda.transfers.launches  # none of CuPy's
    rows = gpu.cast(laid(cuda, x, ORDERS[1]), to, "C")
    instances.close(rows, x.astype(to), 0)
    assert rows.flags.c_contiguous


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=str)
def test_copies_keep_every_bit(dtype: Any, gpu: Any, cuda: Any) -> None:
    """NaNs of all kinds and numbers of all sizes among them."""
    every = np.arange(1 << 16).astype(np.uint16).view(dtype).reshape(16, 64, 64)
    for order in ((0, 1, 2), (0, 2, 1)):
        y = gpu.copy(laid(cuda, every, order), "C")
        np.testing.assert_array_equal(y.memory.view(np.uint16), every.view(np.uint16))


@pytest.mark.parametrize("dtype", [dtypes.bool, dtypes.float16, dtypes.float32, dtypes.float64], ids=str)
@pytest.mark.parametrize(
    "shape",
    [(2, 64, 8, 9), (3, 16, 12, 40), (2, 300, 3, 3), (1, 70, 4, 16), (2, 3, 16, 8), (2, 9, 7, 11), (1, 1, 1, 1)],
)
def test_channels_go_last_and_back_again(shape: Any, dtype: Any, gpu: Any, cuda: Any) -> None:
    x = (np.random.default_rng(1).standard_normal(shape) * 2).astype(dtype)
    rows, last = laid(cuda, x, ORDERS[0]), laid(cuda, x, ORDERS[1])
    for source, order in ((rows, ORDERS[1]), (last, ORDERS[0])):
        for seed in (0, 1):
            shim.State.seed = seed
            to = laid(cuda, np.zeros(shape, dtype), order)
            gpu.assign(to, source)
            np.testing.assert_array_equal(to.memory, x)


@given(data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_array_into_any_other(data: Any, gpu: Any, cuda: Any) -> None:
    """Axes in any order, parts of larger arrays, steps, repeated axes, up to seven axes, other types."""
    rank = data.draw(st.integers(1, 7), label="axes")
    shape = tuple(data.draw(st.lists(st.sampled_from([1, 2, 3, 4, 8]), min_size=rank, max_size=rank), label="shape"))
    dtype, to = (data.draw(st.sampled_from(instances.FLOATS)) for _ in range(2))

    def array(kind: Any, label: str) -> Any:
        order = data.draw(st.permutations(range(rank)), label=f"order of {label}")
        apart = data.draw(st.lists(st.sampled_from([1, 1, 1, 2]), min_size=rank, max_size=rank), label=label)
        room = [n * step + data.draw(st.sampled_from([0, 0, 3])) for n, step in zip(shape, apart, strict=True)]
        values = np.random.default_rng(rank).standard_normal(room).astype(kind)
        index = tuple(slice(0, n * step, step) for n, step in zip(shape, apart, strict=True))
        return laid(cuda, values, order)[index]

    x, y = array(dtype, "x"), array(to, "y")
    kept = data.draw(st.lists(st.booleans(), min_size=rank, max_size=rank), label="kept axes")
    short = x[tuple(slice(None) if keep else slice(0, 1) for keep in kept)]
    before, source = y.memory.copy(), short.memory.copy()
    gpu.assign(y, short)
    np.testing.assert_array_equal(y.memory, np.broadcast_to(source, shape).astype(to))
    if dtype == to:
        added = laid(cuda, before, range(rank))
        if gpu.accumulate(added, x):
            wide = dtypes.compute_type(dtype)
            instances.close(added, (before.astype(wide) + x.memory.astype(wide)).astype(dtype), 0)
        else:
            np.testing.assert_array_equal(added.memory, before)


def test_filling(gpu: Any, cuda: Any) -> None:
    for dtype in instances.FLOATS:
        x = gpu.full((3, 11), 0.7, dtype)
        np.testing.assert_array_equal(x.memory, np.full((3, 11), 0.7, dtype))
        gpu.fill(x[1], -2)
        np.testing.assert_array_equal(x.memory[1], np.full(11, -2, dtype))
        gpu.fill(x[:, 1:], 3)
        assert (x.memory[:, 1:] == 3).all()
        assert (x.memory[:, 0] != 3).all()
        assert gpu.full((), 5, dtype).memory == 5
    last = laid(cuda, np.zeros((2, 3, 4, 5), np.float32), ORDERS[1])
    ones = gpu.full_like(last, 1)
    assert (ones.memory == 1).all()
    assert ones.strides == last.strides
    cuda.transfers.clear()
    gpu.fill(last, 0.25)
    assert (last.memory == 0.25).all()
    assert not cuda.transfers.launches
    np.testing.assert_array_equal(gpu.full((2, 0), 1.0, dtypes.float32).memory, np.ones((2, 0)))
    np.testing.assert_array_equal(gpu.full((2,), 3, dtypes.int64).memory, [3, 3])


@pytest.mark.parametrize("order", ORDERS[:2], ids=["rows", "channels last"])
def test_joining_and_padding_keep_the_order(order: Any, gpu: Any, cuda: Any) -> None:
    rng = np.random.default_rng(2)
    parts = [rng.standard_normal((2, channels, 3, 4)).astype(np.float32) for channels in (4, 1, 7)]
    there = [laid(cuda, part, order) for part in parts]
    joined, grown = gpu.concatenate(there, 1), gpu.pad(there[0], [(0, 0), (0, 1), (2, 0), (1, 3)], 0.5)
    np.testing.assert_array_equal(joined.memory, np.concatenate(parts, 1))
    wide = np.pad(parts[0], [(0, 0), (0, 1), (2, 0), (1, 3)], constant_values=0.5)
    np.testing.assert_array_equal(grown.memory, wide)
    for found, expected in ((joined, np.concatenate(parts, 1)), (grown, wide)):
        assert steps(found) == steps(laid(cuda, expected, order))
        assert found.base is None  # as a gradient it is not copied again
    mixed = gpu.concatenate([there[0], cuda.array(np.arange(24).reshape(2, 1, 3, 4))], 1)
    np.testing.assert_array_equal(mixed.memory[:, 4:], np.arange(24).reshape(2, 1, 3, 4))


def test_what_the_kernels_do_not_cover(gpu: Any, cuda: Any) -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    there = cuda.array(x)
    np.testing.assert_array_equal(gpu.cast(there, dtypes.int64).memory, x.astype(np.int64))
    np.testing.assert_array_equal(gpu.copy(there[::-1]).memory, x[::-1])
    gpu.assign(there, there.transpose(0, 1, 2)[::-1])  # its own elements, in another order
    np.testing.assert_array_equal(there.memory, x[::-1])
    with pytest.raises(ValueError, match="must match exactly"):
        gpu.concatenate([there, there[:, :, :1]], 1)
    spread = cuda.broadcast_to(there[:1], (2, 3, 4))
    assert gpu.pad(spread, [(0, 0), (1, 0), (0, 0)], 0).flags.c_contiguous
    assert gpu.copy(spread).flags.c_contiguous
    with pytest.raises(ValueError, match="broadcast"):
        gpu.assign(there, cuda.array(np.zeros(5, np.float32)))
    np.testing.assert_array_equal(there.memory, x[::-1])


def test_a_broken_kernel_is_found(cuda: Any) -> None:
    from minorm.kernels.gpu.plans.structs import Struct
    from minorm.kernels.gpu.source import expression, source

    text = source("copying.cu")
    name = expression("turn", dtypes.uint32, dtypes.uint32, 4, 4, 64, False, dtypes.int32)
    broken = text.replace("__syncthreads();", "")
    assert broken != text
    plan = copy_plan.plan((1, 64, 64), (4096, 1, 64), (4096, 64, 1), (4, 4), 16)
    assert plan is not None
    assert plan.turned
    x = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    found = []
    for code in (broken, text):  # in this order: shared memory keeps what a kernel of this name has left there
        kernel = shim.Module(
            code=code, options=("-std=c++17", "-default-device"), name_expressions=[name]
        ).get_function(name)
        y = cuda.array(np.zeros((64, 64), np.float32))
        kernel(plan.grid, (256,), (Struct(plan.axes), *map(np.int32, plan.sizes), cuda.array(x), y))
        found.append(bool((y.memory == x.T).all()))
    assert found == [False, True]


def test_long_indices(cuda: Any, monkeypatch: Any) -> None:
    from minorm.kernels.gpu import copying, launch

    monkeypatch.setattr(launch, "index_type", lambda size: dtypes.int64)
    x = np.random.default_rng(0).standard_normal((2, 9, 3, 5)).astype(np.float32)
    copy_plan.plan.cache_clear()
    instances.forget_launches()
    try:
        np.testing.assert_array_equal(copying.copy(laid(cuda, x, ORDERS[1]), "C").memory, x)
        np.testing.assert_array_equal(copying.cast(cuda.array(x), dtypes.float16).memory, x.astype(np.float16))
        assert (copying.full((5,), 2, dtypes.float32).memory == 2).all()
    finally:
        copy_plan.plan.cache_clear()
        instances.forget_launches()


def test_the_plan_of_images() -> None:
    rows, last = (200704, 3136, 56, 1), (200704, 1, 3584, 64)
    plan = copy_plan.plan((2, 64, 56, 56), last, rows, (2, 2), 16)
    assert plan is not None
    assert (plan.turned, plan.widths, plan.rows, plan.grid) == (True, (8, 8), 64, (2 * 49,))
    same = copy_plan.plan((2, 64, 56, 56), last, last, (2, 4), 16)
    assert same is not None
    assert (same.turned, same.widths, same.whole, same.grid) == (False, (4,), True, (2 * 64 * 3136 // 4 // 256,))
    odd = copy_plan.plan((2, 12), (12, 1), (12, 1), (4, 2), 2)
    assert odd is not None
    assert (odd.widths, odd.whole) == ((1,), False)
    half = copy_plan.plan((2, 12, 56, 56), (3136 * 28, 1, 56 * 28, 28), (3136 * 12, 1, 56 * 12, 12), (2, 2), 8)
    assert half is not None  # of what is put beside others
    assert (half.turned, half.widths, half.whole) == (False, (4,), True)
    expanded = copy_plan.plan((2, 64, 56, 56), rows, (64, 1, 0, 0), (4, 4), 16)
    assert expanded is not None
    assert (expanded.turned, expanded.widths, expanded.whole) == (False, (4,), False)


def test_the_same_names_as_on_the_cpu(gpu: Any) -> None:
    assert sorted(gpu.__all__) == sorted(cpu.copying.__all__)


@given(data=st.data())
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_reshape_is_a_view_where_numpys_is_one(data: Any, gpu: Any, cuda: Any) -> None:
    shape = data.draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=4))
    order = data.draw(st.permutations(range(len(shape))))
    ahead = np.arange(int(np.prod(shape)) * 2).reshape(*[shape[axis] for axis in order], 2)
    x = ahead[..., 0].transpose(np.argsort(order)) if data.draw(st.booleans()) else ahead[..., 0].copy()
    numbers = [2] * sum(n == 2 for n in shape) + [2, 2] * sum(n == 4 for n in shape) + [3] * sum(n == 3 for n in shape)
    new: list[int] = []
    for number in data.draw(st.permutations(numbers)):
        if new and data.draw(st.booleans()):
            new[-1] *= number
        else:
            new.append(number)
    wanted = tuple(new) or (1,)
    assert gpu._is_view(x.shape, x.strides, wanted) == np.shares_memory(x, x.reshape(wanted))
    assert gpu._is_view(x.shape, x.strides, (*wanted[1:], -1)) == np.shares_memory(x, x.reshape((*wanted[1:], -1)))


def test_a_reshape_that_is_no_view_is_one_launch(gpu: Any, cuda: Any) -> None:
    x = np.random.default_rng(0).standard_normal((2, 5, 3, 8)).astype(np.float32)
    there = cuda.array(x).transpose(0, 2, 1, 3)
    cuda.transfers.clear()
    before = shim.State.launches
    np.testing.assert_array_equal(gpu.reshaped(there, (6, 40)).memory, x.transpose(0, 2, 1, 3).reshape(6, 40))
    assert shim.State.launches - before == 1
    assert gpu.reshaped(cuda.array(x), (10, -1)).base is not None
    assert not cuda.transfers.launches
    with pytest.raises(ValueError, match="reshape"):
        gpu.reshaped(there, (7, 40))
