"""Gradient clipping against PyTorch, its float64 norm, and parameters as a vector."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

import minorm as mn
from minorm import nn


def pairs(torch, rng, dtype=np.float32):
    ours, theirs = [], []
    for shape in [(3, 4), (7,), (), (2, 0), (50, 60)]:
        p = mn.tensor(np.zeros(shape, dtype), requires_grad=True)
        g = rng.standard_normal(shape).astype(dtype)
        p.grad = mn.tensor(g)
        q = torch.zeros(shape, dtype=getattr(torch, np.dtype(dtype).name), requires_grad=True)
        q.grad = torch.tensor(g)
        ours.append(p)
        theirs.append(q)
    ours.append(mn.tensor([1.0], requires_grad=True))  # without a gradient
    return ours, theirs


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("norm_type", [2.0, 1.0, 3, math.inf])
@pytest.mark.parametrize("max_norm", [0.5, 1e4, 0.0])
def test_clip_grad_norm_is_pytorchs(norm_type, max_norm, dtype, rng):
    torch = pytest.importorskip("torch")
    ours, theirs = pairs(torch, rng, dtype)
    norm = nn.utils.clip_grad_norm_(ours, max_norm, norm_type)
    with_nonempty = [q for q in theirs if q.numel()] if norm_type == math.inf else theirs
    expected = torch.nn.utils.clip_grad_norm_(with_nonempty, max_norm, norm_type)
    assert norm.shape == ()
    assert norm.dtype == dtype
    assert norm.item() == pytest.approx(expected.item(), rel=1e-6)
    for p, q in zip(ours, theirs, strict=False):
        np.testing.assert_allclose(p.grad.array, q.grad.numpy(), rtol=1e-6)


def test_the_norm_is_taken_in_float64(rng):
    p = mn.tensor(np.zeros(1000, np.float32), requires_grad=True)
    p.grad = mn.tensor(np.full(1000, 1e30, np.float32))  # whose squares overflow float32
    assert nn.utils.clip_grad_norm_(p, 1.0).item() == pytest.approx(1e30 * math.sqrt(1000), rel=1e-6)
    assert (p.grad.array.astype(np.float64) ** 2).sum() == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_sixteen_bits(dtype):
    p = mn.Tensor(np.zeros(4, dtype), requires_grad=True)
    p.grad = mn.Tensor(np.full(4, 2, dtype))
    assert nn.utils.clip_grad_norm_([p], 1.0).item() == 4
    np.testing.assert_array_equal(p.grad.array.astype(np.float32), 0.5)


def test_not_finite():
    p = mn.tensor([1.0, 2.0], requires_grad=True)
    p.grad = mn.tensor([math.nan, 1.0])
    with pytest.raises(RuntimeError, match="clip_grad_norm_: the norm of the gradients is nan"):
        nn.utils.clip_grad_norm_([p], 1.0, error_if_nonfinite=True)
    assert p.grad.array[1] == 1.0
    assert math.isnan(nn.utils.clip_grad_norm_([p], 1.0).item())
    assert np.isnan(p.grad.array).all()  # as in PyTorch


def test_no_gradients_and_wrong_arguments():
    p = mn.tensor([1.0], requires_grad=True)
    assert nn.utils.clip_grad_norm_([p], 1.0).item() == 0
    assert nn.utils.clip_grad_norm_([], 1.0).item() == 0
    with pytest.raises(ValueError, match="max_norm=-1; expected at least 0"):
        nn.utils.clip_grad_norm_([p], -1)
    with pytest.raises(ValueError, match="norm_type=0; expected more than 0"):
        nn.utils.clip_grad_norm_([p], 1, 0)
    with pytest.raises(TypeError, match=r"clip_grad_norm_: parameters\[1\] is a ndarray; expected a Tensor"):
        nn.utils.clip_grad_norm_([p, np.zeros(3)], 1.0)
    with pytest.raises(ValueError, match="clip_value=-2; expected at least 0"):
        nn.utils.clip_grad_value_([p], -2)


def test_clip_grad_value():
    p = mn.tensor([1.0, 2.0, 3.0], requires_grad=True)
    p.grad = mn.tensor([-5.0, 0.25, 5.0])
    nn.utils.clip_grad_value_(p, 0.5)
    np.testing.assert_array_equal(p.grad.array, [-0.5, 0.25, 0.5])
    assert p.grad.version.count == 1


def test_vector_of_parameters():
    a, b = mn.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True), mn.tensor([5.0], requires_grad=True)
    vector = nn.utils.parameters_to_vector([a, b])
    np.testing.assert_array_equal(vector.array, [1, 2, 3, 4, 5])
    nn.utils.vector_to_parameters(vector * 2, [a, b])
    np.testing.assert_array_equal(a.array, [[2, 4], [6, 8]])
    np.testing.assert_array_equal(b.array, [10])
    assert (a.version.count, b.version.count) == (1, 1)
    with pytest.raises(ValueError, match=r"vector_to_parameters: vec.shape is \(5,\); expected \(4,\)"):
        nn.utils.vector_to_parameters(vector, [a])
    with pytest.raises(ValueError, match="parameters_to_vector: parameters is empty"):
        nn.utils.parameters_to_vector([])
