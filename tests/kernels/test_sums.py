"""Sums over axes: exact integers, float64, all axis masks and layouts, threads."""

from __future__ import annotations

import itertools
import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minorm_ext
from minorm.kernels import cpu, reference
from minorm.kernels.axis_sums import stages
from minorm.kernels.cpu import sums as kernels


@pytest.fixture(params=minorm_ext.levels(), autouse=True)
def level(request, monkeypatch):
    monkeypatch.setattr(cpu.sums, "_kernels", minorm_ext.kernels("sums", request.param))


def masks(rank):
    return [axes for n in range(rank + 1) for axes in itertools.combinations(range(rank), n)]


@pytest.mark.parametrize("axes", masks(4))
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 3, 1), (3, 2, 1, 0)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_every_mask_and_layout_is_exact_on_integers(axes, order, keepdims, rng):
    stored = rng.integers(-50, 50, (3, 5, 70, 11)).astype(np.float32)
    x = stored.transpose(order)
    result = kernels.sum_axes(x, axes, keepdims)
    np.testing.assert_array_equal(result, x.sum(axis=axes, keepdims=keepdims))
    assert result.dtype == np.float32
    count = math.prod(x.shape[axis] for axis in axes)
    mean = kernels.mean_axes(x, axes, keepdims)
    np.testing.assert_array_equal(mean, (x.sum(axis=axes, keepdims=keepdims, dtype=np.float64) / count).astype("f"))


@given(
    st.lists(st.sampled_from([1, 2, 3, 7, 40, 1030, 70_000]), min_size=1, max_size=6),
    st.lists(st.booleans(), min_size=6, max_size=6),
    st.sampled_from([np.float16, ml_dtypes.bfloat16, np.float32, np.float64]),
)
def test_any_shape_and_mask_is_exact_on_small_integers(shape, summed, dtype):
    while math.prod(shape) > 300_000:
        shape = [n for n in shape if n != max(shape)] or [300_000]
    axes = tuple(i for i in range(len(shape)) if summed[i])
    x = np.random.default_rng(len(shape)).integers(-2, 3, shape).astype(dtype)
    exact = x.astype(np.float64).sum(axis=axes)
    for backend in (cpu, reference):
        result = backend.sums.sum_axes(x, axes)
        assert result.dtype == dtype
        np.testing.assert_array_equal(result, exact.astype(dtype))
        count = math.prod(x.shape[axis] for axis in axes)
        np.testing.assert_array_equal(backend.sums.mean_axes(x, axes), (exact / count).astype(dtype))


