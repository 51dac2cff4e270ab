"""elementwise.cu and elementwise.py: every function of every type against the reference, at every length of the end."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import instances
import numpy as np
import pytest
import shim

from minorm.devices import dtypes
from minorm.kernels import cpu
from minorm.kernels.order import is_dense
from minorm.kernels.reference import elementwise as reference

pytestmark = pytest.mark.skipif(not shim.available, reason="no g++")
NAMES = ["relu", "relu6", "leaky_relu", "hardswish", "sigmoid", "tanh", "silu", "elu", "gelu", "gelu_tanh", "erf"]
TWO = ["add", "sub", "mul", "div"]
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e30, -1e30, 3.0, -3.0, 6.0, 90.0, -90.0, 1e-30]


def needed() -> list[tuple[Any, ...]]:
    keys = []
    for dtype in instances.FLOATS:
        for width in (1, 16 // dtype.itemsize) if dtype == dtypes.float32 else (16 // dtype.itemsize,):
            rest = (dtype, dtypes.compute_type(dtype), width, dtypes.int32)
            keys += [("map_one", f"op::{name}", *rest) for name in [*NAMES, "scale", "over", "neg"]]
            keys += [("map_two", f"op::{name}", *rest) for name in NAMES + TWO]
            for flat, name in [*itertools.product((True, False), TWO), (True, "swapped<op::relu>")]:
                keys += [("map_broadcast", f"op::{name}", dtype, dtype, dtype, rest[1], width, flat, rest[3])]
            keys += [
                ("map_broadcast", f"op::swapped<op::{name}>", dtype, dtype, dtype, rest[1], width, True, rest[3])
                for name in TWO
            ]
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
    if name == "gelu" and dtype in dtypes.HALVES:
        small = 2e-6 * 4  # for a dy to 4
    with np.errstate(all="ignore"):
        instances.close(y, called(reference, name, x), units, small)
        instances.close(dx, called(reference, name, dy, x), units, small)
    assert y.dtype == dx.dtype == dtype
    assert cuda.transfers.to_host == 0


def every_number(dtype: Any) -> np.ndarray:
    return np.arange(1 << 16, dtype=np.uint16).view(dtype)


def exact_normal(x: np.ndarray) -> tuple[np.ndarray, ...]:
    """gelu, its derivative, erf and its derivative, in float64."""
    erf, erfc = (np.frompyfunc(f, 1, 1) for f in (math.erf, math.erfc))
    phi = (erfc(-x / math.sqrt(2)) / 2).astype(np.float64)
    bell = np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    return x * phi, phi + x * bell, erf(x).astype(np.float64), 2 / math.sqrt(math.pi) * np.exp(-x * x)


@pytest.mark.parametrize("dtype", sorted(dtypes.HALVES, key=str), ids=str)
def test_gelu_and_erf_of_every_number_of_16_bits(dtype: Any, gpu: Any, cuda: Any) -> None:
    """Within 0.52 units of the last place; a derivative near its zero within 2e-6."""
    every = every_number(dtype)
    with np.errstate(all="ignore"):
        x = every.astype(np.float64)
        finite = np.isfinite(x)
        exact = exact_normal(np.where(finite, x, 0))
    there, one = cuda.array(every), cuda.array(np.ones_like(every))
    found = gpu.gelu(there), gpu.gelu_grad(one, there), gpu.erf(there), gpu.erf_grad(one, there)
    digits, lowest = (11, -14) if dtype == dtypes.float16 else (8, -126)
    for number, (y, wanted) in enumerate(zip(found, exact, strict=True)):
        places = np.maximum(np.floor(np.log2(np.maximum(abs(wanted), 1e-300))), lowest) - (digits - 1)
        allowed = 0.52 * 2.0**places + (2e-6 if number == 1 else 0)
        error = abs(y.memory.astype(np.float64) - wanted)
        assert (error <= allowed)[finite].all(), (number, every[finite & (error > allowed)][:5])
        assert np.isnan(y.memory[np.isnan(x)].astype(np.float64)).all()
    assert found[0].memory[x == np.inf] == np.inf
    assert found[2].memory[np.isinf(x)].astype(float).tolist() == [1, -1]


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
        instances.close(gpu.neg(cuda.array(a)), -a, 0)
        instances.close(gpu.over(cuda.array(a), 7), a.astype(dtypes.compute_type(dtype)) / 7, 1)
        total, x = cuda.array(a), cuda.array(b)
        gpu.accumulate(total, x)
        instances.close(total, a + b, 0)
        gpu.accumulate(total, total)
        instances.close(total, (a + b) + (a + b), 0)


SHAPES = {  # of what broadcasts to (3, 8, 5, 7): by what it stands for
    "a number": (), "one element": (1, 1, 1), "a bias": (8, 1, 1), "a row": (7,), "an image": (8, 5, 7),
    "a gate": (3, 8, 1, 1), "a batch": (3, 1, 1, 1), "a column": (5, 1),
}  # fmt: skip


@pytest.mark.parametrize("dtype", instances.FLOATS, ids=str)
@pytest.mark.parametrize("which", SHAPES)
def test_operands_that_broadcast(which: str, dtype: Any, gpu: Any, cuda: Any) -> None:
    rng = np.random.default_rng(0)
    x, short = (rng.standard_normal(shape).astype(dtype) for shape in ((3, 8, 5, 7), SHAPES[which]))
    rows, last = cuda.array(x), cuda.array(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    b = cuda.array(short)
    for name in TWO:
        for a in (rows, last):
            found, back = getattr(gpu, name)(a, b), getattr(gpu, name)(b, a)
            instances.close(found, getattr(reference, name)(x, short), 0)
            instances.close(back, getattr(reference, name)(short, x), 0)
            assert found.strides == back.strides == a.strides
    for a in (rows, last):
        total = gpu.copy(a)
        gpu.accumulate(total, b)
        instances.close(total, x + short, 0)
        assert total.strides == a.strides


def lying(x: np.ndarray, cuda: Any) -> dict[str, Any]:
    """The array on the device: in rows, with the channels last, as a part of a larger one, and not aligned."""
    if not x.ndim:
        return {"rows": cuda.array(x)}
    axes = (0, *range(2, x.ndim), 1) if x.ndim > 2 else tuple(range(x.ndim))
    larger, moved = np.concatenate([x, x], -1), np.concatenate([x.reshape(-1)[:1], x.reshape(-1)])
    return {
        "rows": cuda.array(x),
        "last": cuda.array(np.ascontiguousarray(x.transpose(axes))).transpose(np.argsort(axes)),
        "part": cuda.array(larger)[..., : x.shape[-1]],
        "not aligned": cuda.array(moved)[1:].reshape(x.shape),
    }


HALF, BRAIN, SINGLE, DOUBLE = instances.FLOATS
TYPES = [*zip(instances.FLOATS, instances.FLOATS, strict=True), (HALF, SINGLE), (BRAIN, HALF), (DOUBLE, BRAIN)]
PAIRS = {  # of operands, both of which broadcast, or whose innermost axis is odd or no multiple of an access
    "two gates": ((3, 8, 1, 1), (3, 1, 5, 8)), "a row and a column": ((1, 8), (7, 1)),
    "bias and image": ((8, 1, 1), (5, 8)), "odd and gate": ((3, 5, 7, 7), (3, 5, 1, 1)),
    "odd and mask": ((3, 5, 7, 7), (3, 1, 7, 7)), "short": ((9, 3), (9, 1)),
    "wide": ((4, 6, 8, 16), (4, 6, 1, 1)), "wide and mask": ((4, 6, 8, 16), (4, 1, 8, 16)),
    "scores": ((2, 3, 8, 8), (8, 8)), "a scalar": ((2, 3), ()), "layer scale": ((6, 5, 16), (16,)),
    "alternating": ((1, 3, 1, 5, 1), (2, 1, 4, 1, 8)),
}  # fmt: skip


@pytest.mark.parametrize("types", TYPES, ids=str)
@pytest.mark.parametrize("which", PAIRS)
def test_any_axes_two_types_and_any_order(which: str, types: Any, gpu: Any, cuda: Any) -> None:
    """The bits of the CPU, in one launch of ours."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(dtype) for shape, dtype in zip(PAIRS[which], types, strict=True))
    wanted = a * b
    for x, y in itertools.product(lying(a, cuda).values(), lying(b, cuda).values()):
        for first, second in ((x, y), (y, x)):
            cuda.transfers.clear()
            before = shim.State.launches
            found = gpu.mul(first, second)
            assert shim.State.launches - before == 1
            assert not cuda.transfers.launches
            assert found.dtype == wanted.dtype
            np.testing.assert_array_equal(found.memory, wanted)
            fulls = [z for z in (first, second) if z.shape == wanted.shape]
            full = next((z for z in fulls if is_dense(z)), fulls[0] if fulls else None)
            assert found.flags.c_contiguous if full is None else order_of(found) == order_of(full)


