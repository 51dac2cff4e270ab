"""pool.cu and pool.py: windows that overlap, leave gaps, hang over the end; every type and order of memory."""

from __future__ import annotations

from typing import Any

import instances
import numpy as np
import pytest
import shim
from hypothesis import given, settings
from hypothesis import strategies as st

import minorm as mn
from minorm.devices import dtypes
from minorm.kernels import reference
from minorm.kernels.gpu.plans import pool_plan

pytestmark = pytest.mark.skipif(not shim.available, reason="no g++")
TWO, THREE, ONE = ((2, 2), (2, 2), ((0, 0),) * 2), ((3, 3), (2, 2), ((1, 1),) * 2), ((3, 3), (1, 1), ((1, 1),) * 2)
CASES = [  # x, kernel, stride, padding, dilation, ceil_mode
    ((2, 3, 9), (2,), (2,), ((0, 0),), (1,), False),
    ((2, 1, 9), (3,), (2,), ((1, 1),), (2,), True),
    ((2, 2, 7, 10), (3, 3), (2, 2), ((1, 1), (1, 1)), (1, 1), True),
    ((2, 2, 7, 10), (3, 2), (1, 3), ((1, 0), (0, 1)), (2, 1), True),
    ((3, 2, 7, 7), (7, 7), (7, 7), ((0, 0), (0, 0)), (1, 1), False),
    ((1, 2, 5, 6, 7), (2, 3, 2), (2, 1, 2), ((1, 0), (1, 1), (0, 0)), (1, 2, 1), True),
    ((1, 1, 1, 3), (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), False),
    ((1, 1, 1, 1), (1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), False),
    ((1, 1, 7), (2,), (4,), ((0, 0),), (3,), False),
    ((2, 8, 5, 16), *TWO, (1, 1), False),  # whole accesses of columns, and of channels
    ((1, 16, 6, 32), *THREE, (1, 1), False),
    ((1, 4, 5, 16), *THREE, (1, 1), True),
    ((1, 8, 3, 8), *ONE, (1, 1), False),
    ((2, 8, 1, 16), *ONE, (1, 1), True),
    ((1, 2, 4, 12), *ONE[:2], ((1, 0), (1, 0)), (1, 1), False),
    ((2, 8, 4, 6), (4, 6), (4, 6), ((0, 0), (0, 0)), (1, 1), False),
    ((1, 3, 2, 2), *THREE, (1, 1), True),  # an access of columns that are not there
]

OF_TYPE = {
    "float32": range(len(CASES)),
    "bfloat16": (3, 4, 9, 10, 12, 15),
    "float16": (4, 5, 10),
    "float64": (4, 5, 10),
}
TYPED = [(CASES[number], dtype) for dtype in instances.FLOATS for number in OF_TYPE[dtype.name]]
WHOLE = [case for case in CASES if case[0][2:] == case[1] and case[3] == ((0, 0),) * 2]  # added up by sums.cu


def last(cuda: Any, x: Any) -> Any:
    """x on the device, its channels last in memory."""
    return cuda.array(np.ascontiguousarray(np.moveaxis(x, 1, -1))).transpose(0, x.ndim - 1, *range(1, x.ndim - 1))


@pytest.fixture
def gpu(cuda: Any) -> Any:
    from minorm.kernels.gpu import pool, sums

    def run() -> None:
        for case, dtype in TYPED:
            for store in (cuda.array, lambda x: last(cuda, x)):
                everything(pool, store, np.ones(case[0], dtype), case[1:])

    def forget() -> None:
        for program in (pool._program, sums._program):
            for key in [
                key for key, kernel in program._kernels.items() if getattr(kernel, "__name__", "") == "<lambda>"
            ]:
                del program._kernels[key]

    if not any(key[0] == "spread" for key in pool._program._kernels):
        instances.compiled_for(run, forget)
    return pool


def everything(pool: Any, store: Any, x: Any, case: Any) -> list[Any]:
    """Return the results of all functions of a backend."""
    there = store(x)
    last = reference.pool.has_channels_last(there)
    y, places = pool.max_forward(there, *case)
    dy = store(np.random.default_rng(2).standard_normal(y.shape).astype(x.dtype))
    found = [y, places, *[pool.max_backward(dy, places, x.shape, how, last) for how in (case[:4], None)]]
    for how in [(True, None), (False, None), (True, 5)]:
        found.append(pool.avg_forward(there, *case, *how))
        found.append(pool.avg_backward(dy, x.shape, *case[:4], *how, last))
    return found


