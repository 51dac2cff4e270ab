"""Products of bytes: NumPy's int64 is the oracle, of the reference and of every level."""

from __future__ import annotations

import sys
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minorm_ext
from minorm.kernels.cpu import integers as cpu
from minorm.kernels.reference import integers as reference
from minorm.kernels.reference.integers import Requantization
from tests.kernels.test_conv import in_guarded_memory
from tests.levels import at_level

SEEDS = st.integers(0, 2**32 - 1)
TYPES = st.sampled_from([np.int8, np.uint8])


def whole(rng, shape, dtype):
    """Draw any bytes; a fifth of the time only the smallest and the largest, which give the largest sums."""
    ends = np.iinfo(dtype)
    if rng.random() < 0.2:
        return rng.choice(np.array([ends.min, ends.max], dtype), shape)
    return rng.integers(ends.min, ends.max + 1, shape).astype(dtype)


def light(rng, w, axis):
    """Half of the time weights such that the sizes of two neighbours along an axis add up to 128 at most."""
    if rng.random() < 0.5:
        return w
    middle = 128 if w.dtype == np.uint8 else 0
    sizes = np.moveaxis(w.astype(np.int64) - middle, axis, 0)
    most = rng.integers(0, 129, sizes[::2].shape)  # of the first of two; the second has the rest
    sizes[::2] = np.clip(sizes[::2], -most, np.minimum(most, 127))
    rest = 128 - most[: len(sizes[1::2])]
    sizes[1::2] = np.clip(sizes[1::2], -rest, np.minimum(rest, 127))
    return (np.moveaxis(sizes, 0, axis) + middle).astype(w.dtype)


def zero(rng, dtype, *shape):
    return whole(rng, shape, dtype) if rng.random() < 0.5 else np.zeros(shape, dtype)


