"""Maps: every operation and level against float64 formulas, PyTorch's edge cases, layouts, threads."""

from __future__ import annotations

import math
import signal

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minorm_ext
from minorm.kernels import cpu, reference
from minorm.kernels.cpu import elementwise

ERF = np.frompyfunc(math.erf, 1, 1)
ERFC = np.frompyfunc(math.erfc, 1, 1)


def sigmoid(x):
    return np.exp(np.minimum(x, 0)) / (1 + np.exp(-np.abs(x)))


def normal(x):
    return ERFC(-x / math.sqrt(2)).astype(np.float64) / 2


def gelu_tanh(x):
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


# Forward formulas in float64, written independently of the library.
FORWARD = {
    "relu": lambda x: np.where(x > 0, x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
    "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "sigmoid": sigmoid,
    "tanh": np.tanh,
    "silu": lambda x: x * sigmoid(x),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "gelu": lambda x: x * normal(x),
    "erf": lambda x: ERF(x).astype(np.float64),
}
FROM_OUTPUT = {"relu", "relu6", "sigmoid", "tanh"}  # whose gradient takes y
UNITS = {"relu": 0, "relu6": 0, "leaky_relu": 1, "hardswish": 3, "sigmoid": 4, "tanh": 4, "silu": 5, "elu": 2, "erf": 2}


@pytest.fixture(params=minorm_ext.levels())
def level(request, monkeypatch):
    """The CPU backend on the kernels of one instruction set."""
    monkeypatch.setattr(elementwise, "_run", minorm_ext.kernels("elementwise", request.param).run)
    return request.param


@pytest.fixture
def threads():
    before = minorm_ext.get_num_threads()
    yield minorm_ext.set_num_threads
    minorm_ext.set_num_threads(before)


def samples(dtype):
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.standard_normal(5000) * 3, np.linspace(-20, 20, 5001), rng.standard_normal(500) * 1e-4])
    return x.astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FORWARD)
