"""elementwise.cu and elementwise.py: every function of every type against the reference, at every length of the end."""

from __future__ import annotations

from typing import Any

import instances
import numpy as np
import pytest
import shim

from minorm.devices import dtypes
from minorm.kernels import cpu
from minorm.kernels.reference import elementwise as reference

pytestmark = pytest.mark.skipif(not shim.available, reason="no g++")
NAMES = ["relu", "relu6", "leaky_relu", "hardswish", "sigmoid", "tanh", "silu", "elu", "gelu", "gelu_tanh", "erf"]
TWO = ["add", "sub", "mul"]
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e30, -1e30, 3.0, -3.0, 6.0, 90.0, -90.0, 1e-30]


def needed() -> list[tuple[Any, ...]]:
    keys = []
    for dtype in instances.FLOATS:
        for width in (1, 16 // dtype.itemsize) if dtype == dtypes.float32 else (16 // dtype.itemsize,):
            rest = (dtype, dtypes.compute_type(dtype), width, dtypes.int32)
            keys += [("map_one", f"op::{name}", *rest) for name in [*NAMES, "scale"]]
            keys += [("map_two", f"op::{name}", *rest) for name in NAMES + TWO]
    return keys


@pytest.fixture
def gpu(cuda: Any) -> Any:
    from minorm.kernels.gpu import elementwise

    instances.compiled(elementwise._program, needed())
    return elementwise


def called(module: Any, name: str, *arrays: Any) -> Any:
    name, _, how = name.partition("_tanh")
    options = {"approximate": "tanh"} if how else {}
    return getattr(module, name + ("_grad" if len(arrays) == 2 else ""))(*arrays, **options)


def samples(n: int, dtype: Any) -> np.ndarray:
    x = np.random.default_rng(n).standard_normal(n) * 4
    x[: len(SPECIAL)] = SPECIAL[:n]
    with np.errstate(over="ignore"):
        return x.astype(dtype)


@pytest.mark.parametrize("dtype", instances.FLOATS, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_activations_and_their_gradients(name: str, dtype: Any, gpu: Any, cuda: Any) -> None:
    x = samples(531, dtype)
    dy = np.random.default_rng(1).standard_normal(len(x)).astype(dtype)
    if "gelu" in name:
        x = x[~(np.abs(x.astype(np.float64)) > 1e18)]  # there the reference, in float64, is exact by more than a unit
        dy = dy[: len(x)]
    y, dx = called(gpu, name, cuda.array(x)), called(gpu, name, cuda.array(dy), cuda.array(x))
    units = 1 if dtype in dtypes.HALVES else 12
    small = 3e-7 if dtype != dtypes.float64 else 1e-15  # of a sum that cancels, and where Phi(x) is next to nothing
    with np.errstate(all="ignore"):
        instances.close(y, called(reference, name, x), units, small)
        instances.close(dx, called(reference, name, dy, x), units, small)
    assert y.dtype == dx.dtype == dtype
    assert cuda.transfers.to_host == 0


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 1023, 1025])
def test_every_length(size: int, gpu: Any, cuda: Any) -> None:
    x = samples(size, np.float32)
    np.testing.assert_array_equal(gpu.relu(cuda.array(x)).memory, reference.relu(x))
    np.testing.assert_array_equal(gpu.add(cuda.array(x), cuda.array(x)).memory, x + x)


@pytest.mark.parametrize("dtype", instances.FLOATS, ids=str)
def test_arithmetic(dtype: Any, gpu: Any, cuda: Any) -> None:
    a, b = samples(37, dtype), samples(37, dtype)[::-1].copy()
    with np.errstate(all="ignore"):
        for name in TWO:
            expected = getattr(reference, name)(a, b)
            instances.close(getattr(gpu, name)(cuda.array(a), cuda.array(b)), expected, 0)
        instances.close(gpu.scale(cuda.array(a), 0.5), reference.scale(a, 0.5), 0)
        total, x = cuda.array(a), cuda.array(b)
        gpu.accumulate(total, x)
        instances.close(total, a + b, 0)
        gpu.accumulate(total, total)
        instances.close(total, (a + b) + (a + b), 0)


def test_options(gpu: Any, cuda: Any) -> None:
    x, dy = samples(50, np.float32), samples(50, np.float32)[::-1].copy()
    for name in ("leaky_relu", "elu"):
        with np.errstate(all="ignore"):
            instances.close(getattr(gpu, name)(cuda.array(x), 0.3), getattr(reference, name)(x, 0.3), 8)
            slope = getattr(gpu, f"{name}_grad")(cuda.array(dy), cuda.array(x), 0.3)
            instances.close(slope, getattr(reference, f"{name}_grad")(dy, x, 0.3), 8)


def test_layouts(gpu: Any, cuda: Any) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32)
    dy = np.random.default_rng(1).standard_normal((2, 3, 4, 5)).astype(np.float32)
    there, slopes = cuda.array(x), cuda.array(dy)
    last = cuda.array(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)  # channels-last
    expected = np.where(x > 0, dy, 0)
    y = gpu.relu(last)
    assert y.strides == last.strides
    np.testing.assert_array_equal(y.memory, np.maximum(x, 0))
    dx = gpu.relu_grad(slopes, y)
    assert dx.strides == y.strides
    np.testing.assert_array_equal(dx.memory, expected)
    np.testing.assert_array_equal(gpu.relu_grad(slopes[:, 1:], y[:, 1:]).memory, expected[:, 1:])
    np.testing.assert_array_equal(gpu.relu(there[1:, 1:]).memory, np.maximum(x[1:, 1:], 0))  # not aligned
    spread = cuda.broadcast_to(slopes[:, :1], x.shape)
    np.testing.assert_array_equal(gpu.mul(spread, there).memory, dy[:, :1] * x)
    gpu.accumulate(last, slopes)
    np.testing.assert_array_equal(last.memory, x + dy)
    assert gpu.copy(last).strides == last.strides


def test_what_the_kernels_do_not_cover(gpu: Any, cuda: Any) -> None:
    a, b = np.arange(6, dtype=np.int32).reshape(2, 3), np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(gpu.add(cuda.array(a), cuda.array(b)).memory, a + b)
    np.testing.assert_array_equal(gpu.relu(cuda.array(a - 3)).memory, np.maximum(a - 3, 0))
    with pytest.raises(TypeError, match="float type"):
        gpu.gelu(cuda.array(a))


def test_the_same_names_as_on_the_cpu(gpu: Any) -> None:
    assert sorted(gpu.__all__) == sorted(cpu.elementwise.__all__)