VIEWS = {
    "every other": lambda x: x[::2, :, ::3],
    "backwards": lambda x: x[::-1, :, ::-1],
    "repeated": lambda x: np.broadcast_to(x[:1, :, :1], x.shape),
    "a window": lambda x: x[1:-1, 2:5],
    "read-only": lambda x: (x.setflags(write=False), x)[1],
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("axes", masks(3))
def test_arrays_with_gaps_and_repeats(view, axes, rng):
    x = VIEWS[view](rng.integers(-50, 50, (8, 9, 70)).astype(np.float32))
    np.testing.assert_array_equal(kernels.sum_axes(x, axes), x.sum(axis=axes))
    np.testing.assert_allclose(kernels.mean_axes(x, axes), x.mean(axis=axes), rtol=1e-6, atol=1e-6)


@given(
    st.lists(st.sampled_from([1, 1, 2, 3, 5, 65]), min_size=1, max_size=4),
    st.lists(st.booleans(), min_size=4, max_size=4),
    st.integers(0, 2),
)
def test_sum_to_is_the_transpose_of_broadcasting(shape, stretched, dropped):
    x = np.random.default_rng(len(shape)).integers(-9, 9, shape).astype(np.float64)
    small = tuple(1 if s else n for s, n in zip(stretched, shape, strict=False))[min(dropped, len(shape)) :]
    weights = np.random.default_rng(1).integers(-9, 9, small).astype(np.float64)
    for backend in (cpu, reference):
        result = backend.sums.sum_to(x, small)
        assert result.shape == small
        assert (result * weights).sum() == (x * weights).sum()  # <sum_to(x), w> = <x, broadcast(w)>


@pytest.mark.parametrize(
    ("shape", "to"),
    [((3000, 10), (10,)), ((5, 7, 300, 301), (7, 1, 1)), ((1 << 20,), ()), ((40, 3, 1), (3, 1)), ((9000, 300), (300,))],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_accuracy(shape, to, dtype, rng):
    x = (rng.standard_normal(shape) + 3).astype(dtype)
    result = kernels.sum_to(x, to)
    assert result.dtype == dtype
    lead = x.ndim - len(to)
    axes = tuple(i for i in range(x.ndim) if i < lead or to[i - lead] == 1)
    rows = np.moveaxis(x, [i for i in range(x.ndim) if i not in axes], range(x.ndim - len(axes)))
    rows = rows.reshape(-1, math.prod(x.shape[i] for i in axes))
    exact = np.array([math.fsum(row) for row in rows.tolist()]).reshape(to)
    np.testing.assert_allclose(result, exact, rtol=2e-7 if dtype == np.float32 else 1e-14)


def test_a_million_ones_and_a_small_float(rng):
    x = np.ones(1 << 22, np.float32)
    assert kernels.sum_axes(x, (0,)) == 1 << 22
    x[0] = 2.0**24  # beyond which float32 cannot count
    assert kernels.sum_axes(x, (0,)) == pytest.approx(2.0**24 + (1 << 22), rel=4e-6)  # one lane of 64


def test_nan_infinity_and_nothing():
    x = np.ones((4, 100), np.float32)
    x[1, 50], x[2, 99] = np.nan, np.inf
    np.testing.assert_array_equal(kernels.sum_axes(x, (1,)), [100, np.nan, np.inf, 100])
    assert kernels.sum_axes(np.zeros((0, 3), np.float32), (0,)).tolist() == [0, 0, 0]
    assert kernels.sum_axes(np.zeros((3, 0), np.float32), (0,)).shape == (0,)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_sixteen_bits_accumulate_in_float32(dtype):
    x = np.ones((10000, 2), dtype)
    result = kernels.sum_to(x, (2,))
    assert result.dtype == dtype
    np.testing.assert_allclose(result.astype(np.float64), 10000, rtol=4e-3)


def test_integers_and_views(rng):
    x = rng.integers(0, 9, (6, 7))
    np.testing.assert_array_equal(kernels.sum_to(x, (7,)), x.sum(axis=0))
    y = np.broadcast_to(np.float32(2), (30, 40))  # a gradient of .sum()
    np.testing.assert_array_equal(kernels.sum_to(y, (40,)), np.full(40, 60))
    assert kernels.sum_to(x, (6, 7)) is x


@given(st.sampled_from([(3, 0), (2, 1), (1, 2), (0, 3)]), st.integers(1, 70_000), st.integers(1, 40))
def test_thread_count_changes_no_bit(mask, long, short):
    shape = {3: (long, short), 2: (short, long), 1: (short, long, 3), 0: (3, short, long)}[mask[0]]
    if math.prod(shape) > 3_000_000:
        shape = tuple(min(n, 300) for n in shape)
    x = np.random.default_rng(long).standard_normal(shape).astype(np.float32)
    before = minorm_ext.get_num_threads()
    try:
        results = set()
        for n in (1, 2, 3, 7):
            minorm_ext.set_num_threads(n)
            results.add(b"".join(kernels.sum_axes(x, axes).tobytes() for axes in masks(x.ndim)))
    finally:
        minorm_ext.set_num_threads(before)
    assert len(results) == 1


def test_what_merges():
    assert stages((32, 64, 8, 8), frozenset({0, 2, 3})) == ((2048, 64, 1), (1, 32, 64))
    assert stages((128, 10), frozenset({0})) == ((1, 128, 10),)
    assert stages((1, 10, 1), frozenset({0, 2})) == ((10, 1, 1),)
    assert stages((2, 3, 4, 5), frozenset({1, 3})) == ((24, 5, 1), (2, 3, 4))
    assert stages((2, 3), frozenset()) == ((6, 1, 1),)
    assert stages((2, 3), frozenset({0, 1})) == ((1, 6, 1),)