def test_forward_against_float64(name, dtype, level):
    x = samples(dtype)
    y = getattr(elementwise, name)(x)
    assert y.dtype == dtype
    expected = FORWARD[name](x.astype(np.float64))
    if name == "gelu":  # absolute: far out in the tail x * Phi(x) is as exact as x^2 / 2 is
        np.testing.assert_allclose(y, expected, rtol=16 * np.finfo(dtype).eps, atol=1e-3 * np.finfo(dtype).eps)
        return
    error = np.abs(y - expected) / np.spacing(np.abs(expected.astype(dtype)))
    assert error.max() <= max(UNITS[name], 0.5) + (8 if dtype == np.float64 else 0)  # the oracle's own error in float64


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FORWARD)
def test_gradient_against_finite_differences(name, dtype, level):
    rng = np.random.default_rng(2)
    x = rng.uniform(-8, 8, 2000)
    x = x[(np.abs(x) > 1e-3) & (np.abs(np.abs(x) - 3) > 1e-3) & (np.abs(x - 6) > 1e-3)]  # away from the kinks
    dy = rng.standard_normal(x.size)
    slope = (FORWARD[name](x + 1e-6) - FORWARD[name](x - 1e-6)) / 2e-6
    kept = getattr(elementwise, name)(x) if name in FROM_OUTPUT else x
    dx = getattr(elementwise, name + "_grad")(dy.astype(dtype), kept.astype(dtype))
    tolerance = 1e-8 if dtype == np.float64 else 2e-6
    np.testing.assert_allclose(dx, dy * slope, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", FORWARD)
def test_edge_cases_are_pytorchs(name, level):
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    edges = [0.0, -0.0, 3.0, -3.0, 6.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 3e38, -3e38, 88.0, -88.0, 1e4, -1e4]
    x = np.array(edges * 3, np.float32)  # long enough for whole vectors and a rest
    t = torch.tensor(x, requires_grad=True)
    expected = (torch.erf if name == "erf" else getattr(functional, name))(t)
    expected.backward(torch.ones_like(expected))
    y = getattr(elementwise, name)(x)
    dx = getattr(elementwise, name + "_grad")(np.ones_like(x), y if name in FROM_OUTPUT else x)
    # PyTorch overflows in gelu near the largest float, and its own vectors and rests differ in slopes at NaN
    good = np.abs(x) <= 1e4 if name == "gelu" else np.ones(x.shape, bool)
    np.testing.assert_allclose(y[good], expected.detach().numpy()[good], rtol=2e-4 if name == "gelu" else 1e-6)
    good &= np.isfinite(x) if name in ("silu", "gelu", "elu", "hardswish") else True
    good &= ~np.isnan(x) if name == "relu6" else True
    np.testing.assert_allclose(dx[good], t.grad.numpy()[good], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ["relu", "relu6", "elu", "hardswish"])
def test_the_gradient_passes_at_nan_wherever_it_stands(name, level):
    x, dy = np.full(37, np.nan), np.arange(37.0)
    for dtype in (np.float32, np.float64):
        for kernels in (elementwise, reference.elementwise):
            dx = getattr(kernels, name + "_grad")(dy.astype(dtype), x.astype(dtype))
            np.testing.assert_array_equal(dx, dy)


def test_nan_and_infinity(level):
    x = np.array([np.nan, np.inf, -np.inf] * 11, np.float32)
    for name in FORWARD:
        y = getattr(elementwise, name)(x)
        assert np.isnan(y[::3]).all(), name
        np.testing.assert_array_equal(y[1::3], {"relu6": 6, "sigmoid": 1, "tanh": 1, "erf": 1}.get(name, np.inf))
    for name, limit in {
        "relu": 0,
        "relu6": 0,
        "leaky_relu": -np.inf,
        "sigmoid": 0,
        "tanh": -1,
        "elu": -1,
        "erf": -1,
    }.items():
        np.testing.assert_array_equal(getattr(elementwise, name)(x)[2::3], limit)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_gradients_and_tails(approximate, level):
    torch = pytest.importorskip("torch")
    x = np.linspace(-40, 40, 4001)
    t = torch.tensor(x, requires_grad=True)
    expected = torch.nn.functional.gelu(t, approximate=approximate)
    expected.sum().backward()
    for dtype, tolerance in ((np.float32, 1e-6), (np.float64, 1e-14)):
        data = x.astype(dtype)
        y = elementwise.gelu(data, approximate)
        dx = elementwise.gelu_grad(np.ones_like(data), data, approximate)
        np.testing.assert_allclose(y, expected.detach().numpy(), rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(dx, t.grad.numpy(), rtol=4 * tolerance, atol=4 * tolerance)
    if approximate == "none":  # PyTorch's own float32 loses the tail; ours keeps its relative precision
        y = elementwise.gelu(np.array([-5.0], np.float32))[0]
        assert y == pytest.approx(-5 * math.erfc(5 / math.sqrt(2)) / 2, rel=3e-6)


def test_options(level):
    x = samples(np.float32)
    dy = x[::-1].copy()
    wide = x.astype(np.float64)
    for slope in (0.0, 0.2, -1.5):
        np.testing.assert_allclose(elementwise.leaky_relu(x, slope), np.where(x > 0, wide, slope * wide), rtol=1e-6)
        np.testing.assert_allclose(
            elementwise.leaky_relu_grad(dy, x, slope), np.where(x > 0, dy, slope * dy), rtol=1e-6
        )
    for alpha in (0.0, 0.5, 2.0):
        expected = np.where(x > 0, wide, alpha * np.expm1(np.minimum(wide, 0)))
        np.testing.assert_allclose(elementwise.elu(x, alpha), expected, rtol=1e-6)
        expected = dy * np.where(x > 0, 1, alpha * np.exp(np.minimum(wide, 0)))
        np.testing.assert_allclose(elementwise.elu_grad(dy, x, alpha), expected, rtol=1e-6)
    with pytest.raises(KeyError):
        elementwise.gelu(x, "sigmoid")


@pytest.mark.parametrize("size", [1, 1000, (1 << 23) + 77])  # the last goes around the cache
def test_copy(size):
    x = np.arange(size, dtype=np.float32)
    y = cpu.elementwise.copy(x)
    assert not np.may_share_memory(x, y)
    np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("name", ["add", "sub", "mul"])
@pytest.mark.parametrize(
    ("left", "right"),
    [((40, 50), (40, 50)), ((40, 50), (50,)), ((50,), (40, 50)), ((40, 1), (1, 50)), ((), (3,)), ((0,), (0,))],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int32])
def test_arithmetic_is_numpys(name, left, right, dtype, level, rng):
    a, b = ((rng.standard_normal(shape) * 10).astype(dtype) for shape in (left, right))
    expected = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[name](a, b)
    result = getattr(elementwise, name)(a, b)
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(np.asarray(result, np.float64), np.asarray(expected, np.float64))


def test_large_broadcast_uses_the_pool(rng):
    a, b = rng.standard_normal((64, 32, 10)), rng.standard_normal((32, 1))
    result = elementwise.mul(a, b)
    np.testing.assert_array_equal(result, a * b)
    assert type(result.base).__name__ == "Block"


def test_scale_and_accumulate(level, rng):
    x, y = rng.standard_normal((2, 70, 30)).astype(np.float32)
    np.testing.assert_array_equal(elementwise.scale(x, 0.3), x * np.float32(0.3))
    total = x.copy()
    elementwise.accumulate(total, y)
    np.testing.assert_array_equal(total, x + y)
    elementwise.accumulate(total[:, ::2], y[:, ::2])  # strided: not the kernel's
    np.testing.assert_array_equal(total[:, ::2], (x + y + y)[:, ::2])
    np.testing.assert_array_equal(total[:, 1::2], (x + y)[:, 1::2])
    total = x.copy()
    elementwise.accumulate(total[1:], total[:-1])  # overlapping
    np.testing.assert_array_equal(total[1:], x[1:] + x[:-1])
    half = x.astype(np.float16)
    elementwise.accumulate(half, half.copy())
    np.testing.assert_array_equal(half, x.astype(np.float16) * 2)


LAYOUTS = {
    "channels last": lambda x: np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2),
    "fortran": np.asfortranarray,
    "gaps": lambda x: np.repeat(x, 2, axis=2)[:, :, ::2],
    "negative": lambda x: np.ascontiguousarray(x[::-1, :, ::-1])[::-1, :, ::-1],
    "broadcast": lambda x: np.broadcast_to(x[:, :1, :, :1], x.shape),
    "unaligned": lambda x: np.frombuffer(b"a" + x.tobytes(), np.uint8)[1:].view(x.dtype).reshape(x.shape),
    "big endian": lambda x: x.astype(x.dtype.newbyteorder(">")),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["relu", "silu"])