def order_of(x: Any) -> list[int]:
    return sorted((axis for axis, n in enumerate(x.shape) if n > 1), key=lambda axis: -x.strides[axis])


@pytest.mark.parametrize("dtype", instances.FLOATS, ids=str)
def test_broadcasting_keeps_what_is_not_finite(dtype: Any, gpu: Any, cuda: Any) -> None:
    x, short = samples(39, dtype).reshape(3, 13), samples(13, dtype)[::-1].copy()
    with np.errstate(all="ignore"):
        for name in TWO:
            instances.close(getattr(gpu, name)(cuda.array(x), cuda.array(short)), getattr(reference, name)(x, short), 0)
            wanted = getattr(reference, name)(x, short.astype(np.float64))
            found = getattr(gpu, name)(cuda.array(x), cuda.array(short.astype(np.float64)))
            instances.close(found, wanted, 0)
    assert gpu.mul(cuda.array(x[:0]), cuda.array(short)).shape == (0, 13)
    many = cuda.array(np.ones((2, 1) * 4, dtype)), cuda.array(np.ones((1, 3) * 4, dtype))
    assert gpu.add(*many).shape == (2, 3) * 4  # eight loops: by CuPy


@pytest.mark.parametrize("which", ["a number", "a bias", "a gate", "an image"])
def test_a_gradient_that_is_repeated_is_read_where_it_lies(which: str, gpu: Any, cuda: Any) -> None:
    rng = np.random.default_rng(0)
    y, short = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 8, 5, 8), SHAPES[which]))
    short = short[..., :1] if which == "an image" else short
    rows, last = cuda.array(y), cuda.array(y.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    expected = np.where(y > 0, short, 0)
    for kept in (rows, last):
        spread, before = cuda.broadcast_to(cuda.array(short), y.shape), shim.State.launches
        dx = gpu.relu_grad(spread, kept)
        np.testing.assert_array_equal(dx.memory, expected)
        assert dx.strides == kept.strides
        assert shim.State.launches - before == 1
        instances.close(gpu.mul(spread, kept), short * y, 0)
        instances.close(gpu.sub(kept, spread), y - short, 0)


def test_sums_of_gradients_in_any_order(gpu: Any, cuda: Any) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((2, 16, 6, 6)).astype(np.float32) for _ in range(2))

    def last(x: np.ndarray) -> Any:
        return cuda.array(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)

    lying: dict[str, Callable[[np.ndarray], Any]] = {
        "rows": cuda.array,
        "last": last,
        "part": lambda x: cuda.array(np.concatenate([x, x], 1))[:, :16],
        "part of last": lambda x: last(np.concatenate([x, x], 1))[:, :16],
    }
    for first, second in itertools.product(lying, repeat=2):
        total, x = lying[first](a), lying[second](b)
        order = total.strides
        cuda.transfers.clear()
        gpu.accumulate(total, x)
        np.testing.assert_array_equal(total.memory, a + b)
        assert total.strides == order
        assert not cuda.transfers.launches  # none of CuPy's
        before, left = shim.State.launches, lying[first](a)
        both = gpu.add(left, x)
        one = ("last" in first) == ("last" in second)  # others are turned first, and what has gaps is copied
        assert shim.State.launches - before == 1 or not one
        np.testing.assert_array_equal(both.memory, a + b)
        decides = second if "part" in first and "part" not in second else first  # what has no gaps
        assert ("last" in decides) == (both.strides[1] == 4)
    square = cuda.array(a[0, 0])
    gpu.accumulate(square, square.T)
    np.testing.assert_array_equal(square.memory, a[0, 0] + a[0, 0].T)


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
