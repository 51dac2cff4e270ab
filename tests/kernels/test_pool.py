"""The pooling kernel against the reference, and the reference against a plain loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minorm_ext
from minorm.kernels.cpu import pool as cpu
from minorm.kernels.reference import pool as reference

CASES = [  # x, kernel, stride, padding, dilation, ceil_mode
    ((2, 3, 9), (2,), (2,), ((0, 0),), (1,), False),
    ((2, 3, 9), (3,), (2,), ((1, 1),), (2,), True),
    ((4, 16, 8, 8), (2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1), False),
    ((2, 3, 28, 28), (2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1), False),
    ((2, 2, 7, 10), (3, 3), (2, 2), ((1, 1), (1, 1)), (1, 1), True),
    ((2, 2, 7, 10), (3, 2), (1, 3), ((1, 0), (0, 1)), (2, 1), True),
    ((3, 5, 7, 7), (7, 7), (7, 7), ((0, 0), (0, 0)), (1, 1), False),
    ((2, 2, 5, 6, 7), (2, 3, 2), (2, 1, 2), ((1, 0), (1, 1), (0, 0)), (1, 2, 1), True),
    ((1, 1, 1, 3), (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), False),
]


def windows(case: Any) -> Any:
    """For every window of a plane the places it meets, and how many taps lie within the padded input."""
    shape, kernel, stride, padding, dilation, ceil_mode = case
    size = shape[2:]
    out = reference.output_shape(size, kernel, stride, padding, dilation, ceil_mode)
    for window in np.ndindex(*out):
        places, padded = [], 0
        for tap in np.ndindex(*kernel):
            at = [i * s + t * d - p[0] for i, s, t, d, p in zip(window, stride, tap, dilation, padding, strict=True)]
            padded += all(i < n + p[1] for i, n, p in zip(at, size, padding, strict=True))
            if all(0 <= i < n for i, n in zip(at, size, strict=True)):
                places.append(tuple(at))
        yield window, places, padded


@pytest.mark.parametrize("case", CASES)
def test_the_reference_is_the_definition(case: Any) -> None:
    x = np.random.default_rng(0).standard_normal(case[0])
    y, indices = reference.max_forward(x, *case[1:])
    means = [
        reference.avg_forward(x, *case[1:], include, divisor)
        for include, divisor in [(True, None), (False, None), (True, 3)]
    ]
    for window, places, padded in windows(case):
        values = np.stack([x[(..., *place)] for place in places])
        np.testing.assert_array_equal(y[(..., *window)], values.max(axis=0))
        best = [np.ravel_multi_index(place, x.shape[2:]) for place in places]
        np.testing.assert_array_equal(indices[(..., *window)], np.array(best)[values.argmax(axis=0)])
        for mean, count in zip(means, (padded, len(places), 3), strict=True):
            np.testing.assert_allclose(mean[(..., *window)], values.sum(axis=0) / count)


def compare(case: Any, dtype: Any) -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(-4, 5, case[0]).astype(dtype)  # with many equal elements
    y, indices = reference.max_forward(x, *case[1:])
    got, places = cpu.max_forward(x, *case[1:])
    assert got.dtype == dtype
    assert places.dtype == np.int32
    np.testing.assert_array_equal(got, y)
    np.testing.assert_array_equal(places, indices)
    dy = rng.standard_normal(y.shape).astype(dtype)
    tolerance = {"rtol": 1e-5, "atol": 1e-5} if dtype == np.float32 else {"rtol": 1e-12, "atol": 1e-12}
    np.testing.assert_allclose(
        cpu.max_backward(dy, places, x.shape), reference.max_backward(dy, indices, x.shape), **tolerance
    )
    for how in [(True, None), (False, None), (True, 5)]:
        expected = reference.avg_forward(x, *case[1:], *how)
        np.testing.assert_allclose(cpu.avg_forward(x, *case[1:], *how), expected, **tolerance)
        expected = reference.avg_backward(dy, x.shape, *case[1:5], *how)
        np.testing.assert_allclose(cpu.avg_backward(dy, x.shape, *case[1:5], *how), expected, **tolerance)


@pytest.mark.parametrize("level", minorm_ext.levels())
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_kernel_agrees_with_the_reference(level: str, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "_kernel", minorm_ext.kernels("pool", level))
    for cached in (cpu._windows, cpu._lengths):
        cached.cache_clear()
    try:
        for case in CASES:
            compare(case, dtype)
    finally:
        for cached in (cpu._windows, cpu._lengths):
            cached.cache_clear()


@given(data=st.data(), rank=st.integers(1, 3), ceil_mode=st.booleans())
def test_any_shape(data: Any, rank: int, ceil_mode: bool) -> None:
    def draw(low: int, high: int) -> tuple[int, ...]:
        return tuple(data.draw(st.lists(st.integers(low, high), min_size=rank, max_size=rank)))

    kernel, stride, dilation = draw(1, 4), draw(1, 3), draw(1, 2)
    padding = tuple((min(a, k // 2), min(b, k // 2)) for a, b, k in zip(draw(0, 2), draw(0, 2), kernel, strict=True))
    size = tuple(
        max(n, d * (k - 1) + 1 - sum(p)) for n, k, d, p in zip(draw(1, 12), kernel, dilation, padding, strict=True)
    )
    compare(((2, 3, *size), kernel, stride, padding, dilation, ceil_mode), np.float64)


@pytest.mark.parametrize("backend", [reference, cpu])
def test_nan_is_the_largest_and_minus_infinity_has_a_place(backend: Any) -> None:
    x = np.array([[[[1, np.nan, 2, 3], [5, 4, -np.inf, -np.inf]], [[-np.inf] * 4, [-np.inf] * 4]]], np.float32)
    y, indices = backend.max_forward(x, (2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1), False)
    np.testing.assert_array_equal(y, [[[[np.nan, 3]], [[-np.inf, -np.inf]]]])
    np.testing.assert_array_equal(indices, [[[[1, 3]], [[0, 2]]]])


@pytest.mark.parametrize("backend", [reference, cpu])
def test_no_images_no_channels(backend: Any) -> None:
    how = ((2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1))
    for shape in [(0, 3, 4, 4), (2, 0, 4, 4)]:
        x = np.zeros(shape, np.float32)
        y, indices = backend.max_forward(x, *how, False)
        assert y.shape == indices.shape == (*shape[:2], 2, 2)
        assert backend.max_backward(y, indices, shape).shape == shape
        assert backend.avg_forward(x, *how, False, True, None).shape == y.shape
        assert backend.avg_backward(y, shape, *how, True, None).shape == shape


def test_halves_accumulate_in_float32() -> None:
    x = np.full((1, 1, 10000), 1, np.float16)
    assert cpu.avg_forward(x, (10000,), (1,), ((0, 0),), (1,), False, True, None).item() == 1


def test_a_constant_stays_what_it_is() -> None:
    x = np.full((1, 2, 9, 9), 0.1, np.float32)
    how = ((3, 3), (3, 3), ((0, 0), (0, 0)), (1, 1), False, True, None)
    np.testing.assert_allclose(cpu.avg_forward(x, *how), 0.1, rtol=2e-7)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_a_window_of_padding_alone_has_the_least_integer(dtype: Any) -> None:
    x = np.array([[[[5]], [[7]]]], dtype)
    with np.errstate(all="raise"):
        y, _ = cpu.max_forward(x, (2, 2), (1, 1), ((1, 1), (1, 1)), (2, 2), False)
    np.testing.assert_array_equal(y, np.full((1, 2, 1, 1), np.iinfo(dtype).min))


def test_integers_and_arrays_that_are_not_plain() -> None:
    how = ((2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1), False)
    x = np.arange(64, dtype=np.float32).reshape(2, 2, 4, 4)
    y, _ = cpu.max_forward(x.astype(np.int8), *how)
    assert y.dtype == np.int8
    np.testing.assert_array_equal(y, cpu.max_forward(x, *how)[0])
    np.testing.assert_array_equal(cpu.max_forward(np.asfortranarray(x), *how)[0], y)
    np.testing.assert_array_equal(cpu.max_forward(x[:, :, ::-1], *how)[0], y[:, :, ::-1])
    frozen = x.copy()
    frozen.flags.writeable = False
    np.testing.assert_array_equal(cpu.max_forward(frozen, *how)[0], y)
    constant = np.broadcast_to(np.float32(1), y.shape)
    assert cpu.avg_backward(constant, x.shape, *how[:4], True, None).sum() == y.size


def test_a_plane_that_goes_in_slices() -> None:
    """So much work that signals are looked at within the one plane: 70 million taps."""
    window = ((19, 19), (1, 1), ((9, 9), (9, 9)))
    x = np.random.default_rng(0).standard_normal((1, 1, 400, 500)).astype(np.float32)
    y, indices = cpu.max_forward(x, *window, (1, 1), False)
    expected, places = reference.max_forward(x, *window, (1, 1), False)
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(indices, places)
    np.testing.assert_allclose(
        cpu.max_backward(y, indices, x.shape), reference.max_backward(y, indices, x.shape), rtol=1e-5, atol=1e-5
    )
    mean = (*window, (1, 1), True, None)
    np.testing.assert_allclose(
        cpu.avg_forward(x, *window, (1, 1), False, True, None),
        reference.avg_forward(x.astype(np.float64), *window, (1, 1), False, True, None),
        atol=1e-6,
    )
    np.testing.assert_allclose(
        cpu.avg_backward(y, x.shape, *mean), reference.avg_backward(y.astype(np.float64), x.shape, *mean), rtol=2e-5
    )


def test_the_mean_of_a_large_plane_keeps_its_digits() -> None:
    x = np.full((1, 1, 1 << 22), 0.1, np.float32)
    y = cpu.avg_forward(x, (1 << 22,), (1,), ((0, 0),), (1,), False, True, None)
    assert y.item() == pytest.approx(float(np.float32(0.1)), rel=1e-6)