def test_layouts(layout, name, level, rng):
    plain = rng.standard_normal((3, 4, 5, 6)).astype(np.float32)
    x = LAYOUTS[layout](plain)
    same = np.ascontiguousarray(x, np.float32)
    np.testing.assert_allclose(getattr(elementwise, name)(x), getattr(elementwise, name)(same), rtol=1e-6)
    gradient = getattr(elementwise, name + "_grad")
    dy = rng.standard_normal(x.shape).astype(np.float32)
    np.testing.assert_allclose(gradient(dy, x), gradient(dy, same), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(gradient(x, dy), gradient(same, dy), rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(elementwise.add(x, dy), same + dy)


def test_channels_last_stays_channels_last(rng):
    x = LAYOUTS["channels last"](rng.standard_normal((2, 8, 20, 20)).astype(np.float32))
    y = elementwise.relu(x)
    assert y.strides == x.strides
    assert elementwise.relu_grad(np.ones((2, 8, 20, 20), np.float32), y).strides == x.strides


def test_read_only_input(rng):
    x = rng.standard_normal(10).astype(np.float32)
    x.flags.writeable = False
    np.testing.assert_array_equal(elementwise.relu(x), np.maximum(x, 0))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("name", FORWARD)
def test_sixteen_bits_are_computed_in_float32(name, dtype, level, rng):
    x = (rng.standard_normal(500) * 3).astype(dtype)
    y = getattr(elementwise, name)(x)
    assert y.dtype == dtype
    expected = getattr(elementwise, name)(x.astype(np.float32)).astype(dtype)
    np.testing.assert_array_equal(y.astype(np.float32), expected.astype(np.float32))
    dy = rng.standard_normal(500).astype(dtype)
    kept = y if name in FROM_OUTPUT else x
    gradient = getattr(elementwise, name + "_grad")
    expected = gradient(dy.astype(np.float32), kept.astype(np.float32)).astype(dtype)
    np.testing.assert_array_equal(gradient(dy, kept).view(np.uint16), expected.view(np.uint16))


@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 5000, 5_000_011])  # the last goes around the cache
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_arithmetic_of_sixteen_bits_rounds_once(dtype, size, level, rng):
    a, b = (rng.standard_normal(size, np.float32).astype(dtype) for _ in range(2))
    wide_a, wide_b = a.astype(np.float32), b.astype(np.float32)
    for name, expected in (("add", wide_a + wide_b), ("sub", wide_a - wide_b), ("mul", wide_a * wide_b)):
        found = getattr(elementwise, name)(a, b)
        np.testing.assert_array_equal(found.view(np.uint16), expected.astype(dtype).view(np.uint16))
    found = elementwise.scale(a, 0.3)
    np.testing.assert_array_equal(found.view(np.uint16), (wide_a * np.float32(0.3)).astype(dtype).view(np.uint16))
    elementwise.accumulate(b, a)
    np.testing.assert_array_equal(b.view(np.uint16), (wide_a + wide_b).astype(dtype).view(np.uint16))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_copies_of_sixteen_bits_keep_every_bit(dtype, level):
    every = np.arange(1 << 16).astype(np.uint16).view(dtype)  # NaNs of all kinds among them
    np.testing.assert_array_equal(elementwise.copy(every).view(np.uint16), every.view(np.uint16))
    lying = every.reshape(4, 8, 2048).transpose(2, 0, 1)
    assert elementwise.relu(lying).strides == lying.strides
    np.testing.assert_array_equal(elementwise.copy(lying).view(np.uint16), lying.view(np.uint16))