def compare(gpu: Any, store: Any, case: Any, dtype: Any) -> list[Any]:
    x = np.random.default_rng(1).integers(-4, 5, case[0]).astype(dtype)  # with many equal elements
    expected, found = everything(reference.pool, np.array, x, case[1:]), everything(gpu, store, x, case[1:])
    assert [y.dtype for y in found] == [dtype, np.int32, *[dtype] * 8]
    small = 2e-6 if dtype != dtypes.float64 else 1e-14
    np.testing.assert_array_equal(found[1].memory, expected[1])
    instances.close(found[0], expected[0], 0)
    for actual, wanted in zip(found[2:], expected[2:], strict=True):
        instances.close(actual, wanted, 1, small)
    return found


@pytest.mark.parametrize(("case", "dtype"), TYPED, ids=str)
def test_all_of_pooling(case: Any, dtype: Any, gpu: Any, cuda: Any) -> None:
    rows = compare(gpu, cuda.array, case, dtype)
    channels = compare(gpu, lambda x: last(cuda, x), case, dtype)
    assert cuda.transfers.to_host == 0
    assert cuda.transfers.atomics == 0
    for one, other in zip(rows, channels, strict=True):  # every sum in one order, whatever the order of memory
        assert one.flags.c_contiguous
        assert other.transpose(0, *range(2, other.ndim), 1).flags.c_contiguous
        assert one.memory.tobytes() == other.memory.tobytes() or case in WHOLE


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([TWO, THREE, ONE]), st.integers(1, 2), st.sampled_from([1, 2, 3, 4, 8]), st.integers(1, 9),
    st.sampled_from([1, 2, 3, 4, 7, 8, 12, 16, 24]), st.booleans(), st.booleans(),
)  # fmt: skip
def test_known_windows_on_any_size(how: Any, n: int, c: int, h: int, w: int, ceil: bool, is_last: bool) -> None:
    if min(reference.pool.output_shape((h, w), *how, (1, 1), ceil)) < 1:
        return
    import cupy_functions

    with cupy_functions.installed() as cupy:
        from minorm.kernels.gpu import pool

        store = (lambda x: last(cupy, x)) if is_last else cupy.array
        compare(pool, store, ((n, c, h, w), *how, (1, 1), ceil), np.dtype(np.float32))


