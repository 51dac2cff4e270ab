"""pool.cu and pool.py: windows that overlap, leave gaps, hang over the end; every type; the order of additions."""

from __future__ import annotations

from typing import Any

import instances
import numpy as np
import pytest
import shim

import minorm as mn
from minorm.devices import dtypes
from minorm.kernels import reference

pytestmark = pytest.mark.skipif(not shim.available, reason="no g++")
KERNELS = ("max_forward", "max_backward", "avg_forward", "avg_backward")
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
]


@pytest.fixture
def gpu(cuda: Any) -> Any:
    from minorm.kernels.gpu import pool, sums

    types = [(dtype, dtypes.compute_type(dtype), dtypes.int32) for dtype in instances.FLOATS]
    instances.compiled(pool._program, [(name, *rest) for name in KERNELS for rest in types])
    instances.compiled(sums._program, [("sum_rows", dtype, dtype, 1, True, dtypes.int32) for dtype in instances.FLOATS])
    return pool


def compare(gpu: Any, cuda: Any, case: Any, dtype: Any) -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(-4, 5, case[0]).astype(dtype)  # with many equal elements
    y, indices = reference.pool.max_forward(x, *case[1:])
    got, places = gpu.max_forward(cuda.array(x), *case[1:])
    assert (got.dtype, places.dtype) == (dtype, np.int32)
    instances.close(got, y, 0)
    np.testing.assert_array_equal(places.memory, indices)
    dy = rng.standard_normal(y.shape).astype(dtype)
    there = cuda.array(dy)
    expected = reference.pool.max_backward(dy, indices, x.shape)
    small = 2e-6 if dtype != dtypes.float64 else 1e-14
    instances.close(gpu.max_backward(there, places, x.shape, case[1:5]), expected, 1, small)
    instances.close(gpu.max_backward(there, places, x.shape), expected, 1, small)
    for how in [(True, None), (False, None), (True, 5)]:
        expected = reference.pool.avg_forward(x, *case[1:], *how)
        instances.close(gpu.avg_forward(cuda.array(x), *case[1:], *how), expected, 1, small)
        expected = reference.pool.avg_backward(dy, x.shape, *case[1:5], *how)
        instances.close(gpu.avg_backward(there, x.shape, *case[1:5], *how), expected, 1, small)


@pytest.mark.parametrize("dtype", instances.FLOATS, ids=str)
@pytest.mark.parametrize("case", CASES)
def test_all_of_pooling(case: Any, dtype: Any, gpu: Any, cuda: Any) -> None:
    compare(gpu, cuda, case, dtype)
    assert cuda.transfers.to_host == 0
    assert cuda.transfers.atomics == 0


def test_nan_is_the_largest_and_minus_infinity_has_a_place(gpu: Any, cuda: Any) -> None:
    x = np.array([[[[1, np.nan, 2, 3], [5, 4, -np.inf, -np.inf]], [[-np.inf] * 4, [-np.inf] * 4]]], np.float32)
    y, indices = gpu.max_forward(cuda.array(x), (2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1), False)
    np.testing.assert_array_equal(y.memory, [[[[np.nan, 3]], [[-np.inf, -np.inf]]]])
    np.testing.assert_array_equal(indices.memory, [[[[1, 3]], [[0, 2]]]])


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


def test_channels_last_and_a_broadcast_gradient(gpu: Any, cuda: Any) -> None:
    case = CASES[2]
    x = np.random.default_rng(0).standard_normal(case[0]).astype(np.float32)
    last = cuda.array(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(
        gpu.max_forward(last, *case[1:])[0].memory, reference.pool.max_forward(x, *case[1:])[0]
    )
    one = cuda.broadcast_to(cuda.ones((1, 1, 1, 1), np.float32), (2, 2, 4, 6))
    dx = gpu.avg_backward(one, x.shape, *case[1:5], False, None)
    np.testing.assert_allclose(dx.memory.sum(), one.size, rtol=1e-6)


def test_layers(gpu: Any, cuda: Any) -> None:
    x = mn.tensor(np.random.default_rng(0).standard_normal((2, 3, 9, 9)).astype(np.float32), requires_grad=True)
    results = []
    for device in ("cpu", "cuda"):
        z = x.detach().to(device)
        z.requires_grad = True
        y = mn.functional.max_pool2d(z, 3, 2, 1) + mn.functional.avg_pool2d(z, 3, 2, 1)
        y.sum().backward()
        results.append((y.cpu().numpy(), z.grad.cpu().numpy()))
    for actual, expected in zip(*results, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("min(k, (end - 1 - start) / d + 1)", "min(k, (end - start) / d + 1)"),
        ("min(o, (p + low) / s + 1)", "min(o, (p + low) / s)"),
        ("if (places[o] == here)", ""),
    ],
)
def test_a_broken_kernel_is_found(right: str, wrong: str, gpu: Any, cuda: Any, monkeypatch: Any) -> None:
    text = instances.source(gpu._program.name)
    assert right in text
    keys = [(name, dtypes.float32, dtypes.float32, dtypes.int32) for name in KERNELS]
    names = [instances.expression(*key) for key in keys]
    module = shim.Module(code=text.replace(right, wrong), options=("-std=c++17",), name_expressions=names)
    for key, name in zip(keys, names, strict=True):
        monkeypatch.setitem(gpu._program._kernels, key, module.get_function(name))
    with pytest.raises((AssertionError, shim.KernelError)):
        compare(gpu, cuda, CASES[2], np.dtype(np.float32))