@pytest.mark.parametrize("name", FORWARD)
def test_backends_agree(name, level, rng):
    x = (rng.standard_normal((7, 33)) * 3).astype(np.float32)
    dy = rng.standard_normal(x.shape).astype(np.float32)
    ours, theirs = getattr(cpu.elementwise, name)(x), getattr(reference.elementwise, name)(x)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)
    kept = theirs if name in FROM_OUTPUT else x
    ours = getattr(cpu.elementwise, name + "_grad")(dy, kept)
    np.testing.assert_allclose(ours, getattr(reference.elementwise, name + "_grad")(dy, kept), rtol=1e-5, atol=1e-6)


@given(st.integers(0, 600_000), st.sampled_from(["relu", "gelu", "sigmoid"]))
def test_thread_count_changes_no_bit(size, name):
    x = np.random.default_rng(size).standard_normal(size).astype(np.float32)
    before = minorm_ext.get_num_threads()
    try:
        results = []
        for n in (1, 2, 3, 5):
            minorm_ext.set_num_threads(n)
            results.append(getattr(elementwise, name)(x).tobytes())
    finally:
        minorm_ext.set_num_threads(before)
    assert len(set(results)) == 1


def test_outputs_larger_than_the_cache(threads, level):
    x = np.arange(9_000_011, dtype=np.float32) - 4_500_000  # 36 MB: written around the cache, with a ragged end
    for n in (1, 2):
        threads(n)
        np.testing.assert_array_equal(elementwise.relu(x), np.maximum(x, 0))
        np.testing.assert_array_equal(elementwise.add(x, x), x + x)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="POSIX timers")
def test_an_interrupt_is_answered_in_the_middle():
    x = np.zeros(1 << 25)  # gelu of doubles takes a tenth of a second on one thread
    out = np.ones_like(x)
    kernels = minorm_ext.kernels("elementwise")
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.02)
    try:
        with pytest.raises(KeyboardInterrupt):
            kernels.run(kernels.numbers["gelu"], x, None, out, x.size, 3, 0.0, 1)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert out[-1] == 1


def test_kernels_check_their_arguments():
    kernels = minorm_ext.kernels("elementwise")
    x = np.zeros(10, np.float32)
    with pytest.raises(TypeError):
        kernels.run(0, None, x, x, 10, 2, 0.0, 1)
    with pytest.raises(TypeError):
        kernels.run(0, x.astype(np.float64), x, x, 10, 2, 0.0, 1)
    x.flags.writeable = False
    with pytest.raises(ValueError):
        kernels.run(0, x, x, x, 10, 2, 0.0, 1)
