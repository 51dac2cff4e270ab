"""normal.h: gelu, erf and their slopes against 50 digits, in units of the last place, equal bits on every level."""

from __future__ import annotations

import math

import numpy as np
import pytest

import minorm_ext
from minorm.kernels import reference
from minorm.kernels.cpu import elementwise

FLOATS = [np.float32, np.float64]
END = {np.float32: 14.4, np.float64: 38.5}  # where the tail is the smallest denormal
LOOPS = ["gelu", "gelu_grad", "gelu_tanh", "gelu_tanh_grad", "erf", "erf_grad"]
# Somewhat above the largest errors among 3.5 million floats (3.9, 6.8, 1.6, 3.1, 1.2), in units of the last place; the
# slope of gelu crosses 0, and its units are those of 1.
BOUNDS = {"gelu, x > 0": 4.5, "gelu, x < 0": 8.0, "erf": 2.0, "erf_grad": 4.0, "gelu_grad": 2.0}


def run(name, x, level, dy=None):
    kernels = minorm_ext.kernels("elementwise", level)
    out = np.empty_like(x)
    arrays = (x, None) if dy is None else (dy, x)
    kernels.run(kernels.numbers[name], *arrays, out, x.size, 2 if x.dtype == np.float32 else 3, 0.0, 1)
    return out


def points(dtype):
    rng = np.random.default_rng(3)
    end = END[dtype]
    small = rng.uniform(-1, 1, 300) * 10.0 ** rng.uniform(-30, 0, 300)
    edges = [1.0, 3.93, 5.95, math.sqrt(0.5), end, 2.0**-126, 2.0**-149, 5e-324]  # of the ranges, and denormals
    return np.concatenate(
        [small, rng.uniform(-3, 3, 500), rng.uniform(-end, end, 700), edges, np.negative(edges)]
    ).astype(dtype)


@pytest.fixture(scope="module")
def exact():
    mp = pytest.importorskip("mpmath").mp.clone()
    mp.dps = 50

    def normal(x):
        return mp.erfc(-x / mp.sqrt(2)) / 2

    formulas = {
        "gelu": lambda x: x * normal(x),
        "gelu_grad": lambda x: normal(x) + x * mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi),
        "erf": mp.erf,
        "erf_grad": lambda x: 2 / mp.sqrt(mp.pi) * mp.exp(-x * x),
    }
    return lambda name, x: [formulas[name](mp.mpf(float(value))) for value in x]


def errors(found, want, least=0.0):
    """Return errors in units of the last place of the wanted numbers, or of `least` where that is larger."""
    units = np.spacing(np.maximum([abs(float(w)) for w in want], least).astype(found.dtype))
    return np.array([float(abs(w - float(y)) / float(unit)) for y, w, unit in zip(found, want, units, strict=True)])


@pytest.mark.parametrize("dtype", FLOATS)
def test_gelu_is_exact_to_a_few_units_far_into_the_tail(dtype, exact):
    x = points(dtype)
    error = errors(run("gelu", x, "baseline"), exact("gelu", x))
    assert error[x > 0].max() <= BOUNDS["gelu, x > 0"]
    assert error[x < 0].max() <= BOUNDS["gelu, x < 0"]


@pytest.mark.parametrize("dtype", FLOATS)
def test_erf_and_the_slopes(dtype, exact):
    x = points(dtype)
    ones = np.ones_like(x)
    assert errors(run("erf", x, "baseline"), exact("erf", x)).max() <= BOUNDS["erf"]
    assert errors(run("erf_grad", x, "baseline", ones), exact("erf_grad", x)).max() <= BOUNDS["erf_grad"]
    assert errors(run("gelu_grad", x, "baseline", ones), exact("gelu_grad", x), 1.0).max() <= BOUNDS["gelu_grad"]


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_every_level_computes_the_same_bits_wherever_an_element_stands(dtype, name):
    special = [0.0, -0.0, np.inf, -np.inf, 1e-40, -1e-40, 3e38, -3e38]
    x = np.concatenate([points(dtype), np.array(special, dtype)])
    dy = np.random.default_rng(4).standard_normal(x.size).astype(dtype) if name.endswith("grad") else None
    first = run(name, x, "baseline", dy)
    for level in minorm_ext.levels():
        for start in (0, 1, 5):  # in another lane of a vector, or behind the last whole one
            part = run(name, x[start:].copy(), level, None if dy is None else dy[start:].copy())
            np.testing.assert_array_equal(part, first[start:])  # NaN is NaN
            np.testing.assert_array_equal(np.signbit(part), np.signbit(first[start:]))


@pytest.mark.parametrize("dtype", FLOATS)
def test_zeros_infinities_and_nan(dtype):
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e30, -1e30], dtype)
    y = run("erf", x, "baseline")
    np.testing.assert_array_equal(y, np.array([0, 0, 1, -1, np.nan, 1, -1], dtype))
    np.testing.assert_array_equal(np.signbit(y[:2]), [False, True])
    np.testing.assert_array_equal(run("erf_grad", x, "baseline", np.ones_like(x))[2:], [0, 0, np.nan, 0, 0])
    y = run("gelu", x, "baseline")
    np.testing.assert_array_equal(y, np.array([0, 0, np.inf, np.nan, np.nan, 1e30, 0], dtype))  # -inf * 0, as PyTorch
    np.testing.assert_array_equal(np.signbit(y[[0, 1, 6]]), [False, True, True])
    np.testing.assert_array_equal(run("gelu_grad", x, "baseline", np.ones_like(x))[5:], [1, 0])


@pytest.mark.parametrize("dtype", FLOATS)
def test_erf_is_odd_and_never_beyond_1(dtype):
    x = np.linspace(0, 7, 100_001).astype(dtype)
    y = run("erf", x, "baseline")
    np.testing.assert_array_equal(run("erf", -x, "baseline"), -y)
    assert y.max() == 1
    assert (np.diff(y) >= -2 * np.finfo(dtype).eps).all()


def test_the_reference_says_the_same(rng):
    x, dy = rng.normal(0, 3, (2, 400)).astype(np.float32)
    np.testing.assert_allclose(elementwise.erf(x), reference.elementwise.erf(x), rtol=2e-7)
    np.testing.assert_allclose(elementwise.erf_grad(dy, x), reference.elementwise.erf_grad(dy, x), rtol=1e-6)
