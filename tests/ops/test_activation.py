"""Activations: float64 formulas, finite differences, PyTorch, and inputs that saturate."""

from __future__ import annotations

import math

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm.testing import gradcheck

erf = np.vectorize(math.erf, otypes=[np.float64])


def cut(x, low, high):
    return np.minimum(np.maximum(x, low), high)


def soft(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


CASES = {  # name: (options, formula)
    "relu": ({}, lambda x: np.maximum(x, 0)),
    "relu6": ({}, lambda x: cut(x, 0, 6)),
    "leaky_relu": ({"negative_slope": 0.2}, lambda x: np.where(x > 0, x, 0.2 * x)),
    "elu": ({"alpha": 1.3}, lambda x: np.where(x > 0, x, 1.3 * np.expm1(x))),
    "gelu": ({}, lambda x: x * (1 + erf(x / math.sqrt(2))) / 2),
    "gelu-tanh": (
        {"approximate": "tanh"},
        lambda x: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    ),
    "silu": ({}, lambda x: x / (1 + np.exp(-x))),
    "sigmoid": ({}, lambda x: 1 / (1 + np.exp(-x))),
    "tanh": ({}, np.tanh),
    "hardswish": ({}, lambda x: x * cut(x + 3, 0, 6) / 6),
    "hardsigmoid": ({}, lambda x: cut(x + 3, 0, 6) / 6),
    "softplus": ({"beta": 2.0, "threshold": 5.0}, lambda x: np.where(2 * x > 5, x, np.log1p(np.exp(2 * x)) / 2)),
    "softmax": ({"dim": 1}, lambda x: soft(x, 1)),
    "log_softmax": ({"dim": -2}, lambda x: np.log(soft(x, -2))),
}
NAMES = list(CASES)
EPSILON = {mn.float16: 2.0**-10, mn.bfloat16: 2.0**-7, mn.float32: 2.0**-23}


def function(name):
    return getattr(F, name.partition("-")[0])


@pytest.mark.parametrize("name", NAMES)
def test_values_and_gradients(name, rng):
    options, formula = CASES[name]
    x = rng.uniform(-8, 8, (3, 4, 5))
    np.testing.assert_allclose(function(name)(mn.tensor(x), **options).array, formula(x), rtol=1e-13, atol=1e-15)
    gradcheck(lambda t: function(name)(t, **options), x)


@pytest.mark.parametrize("dtype", [mn.float16, mn.bfloat16, mn.float32], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_narrow_types_are_rounded_once(name, dtype, rng):
    options, formula = CASES[name]
    x = rng.uniform(-8, 8, (3, 40, 5)).astype(dtype)
    y = function(name)(mn.tensor(x), **options)
    assert y.dtype == dtype
    exact = formula(x.astype(np.float64))
    unit = EPSILON[dtype] * np.maximum(np.abs(exact), 0.1)
    slack = 8 if dtype == mn.float32 else 1
    assert (np.abs(y.array.astype(np.float64) - exact) <= slack * unit).all()


@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_narrow_types_follow_float64(name, rng):
    options, _ = CASES[name]
    x = rng.uniform(-8, 8, (3, 4, 5)).astype(np.float16)
    gradient = rng.standard_normal(x.shape).astype(np.float16)
    found = []
    for dtype in (np.float16, np.float64):
        leaf = mn.tensor(x.astype(dtype), requires_grad=True)
        function(name)(leaf, **options).backward(gradient.astype(dtype))
        assert leaf.grad.dtype == dtype
        found.append(leaf.grad.array.astype(np.float64))
    # a gradient that is computed from the rounded output carries that rounding too
    np.testing.assert_allclose(found[0], found[1], atol=2e-3 * (1 + np.abs(gradient).max()), rtol=2e-3)


@pytest.mark.parametrize("name", NAMES)
def test_as_in_pytorch(name, rng):
    torch = pytest.importorskip("torch")
    options, _ = CASES[name]
    x = np.concatenate([rng.uniform(-8, 8, (2, 3, 6)), np.broadcast_to([-6.0, -3, 0, 3, 6, -0.0], (2, 3, 6))], 1)
    theirs = torch.tensor(x, requires_grad=True)
    ours = mn.tensor(x, requires_grad=True)
    gradient = rng.standard_normal(x.shape)
    y = function(name)(ours, **options)
    expected = getattr(torch.nn.functional, name.partition("-")[0])(theirs, **options)
    y.backward(gradient)
    expected.backward(torch.tensor(gradient))
    np.testing.assert_allclose(y.array, expected.detach().numpy(), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(ours.grad.array, theirs.grad.numpy(), rtol=1e-6, atol=1e-7 if "hard" in name else 1e-13)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", [n for n in NAMES if "softmax" not in n])
@pytest.mark.filterwarnings("error")
def test_large_inputs_saturate(name, dtype):
    options, _ = CASES[name]
    x = mn.tensor(np.array([-1e30, -1000, -100, 100, 1000, 1e30], dtype), requires_grad=True)
    y = function(name)(x, **options)
    y.sum().backward()
    assert np.isfinite(y.array).all()
    assert np.isfinite(x.grad.array).all()
    limits = {"sigmoid": (0, 1), "tanh": (-1, 1), "hardsigmoid": (0, 1), "relu6": (0, 6)}
    low, high = limits.get(name, ({"elu": -1.3, "leaky_relu": -2e29}.get(name, 0), 1e30))
    np.testing.assert_allclose(y.array[[0, -1]], np.array([low, high], dtype), rtol=1e-6)


@pytest.mark.parametrize("name", [n for n in NAMES if "softmax" not in n])
def test_nan_stays_where_it_is(name):
    options, _ = CASES[name]
    y = function(name)(mn.tensor(np.array([np.nan, 1.0])), **options)
    np.testing.assert_array_equal(np.isnan(y.array), [True, False])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_softmax_of_huge_and_masked_logits(dtype):
    x = mn.tensor(np.array([[1e30, -1e30, 0], [-np.inf, 1, 1]], dtype), requires_grad=True)
    np.testing.assert_array_equal(F.softmax(x, 1).array, [[1, 0, 0], [0, 0.5, 0.5]])
    y = F.log_softmax(x, 1)
    np.testing.assert_allclose(y.array, [[0, -2e30, -1e30], [-np.inf, -np.log(2), -np.log(2)]], rtol=1e-6)
    y[0].sum().backward()
    np.testing.assert_allclose(x.grad.array, [[-2, 1, 1], [0, 0, 0]])


@pytest.mark.parametrize("shape", [(4,), (1, 1), (0, 3), (2, 3, 4), (2, 3, 4, 5)])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_along_every_axis(name, shape, rng):
    x = rng.standard_normal(shape)
    for dim in range(-len(shape), len(shape)):
        if shape[dim] == 0:
            continue
        expected = soft(x, dim) if name == "softmax" else np.log(soft(x, dim))
        np.testing.assert_allclose(function(name)(mn.tensor(x), dim).array, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", NAMES)
def test_strides_do_not_matter(name, rng):
    options, _ = CASES[name]
    x = rng.standard_normal((4, 5, 6)).astype(np.float32)
    plain = function(name)(mn.tensor(x), **options).array
    for array in (np.asfortranarray(x), np.flip(np.flip(x, 0).copy(), 0), np.repeat(x, 2, 2)[..., ::2]):
        leaf = mn.from_numpy(array).requires_grad_()
        y = function(name)(leaf, **options)
        np.testing.assert_allclose(y.array, plain, rtol=1e-6, atol=1e-7)
        y.sum().backward()  # a gradient of stride 0
        copy = mn.tensor(x, requires_grad=True)
        function(name)(copy, **options).backward(np.ones_like(x))
        np.testing.assert_allclose(leaf.grad.array, copy.grad.array, rtol=1e-5, atol=1e-6)