def convolved(x, w, x_zero, w_zero, stride, padding, dilation, groups, bias):
    """The definition, in int64, result by result; sums as int32 holds them."""
    x = np.pad(x.astype(np.int64) - int(x_zero), ((0, 0), (0, 0), *padding))
    w = w.astype(np.int64) - w_zero.astype(np.int64).reshape(-1, *(1,) * (w.ndim - 1))
    size = [
        (n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(x.shape[2:], w.shape[2:], stride, dilation, strict=True)
    ]
    y = np.zeros((len(x), len(w), *size), np.int64)
    inputs, outputs = w.shape[1], len(w) // groups
    for place in np.ndindex(*size):
        window = tuple(
            slice(p * s, p * s + d * (k - 1) + 1, d)
            for p, s, d, k in zip(place, stride, dilation, w.shape[2:], strict=True)
        )
        for o in range(len(w)):
            group = slice(o // outputs * inputs, (o // outputs + 1) * inputs)
            y[(slice(None), o, *place)] = (x[(slice(None), group, *window)] * w[o]).reshape(len(x), -1).sum(1)
    if bias is not None:
        y += bias.astype(np.int64).reshape(-1, *(1,) * len(size))
    return (y & 0xFFFFFFFF).astype(np.uint32).view(np.int32)


def rounded(sums, scale, zero, low, high, axis):
    """Convert sums to bytes: round the product to float32, then to the nearest whole number in exact arithmetic."""
    shape = [1] * sums.ndim
    shape[axis] = -1
    with np.errstate(over="ignore"):
        product = sums.astype(np.float32) * np.asarray(scale, np.float32).reshape(shape if np.size(scale) > 1 else ())
    return np.clip(np.round(product.astype(np.float64)) + zero, low, high)


def each_level(compute, expected):
    """All levels, on one thread and on two, give these integers."""
    before = minorm_ext.get_num_threads()
    try:
        for level in minorm_ext.levels():
            for threads in (1, 2):
                minorm_ext.set_num_threads(threads)
                with at_level(level):
                    got = compute(cpu)
                assert got.dtype == expected.dtype
                np.testing.assert_array_equal(got, expected, f"{level}, {threads} threads")
    finally:
        minorm_ext.set_num_threads(before)


def requantization(rng, sums, columns):
    """A requantization that leaves most of the sums inside of the type."""
    dtype = rng.choice([np.int8, np.uint8])
    size = max(1.0, float(np.abs(sums.astype(np.float64)).max(initial=0)))
    scale = rng.uniform(20, 150, columns if rng.random() < 0.5 else 1) / size
    return Requantization.of(scale, zero(rng, dtype, 1), None if rng.random() < 0.5 else int(rng.integers(-20, 40)))


@given(
    lead=st.sampled_from([((), ()), ((2,), ()), ((2, 3), (2, 3)), ((3,), (1,)), ((), (2,))]),
    rows=st.sampled_from([1, 2, 5, 8, 17, 100]),
    depth=st.sampled_from([1, 2, 3, 4, 7, 16, 65, 700]),
    columns=st.sampled_from([1, 3, 8, 15, 16, 33, 70]),
    types=st.tuples(TYPES, TYPES),
    seed=SEEDS,
)
def test_matrices(lead, rows, depth, columns, types, seed):
    rng = np.random.default_rng(seed)
    a, b = whole(rng, (*lead[0], rows, depth), types[0]), whole(rng, (*lead[1], depth, columns), types[1])
    b = light(rng, b, -2)
    a_zero, b_zero = zero(rng, types[0]), zero(rng, types[1], *([columns] if rng.random() < 0.5 else []))
    bias = rng.integers(-(2**31), 2**31, columns).astype(np.int32) if rng.random() < 0.5 else None
    exact = (a.astype(np.int64) - int(a_zero)) @ (b.astype(np.int64) - b_zero.astype(np.int64))
    exact += 0 if bias is None else bias
    sums = (exact & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
    np.testing.assert_array_equal(reference.integer_matmul(a, b, a_zero, b_zero, bias), sums)
    each_level(lambda k: k.integer_matmul(a, b, a_zero, b_zero, bias), sums)
    how = requantization(rng, sums, columns)
    expected = rounded(sums, how.scale, how.zero, how.low, how.high, -1).astype(how.dtype)
    np.testing.assert_array_equal(reference.integer_matmul(a, b, a_zero, b_zero, bias, how), expected)
    each_level(lambda k: k.integer_matmul(a, b, a_zero, b_zero, bias, how), expected)


@given(
    images=st.sampled_from([1, 3]),
    channels=st.sampled_from([(1, 1, 6), (1, 3, 20), (1, 17, 33), (2, 5, 2), (3, 1, 1), (5, 1, 2), (2, 3, 9)]),
    size=st.tuples(st.integers(3, 9), st.integers(3, 19)),
    kernel=st.sampled_from([(1, 1), (3, 3), (2, 4)]),
    stride=st.integers(1, 3),
    padding=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    dilation=st.integers(1, 2),
    types=st.tuples(TYPES, TYPES),
    seed=SEEDS,
)
def test_convolutions(images, channels, size, kernel, stride, padding, dilation, types, seed):
    rng = np.random.default_rng(seed)
    groups, inputs, outputs = channels
    size = tuple(max(n, dilation * (k - 1) + 1) for n, k in zip(size, kernel, strict=True))
    x = whole(rng, (images, groups * inputs, *size), types[0])
    w = light(rng, whole(rng, (groups * outputs, inputs, *kernel), types[1]), 1)
    x_zero = zero(rng, types[0])
    w_zero = zero(rng, types[1], *([len(w)] if rng.random() < 0.5 else [1]))
    bias = rng.integers(-50_000, 50_000, len(w)).astype(np.int32) if rng.random() < 0.5 else None
    how = (stride,) * 2, (padding,) * 2, (dilation,) * 2, groups
    sums = convolved(x, w, x_zero, w_zero, *how, bias)
    np.testing.assert_array_equal(reference.integer_conv(x, w, x_zero, w_zero, how, bias), sums)

    each_level(lambda k: k.integer_conv(x, w, x_zero, w_zero, how, bias), sums)
    to = requantization(rng, sums, len(w))
    expected = rounded(sums, to.scale, to.zero, to.low, to.high, 1).astype(to.dtype)
    np.testing.assert_array_equal(reference.integer_conv(x, w, x_zero, w_zero, how, bias, to), expected)
    each_level(lambda k: k.integer_conv(x, w, x_zero, w_zero, how, bias, to), expected)


@pytest.mark.parametrize(
    ("x_shape", "w_shape", "stride", "padding", "groups"),
    [
        ((2, 8, 30), (24, 8, 5), (2,), ((2, 1),), 1),
        ((1, 4, 5, 6, 7), (6, 2, 2, 3, 3), (1, 2, 1), ((1, 0), (1, 1), (0, 2)), 2),
        ((1, 64, 23, 23), (40, 64, 3, 3), (1, 1), ((1, 1), (1, 1)), 1),
        ((1, 160, 40, 40), (8, 160, 3, 3), (2, 2), ((1, 1), (1, 1)), 1),  # in strips
        ((1, 3, 4, 4), (2, 3, 3, 3), (1, 1), ((0, -1), (0, -1)), 1),
    ],
)
def test_other_ranks_strips_and_paddings(x_shape, w_shape, stride, padding, groups):
    rng = np.random.default_rng(3)
    x, w = whole(rng, x_shape, np.uint8), whole(rng, w_shape, np.int8)
    how = stride, padding, (1,) * len(stride), groups
    cut = x[(..., *(slice(None, n + min(0, high)) for n, (_, high) in zip(x_shape[2:], padding, strict=True)))]
    zeros = np.zeros(len(w), np.int8)
    positive = tuple((low, max(0, high)) for low, high in padding)
    sums = convolved(cut, w, 7, zeros, stride, positive, how[2], groups, None)
    np.testing.assert_array_equal(reference.integer_conv(x, w, 7, zeros, how), sums)
    each_level(lambda k: k.integer_conv(x, w, 7, zeros, how), sums)


def test_half_way_goes_to_the_even_number():
    sums = np.arange(-9, 10, dtype=np.int32).reshape(1, 1, -1)
    how = Requantization.of(0.5, np.int8(3))
    expected = np.array([round(s / 2) + 3 for s in range(-9, 10)], np.int8).reshape(sums.shape)
    np.testing.assert_array_equal(reference.requantize(sums, how), expected)
    each_level(lambda k: k.requantize(sums, how), expected)
    each_level(lambda k: k.requantize(sums.astype(np.float32), how), expected)


def test_far_sums_are_cut_off():
    """Also where sums times scale are too large for any integer type."""
    sums = np.array([[[-(2**31), 2**31 - 1, 0, 1]]], np.int32)
    for scale in (1e30, 1.0, 1e-30):
        for zero_point in (np.uint8(200), np.int8(-128)):
            how = Requantization.of(scale, zero_point)
            expected = rounded(sums, scale, how.zero, how.low, how.high, 1).astype(how.dtype)
            each_level(lambda k, how=how: k.requantize(sums, how), expected)


def test_sums_wrap_around():
    a, b = np.full((1, 40_000), 255, np.uint8), np.full((40_000, 1), 255, np.uint8)
    expected = np.array([[40_000 * 255 * 255 - 2**32]], np.int32)
    each_level(lambda k: k.integer_matmul(a, b), expected)
    np.testing.assert_array_equal(reference.integer_matmul(a, b), expected)


@pytest.mark.parametrize("module", [reference, cpu])
def test_arguments_that_do_not_fit_are_errors(module):
    a, b = np.zeros((2, 3), np.uint8), np.zeros((3, 4), np.int8)
    x, w = np.zeros((1, 4, 5, 5), np.uint8), np.zeros((6, 4, 3, 3), np.int8)
    how = (1, 1), ((0, 0),) * 2, (1, 1), 1
    for message, call in {
        r"integer_matmul: a is \(2, 3\), b is \(4, 3\)": lambda: module.integer_matmul(a, b.T),
        r"integer_matmul: b_zero has shape \(3,\); expected one number, or \(4,\)": lambda: module.integer_matmul(
            a, b, 0, np.zeros(3, np.int8)
        ),
        r"integer_matmul: bias is int32 of shape \(3,\)": lambda: module.integer_matmul(
            a, b, bias=np.zeros(3, np.int32)
        ),
        r"integer_conv: w_zero has shape \(5,\)": lambda: module.integer_conv(x, w, 0, np.zeros(5, np.int8), how),
        r"integer_conv: bias is int64": lambda: module.integer_conv(x, w, 0, 0, how, np.zeros(6, np.int64)),
        r"integer_conv: w.shape is \(6, 4, 3, 3\)": lambda: module.integer_conv(x[:, :3], w, 0, 0, how),
    }.items():
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(TypeError, match="integer_matmul: a is float32; expected int8 or uint8"):
        module.integer_matmul(a.astype(np.float32), b)
    with pytest.raises(TypeError, match="integer_conv: w is int16; expected int8 or uint8"):
        module.integer_conv(x, w.astype(np.int16), 0, 0, how)
    with pytest.raises(TypeError, match="requantize: zero is int32"):
        Requantization.of(1.0, np.int32(0))


def test_steps_beyond_the_image_take_no_memory():
    """A file may ask for them in a few bytes: a packed plane has a row for each place between two steps."""
    rng = np.random.default_rng(0)
    x, w = whole(rng, (1, 2, 64, 4), np.uint8), whole(rng, (2, 1, 1, 2), np.int8)
    tracemalloc.start()
    try:
        y = cpu.integer_conv(x, w, 3, 0, ((1, 1 << 20), ((0, 0), (0, 0)), (1, 1), 2))
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
    want = ((x[..., :2].astype(np.int64) - 3) * w.reshape(2, 1, 2)).sum(-1, keepdims=True)
    np.testing.assert_array_equal(y, want)


def test_results_without_elements():
    a, b = np.zeros((0, 3), np.uint8), np.zeros((3, 4), np.int8)
    assert cpu.integer_matmul(a, b).shape == (0, 4)
    assert not cpu.integer_matmul(np.zeros((2, 0), np.uint8), np.zeros((0, 4), np.int8)).any()
    x, w = np.zeros((2, 3, 4, 4), np.uint8), np.zeros((5, 3, 5, 2), np.int8)
    y = cpu.integer_conv(x, w, 0, 0, ((1, 1), ((0, 0),) * 2, (1, 1), 1))
    assert (y.shape, y.dtype) == ((2, 5, 0, 3), np.int32)


@pytest.mark.skipif(sys.platform != "linux", reason="mprotect through ctypes")
@pytest.mark.parametrize("level", minorm_ext.levels())
def test_no_address_is_outside_the_arrays(level):
    result = in_guarded_memory("integers", level)
    assert (result.returncode, result.stdout) == (0, "done\n"), result.stderr


def test_the_kernel_itself_refuses_short_arrays():
    """The last gate: a wrong shape from Python is an error, and no read or write outside of an array."""
    w = cpu.Weights(np.zeros((3, 4), np.int8), (1, 4, 3, 1), (12, 1, 4, 0), -2)
    ends = np.zeros(4, np.int32), None, None
    y = np.zeros((2, 4), np.int32)
    for short in [(np.zeros(5, np.uint8), ends, y), (np.zeros(6, np.uint8), (ends[0][:3], None, None), y),
                  (np.zeros(6, np.uint8), ends, y.ravel()[:-1])]:  # fmt: skip
        with pytest.raises(ValueError, match=r"kernel: array has \d+ elements; expected at least \d+"):
            cpu.kernels.multiply(short[0], w.packed, 0, *short[1:], 2, cpu.empty, np.dtype(np.int32), 1)


@given(
    shapes=st.sampled_from([((3, 5), (3, 5)), ((1, 1040), (1, 1040)), ((2, 3, 4), (3, 1))]),
    types=st.tuples(TYPES, TYPES, TYPES),
    seed=SEEDS,
)
def test_sums_of_two(shapes, types, seed):
    """Against fractions: each multiply-add is rounded once."""
    rng = np.random.default_rng(seed)
    a, b = whole(rng, shapes[0], types[0]), whole(rng, shapes[1], types[1])
    scales = [np.float32(s) for s in rng.uniform(0.01, 0.1, 3)]
    zeros = [int(zero(rng, t)) for t in types]
    how = Requantization.of(1.0, types[2](zeros[2]), None if rng.random() < 0.5 else 5)
    factors = reference.add_factors(scales, zeros)
    of_a, of_b = scales[0] / scales[2], scales[1] / scales[2]
    moved = once(of_a, zeros[0], of_b * np.float32(zeros[1]))
    assert factors == (of_a, of_b, np.float32(zeros[2]) - moved)
    pairs = np.broadcast_arrays(a, b)
    flat = [once(of_a, int(p), once(of_b, int(q), factors[2])) for p, q in zip(*map(np.ravel, pairs), strict=True)]
    expected = np.clip(np.round(np.array(flat, np.float64)), how.low, how.high).astype(how.dtype)
    expected = expected.reshape(pairs[0].shape)
    np.testing.assert_array_equal(reference.add(a, b, factors, how), expected)
    each_level(lambda k: k.add(a, b, factors, how), expected)


def once(a, b, c):
    """a * b + c as a fraction, rounded to float32: twice only where float64 is nearly a tie, which these are not."""
    return np.float32(float(Fraction(float(a)) * b + Fraction(float(c))))


@given(dtype=TYPES, zeros=st.booleans(), seed=SEEDS)
def test_floats_to_bytes_and_back(dtype, zeros, seed):
    rng = np.random.default_rng(seed)
    scale = np.float32(rng.uniform(0.001, 1))
    x = (rng.standard_normal(333) * 100).astype(np.float32)
    x[:6] = [np.nan, np.inf, -np.inf, 2.5 * scale, -1.5 * scale, 3e38]
    point = zero(rng, dtype) if zeros else None
    ends = np.iinfo(dtype)
    with np.errstate(over="ignore"):
        steps = np.round((x / scale).astype(np.float64)) + (0 if point is None else int(point))
    expected = np.clip(np.where(np.isnan(steps), 0, steps), ends.min, ends.max).astype(dtype)
    np.testing.assert_array_equal(reference.quantize(x, scale, point, dtype), expected)
    each_level(lambda k: k.quantize(x, scale, point, dtype), expected)
    back = (expected.astype(np.float64) - (0 if point is None else int(point))).astype(np.float32) * scale
    np.testing.assert_array_equal(reference.dequantize(expected, scale, point), back)
    each_level(lambda k: k.dequantize(expected, scale, point), back)
