"""Fused optimizer steps against the reference, and the kernels' own contract; PyTorch is asked in tests/optim."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minorm_ext
from minorm.kernels import cpu, reference

SHAPES = [(), (3,), (0,), (17, 5), (4, 3, 3, 3), (70_000,)]
SGD = [
    {},
    {"weight_decay": 0.1},
    {"momentum": 0.9},
    {"momentum": 0.9, "weight_decay": 0.1, "nesterov": True},
    {"momentum": 0.5, "dampening": 0.3, "maximize": True},
    {"maximize": True, "weight_decay": 0.01},
]
ADAM = [
    {},
    {"weight_decay": 0.1},
    {"weight_decay": 0.1, "decoupled": True},
    {"maximize": True},
    {"weight_decay": 0.1, "decoupled": True, "maximize": True},
]


@pytest.fixture(params=minorm_ext.levels())
def level(request, monkeypatch):
    monkeypatch.setattr(cpu.update, "_kernels", minorm_ext.kernels("update", request.param))


def arrays(rng, count, dtype, positive=False):
    values = [[rng.standard_normal(shape) for shape in SHAPES] for _ in range(count)]
    return [[np.array(np.abs(a) if positive else a, dtype) for a in group] for group in values]


def copies(groups):
    return [[a.copy() for a in group] for group in groups]


def assert_close(ours, theirs, dtype):
    tolerance = {np.float32: 1e-6, np.float64: 1e-14}.get(dtype, 0)
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == dtype
        np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("options", SGD)
def test_sgd_is_the_reference(options, dtype, level, rng):
    ours = arrays(rng, 3, dtype)
    theirs = copies(ours)
    gradients = [g.copy() for g in ours[1]]
    cpu.update.sgd(*ours, lr=0.1, **options)
    reference.update.sgd(*theirs, lr=0.1, **options)
    for a, b in zip(ours, theirs, strict=True):
        assert_close(a, b, dtype)
    assert_close(ours[1], gradients, dtype)  # gradients stay


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("options", ADAM)
def test_adam_is_the_reference(options, amsgrad, dtype, level, rng):
    signed, positive = arrays(rng, 3, dtype), arrays(rng, 2, dtype, positive=True)
    ours = [*signed, positive[0], positive[1] if amsgrad else []]
    theirs = copies(ours)
    steps = [1, 2, 3, 10, 1000, 100_000]
    settings = {"lr": 0.01, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, **options}
    cpu.update.adam(*ours, steps, **settings)
    reference.update.adam(*theirs, steps, **settings)
    for a, b in zip(ours, theirs, strict=True):
        if a:
            assert_close(a, b, dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_scale_and_square_sum(dtype, level, rng):
    (ours,) = arrays(rng, 1, dtype)
    theirs = [a.copy() for a in ours]
    for a in ours:
        exact = (a.astype(np.float64) ** 2).sum()
        assert cpu.update.square_sum(a) == pytest.approx(exact, rel=1e-12)
        assert reference.update.square_sum(a) == pytest.approx(exact, rel=1e-12)
    cpu.update.scale(ours, 0.3)
    reference.update.scale(theirs, 0.3)
    assert_close(ours, theirs, dtype)
    assert cpu.update.square_sum(np.full(5, 1e30, np.float32)) == pytest.approx(5e60)  # beyond float32


def test_layouts_the_kernels_leave_out(rng):
    for layout in (np.asfortranarray, lambda a: np.repeat(a, 2, axis=1)[:, ::2]):
        p, g, m = (layout(rng.standard_normal((20, 30)).astype(np.float32)) for _ in range(3))
        expected = [a.copy() for a in (p, g, m)]
        cpu.update.sgd([p], [g], [m], lr=0.1, momentum=0.9)
        reference.update.sgd(*([a] for a in expected), lr=0.1, momentum=0.9)
        np.testing.assert_allclose(p, expected[0], rtol=1e-6)
        np.testing.assert_allclose(m, expected[2], rtol=1e-6)


def test_read_only_parameters_are_an_error(rng):
    p = np.ones(10, np.float32)
    p.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        cpu.update.sgd([p], [np.ones(10, np.float32)], [], lr=0.1)


def test_no_weight_decay_means_none():
    p = np.array([np.inf, 1.0], np.float32)
    cpu.update.sgd([p], [np.zeros(2, np.float32)], [], lr=0.1)  # 0 * inf would be NaN
    np.testing.assert_array_equal(p, [np.inf, 1])


@given(st.integers(1, 600_000))
def test_thread_count_changes_no_bit(size):
    rng = np.random.default_rng(size)
    values = rng.standard_normal((3, size)).astype(np.float32)
    before = minorm_ext.get_num_threads()
    try:
        results = set()
        for n in (1, 2, 3):
            minorm_ext.set_num_threads(n)
            p, g, m = values.copy()
            v = np.abs(m)
            total = cpu.update.square_sum(g)
            cpu.update.sgd([p], [g], [m], lr=0.1, momentum=0.9, weight_decay=0.1)
            cpu.update.adam([p], [g], [m], [v], [], [3], lr=0.1, beta1=0.9, beta2=0.99, eps=1e-8)
            results.add((total, p.tobytes(), m.tobytes(), v.tobytes()))
    finally:
        minorm_ext.set_num_threads(before)
    assert len(results) == 1