def test_a_thread_has_sixteen_bytes_of_columns_or_channels(gpu: Any, cuda: Any) -> None:
    """The targets rest on this: the usual windows never fall back to one thread an element."""
    for dtype, width in ((dtypes.float32, 4), (dtypes.bfloat16, 8)):
        for how in (TWO, THREE, ONE):
            for side in (112, 56):
                out = reference.pool.output_shape((side, side), *how, (1, 1), False)
                sizes = (side, side), out, (*how, (1, 1))
                for way, last in (("forward", "forward"), ("backward", "backward_groups")):
                    rows = pool_plan.plan(*sizes, 1, dtype.itemsize, True, way == "backward")
                    assert rows.kernel == f"{way}_columns"
                    assert rows.options[0] == width or out[1] % width
                    channels = pool_plan.plan(*sizes, 64, dtype.itemsize, True, way == "backward")
                    assert (channels.kernel, channels.options) == (last, (width, *rows.options[1:]))


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 2**31 - 1), st.integers(0, 2**31 - 1))
def test_a_division_is_a_product(by: int, n: int) -> None:
    same, factor, shift = pool_plan.divider(by)
    assert same == by
    assert factor < 2**32
    for number in (n, n // by * by, max(0, n // by * by - 1), 2**31 - 1):
        assert (number * factor >> 32) + number < 2**32
        assert ((number * factor >> 32) + number) >> shift == number // by


@pytest.mark.parametrize("is_last", [False, True])
def test_nan_is_the_largest_and_minus_infinity_has_a_place(is_last: bool, gpu: Any, cuda: Any) -> None:
    x = np.array([[[[1, np.nan, 2, 3], [5, 4, -np.inf, -np.inf]], [[-np.inf] * 4, [-np.inf] * 4]]], np.float32)
    there = last(cuda, x) if is_last else cuda.array(x)
    y, indices = gpu.max_forward(there, (2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1), False)
    np.testing.assert_array_equal(y.memory, [[[[np.nan, 3]], [[-np.inf, -np.inf]]]])
    np.testing.assert_array_equal(indices.memory, [[[[1, 3]], [[0, 2]]]])
    dx = gpu.max_backward(y, indices, x.shape, ((2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1)))
    np.testing.assert_array_equal(dx.memory, [[[[0, np.nan, 0, 3], [0] * 4], [[-np.inf, 0, -np.inf, 0], [0] * 4]]])


def test_no_images_no_channels_and_integers(gpu: Any, cuda: Any) -> None:
    how = ((2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1))
    for shape in [(0, 3, 4, 4), (2, 0, 4, 4)]:
        y, indices = gpu.max_forward(cuda.zeros(shape, np.float32), *how, False)
        assert y.shape == indices.shape == (*shape[:2], 2, 2)
        assert gpu.max_backward(y, indices, shape, how).shape == shape
        assert gpu.avg_forward(cuda.zeros(shape, np.float32), *how, False, True, None).shape == y.shape
        assert gpu.avg_backward(y, shape, *how, True, None).shape == shape
    x = np.arange(32).reshape(1, 2, 4, 4)
    y, _ = gpu.max_forward(cuda.array(x), *how, False)
    np.testing.assert_array_equal(y.memory, x[..., 1::2, 1::2])


def test_arrays_that_lie_otherwise(gpu: Any, cuda: Any) -> None:
    """A view with gaps, one that begins at an odd address, and a broadcast gradient."""
    case = CASES[10]
    x = np.random.default_rng(0).standard_normal(case[0]).astype(np.float32)
    y, indices = reference.pool.max_forward(x, *case[1:])
    longer = cuda.array(np.concatenate([x, x], 1))[:, : x.shape[1]]
    shifted = cuda.array(np.append(np.float32(0), x))[1:].reshape(x.shape)
    for there in (longer, shifted, cuda.array(x.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1)):
        found, places = gpu.max_forward(there, *case[1:])
        np.testing.assert_array_equal(found.memory, y)
        np.testing.assert_array_equal(places.memory, indices)
    one = cuda.broadcast_to(cuda.ones((1, 1, 1, 1), np.float32), y.shape)
    for is_last in (False, True):
        dx = gpu.avg_backward(one, x.shape, *case[1:5], False, None, is_last)
        np.testing.assert_allclose(dx.memory.sum(), one.size, rtol=1e-6)
        assert dx.flags.c_contiguous is not is_last


@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize("function", ["max_pool2d", "avg_pool2d", "adaptive_avg_pool2d"])
def test_layers_keep_the_order_of_images(
    function: str, is_last: bool, gpu: Any, cuda: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_back: list[Any] = []
    for name in ("max_backward", "avg_backward"):
        original = getattr(gpu, name)
        monkeypatch.setattr(gpu, name, lambda *a, f=original: given_back.append(f(*a)) or given_back[-1])
    x = np.random.default_rng(0).standard_normal((2, 3, 9, 8)).astype(np.float32)
    call = getattr(mn.functional, function)
    results = []
    for device in ("cpu", "cuda"):
        array = x if device == "cpu" else last(cuda, x) if is_last else cuda.array(x)
        z = mn.Tensor(array)
        z.requires_grad = True
        y = call(z, 1) if function.startswith("adaptive") else call(z, 3, 2, 1)
        (y * y).sum().backward()
        results.append((y.detach().cpu().numpy(), z.grad.cpu().numpy()))
        if device == "cuda":
            assert given_back[-1].strides == array.strides
            assert y.numel() == 6 or y.array.flags.c_contiguous is not is_last
    for actual, expected in zip(*results, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("right", "wrong", "case"),
    [
        ("min(k, (end - 1 - start) / d + 1)", "min(k, (end - start) / d + 1)", 2),
        ("min(o, (p + low) / s + 1)", "min(o, (p + low) / s)", 2),
        ("from.v[v] == here", "true", 2),
        ("chosen.at(b) == first + r * columns + v", "true", 10),
        ("const bool met = (0 <= i) & (i < w.axis[1].o) & incoming", "const bool met = incoming", 10),
        ("(first[1] <= j) & (j < last[1])", "true", 11),
        ("(V - 1 + P) / S - (V / S - 1)", "0", 10),
        ("HIGH = (S - 1 + P) / S;", "HIGH = 0;", 2),
        ("if (row + r < w.axis[1].n)", "", 9),
        ("c / N * N", "0", 16),
    ],
)
def test_a_broken_kernel_is_found(right: str, wrong: str, case: int, gpu: Any, cuda: Any, monkeypatch: Any) -> None:
    text, float32 = instances.source(gpu._program.name), np.dtype(np.float32)
    assert right in text

    def run() -> None:
        for store in (cuda.array, lambda x: last(cuda, x)):
            compare(gpu, store, CASES[case], float32)

    shim.State.ran.clear()
    run()
    keys = {instances.expression(*key): key for key in gpu._program._kernels}
    names = list(keys.keys() & shim.State.ran.keys())
    module = shim.Module(
        code=text.replace(right, wrong), options=("-std=c++17", "-default-device"), name_expressions=names
    )
    for name in names:
        monkeypatch.setitem(gpu._program._kernels, keys[name], module.get_function(name))
    instances.forget_launches()
    with pytest.raises((AssertionError, shim.KernelError)):
        run()
