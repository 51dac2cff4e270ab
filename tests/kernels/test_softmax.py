"""Softmax, its logarithm and cross entropy of rows: float64 formulas, PyTorch, extremes, threads, levels."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minorm_ext
from minorm.kernels import cpu, reference
from minorm.kernels.cpu import elementwise as kernels


@pytest.fixture(params=minorm_ext.levels(), autouse=True)
def level(request, monkeypatch):
    monkeypatch.setattr(cpu.softmax, "_kernels", minorm_ext.kernels("softmax", request.param))


def log_softmax(x, axis):
    x = x.astype(np.float64)
    x = x - x.max(axis=axis, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=axis, keepdims=True))


SHAPES = [((5, 10), 1), ((3, 7, 4, 2), 1), ((2, 3000), -1), ((1, 70000), 1), ((6, 1), 1), ((65,), 0), ((3, 4, 129), 2)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_against_float64(shape, axis, dtype, rng):
    x = (rng.standard_normal(shape) * 5 + 100).astype(dtype)
    dy = rng.standard_normal(shape).astype(dtype)
    eps = np.finfo(dtype).eps
    logp = log_softmax(x, axis)
    p = np.exp(logp)
    np.testing.assert_allclose(kernels.log_softmax(x, axis), logp, rtol=4 * eps, atol=8 * eps)
    np.testing.assert_allclose(kernels.softmax(x, axis), p, rtol=20 * eps)
    wide = dy.astype(np.float64)
    expected = p * (wide - (wide * p).sum(axis=axis, keepdims=True))
    np.testing.assert_allclose(kernels.softmax_grad(dy, p.astype(dtype), axis), expected, rtol=2e-6, atol=8 * eps)
    total = wide.sum(axis=axis, keepdims=True)
    expected = wide - p * total
    result = kernels.log_softmax_grad(dy, logp.astype(dtype), axis)
    np.testing.assert_allclose(result, expected, rtol=1e-6, atol=20 * eps * (1 + np.abs(total).max()))


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_extremes(name):
    inf, nan = np.inf, np.nan
    x = np.array([[1e30, 0, -1e30], [3e38, 3e38, 3e38], [-inf, 0, 0], [1, nan, 2], [-inf] * 3, [inf, 0, 0]], np.float32)
    y = getattr(kernels, name)(x, 1)
    expected = np.array([[1, 0, 0], [1 / 3] * 3, [0, 0.5, 0.5], [nan] * 3, [nan] * 3, [nan] * 3])
    if name == "log_softmax":
        with np.errstate(divide="ignore"):
            expected = np.log(expected)
        expected[0] = [0, -1e30, -2e30]
    np.testing.assert_allclose(y, expected, rtol=1e-6)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize(("rows", "classes"), [(64, 10), (7, 1000), (1, 1), (300, 3)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cross_entropy_against_torch(rows, classes, label_smoothing, dtype, rng):
    torch = pytest.importorskip("torch")
    x = (rng.standard_normal((rows, classes)) * 4 + 1000).astype(dtype)  # an offset, which must not cost digits
    target = rng.integers(0, classes, rows)
    target[rng.random(rows) < 0.2] = -7
    dy = rng.standard_normal(rows).astype(dtype)
    t = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    expected = torch.nn.functional.cross_entropy(
        t, torch.tensor(target), reduction="none", ignore_index=-7, label_smoothing=label_smoothing
    )
    expected.backward(torch.tensor(dy, dtype=torch.float64))
    loss, lse = kernels.cross_entropy(x, target, -7, label_smoothing)
    dx = kernels.cross_entropy_grad(dy, x, target, lse, -7, label_smoothing)
    assert loss.dtype == dx.dtype == dtype
    assert lse.dtype == np.float64
    tolerance = 1e-6 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(loss, expected.detach().numpy(), rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(dx, t.grad.numpy(), rtol=4 * tolerance, atol=tolerance)
    reference_loss, reference_lse = reference.elementwise.cross_entropy(x, target, -7, label_smoothing)
    np.testing.assert_allclose(reference_loss, loss, rtol=2e-6, atol=2e-6)
    result = reference.elementwise.cross_entropy_grad(dy, x, target, reference_lse, -7, label_smoothing)
    np.testing.assert_allclose(result, dx, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("backend", [cpu, reference])
@pytest.mark.parametrize("wrong", [-1, 10, 2**40])
def test_a_target_that_is_no_class(backend, wrong, rng):
    x = rng.standard_normal((4, 10)).astype(np.float32)
    target = np.array([1, 2, wrong, -100])
    with pytest.raises(ValueError, match=rf"target\[2\] is {wrong}; expected a class 0 <= target < 10"):
        backend.elementwise.cross_entropy(x, target)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("wrong", [-1, 10, 2**33, -(2**62)])
def test_a_class_that_becomes_a_wrong_one_is_no_address(dtype, wrong, rng):
    x, target, dy = rng.standard_normal((4, 10)).astype(dtype), np.array([1, 2, 3, -100]), np.ones(4, dtype)
    _, lse = kernels.cross_entropy(x, target)
    expected = np.exp(log_softmax(x, 1)) - np.eye(10)[[1, 2, 3, 3]]
    expected[3] = 0  # ignored
    target[1], expected[1] = wrong, np.nan
    np.testing.assert_allclose(kernels.cross_entropy_grad(dy, x, target, lse), expected, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_sixteen_bits(dtype, rng):
    x = (rng.standard_normal((6, 20)) * 3).astype(dtype)
    y = kernels.log_softmax(x, 1)
    assert y.dtype == dtype
    np.testing.assert_array_equal(
        y.astype(np.float32), kernels.log_softmax(x.astype(np.float32), 1).astype(dtype).astype(np.float32)
    )
    loss, lse = kernels.cross_entropy(x, np.arange(6))
    assert loss.dtype == np.float32  # not rounded before it is added up
    assert kernels.cross_entropy_grad(np.ones(6, dtype), x, np.arange(6), lse).dtype == dtype


@pytest.mark.parametrize("shape", [(0, 5), (3, 0)])
def test_nothing(shape):
    x = np.zeros(shape, np.float32)
    if shape[1]:
        assert kernels.softmax(x, 1).shape == shape
        assert kernels.cross_entropy(x, np.zeros(0, np.int64))[0].shape == (0,)


@given(st.integers(1, 400), st.integers(1, 1500))
def test_thread_count_changes_no_bit(rows, classes):
    rng = np.random.default_rng(rows * 2000 + classes)
    x = rng.standard_normal((rows, classes)).astype(np.float32)
    target = rng.integers(0, classes, rows)
    before = minorm_ext.get_num_threads()
    try:
        results = set()
        for n in (1, 2, 3):
            minorm_ext.set_num_threads(n)
            loss, lse = kernels.cross_entropy(x, target, -100, 0.1)
            dx = kernels.cross_entropy_grad(loss, x, target, lse, -100, 0.1)
            results.add(b"".join(a.tobytes() for a in (kernels.softmax(x), kernels.log_softmax(x), loss, lse, dx)))
    finally:
        minorm_ext.set_num_threads(before)
    assert len(results) == 1
