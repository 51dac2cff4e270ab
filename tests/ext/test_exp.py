"""simd/exp.h and simd/log.h on every level: errors in units of the last place, and the ends of the range.

The oracle is NumPy in a type with more digits: of 64 bits for float64 where this machine's long double has them. The
other functions of exp.h are activations: test_elementwise.py has their errors.
"""

from __future__ import annotations

import numpy as np
import pytest

import minorm_ext
from minorm.devices import dtypes
from minorm.kernels.cpu import elementwise
from tests.levels import at_level

LONG = np.longdouble
HAS_LONG = np.finfo(LONG).nmant >= 63
NAMES = ("exp", "expm1", "log", "log1p")
UNITS = {"exp": 1, "expm1": 2, "log": 1, "log1p": 1, "power": 1.1}  # float32's log and powers are as good as rounded
UNITS_32 = {"exp": 1, "expm1": 1.5, "log": 0.501, "log1p": 0.501, "power": 0.501}
COUNT = 20_000


@pytest.fixture(autouse=True, params=minorm_ext.levels())
def level(request):
    with at_level(request.param):
        yield request.param


def arguments(name, dtype, rng):
    """Draw arguments where a function is neither 0 nor infinite: all over its range, and where it is hard."""
    info = np.finfo(dtype)
    low, high = np.log(float(info.tiny)), np.log(float(info.max))
    sizes = np.exp(rng.uniform(low, high, COUNT))
    near = rng.uniform(-1, 1, COUNT)
    if name == "exp":
        parts = [rng.uniform(low, high, COUNT), near]
    elif name == "expm1":
        parts = [rng.uniform(-40, high, COUNT), near, np.exp(rng.uniform(low, 0, COUNT)), rng.uniform(0.3, 1.2, COUNT)]
    elif name == "log":
        parts = [sizes, 1 + near / 2, 1 + near / 1000]
    else:
        parts = [sizes, near, -np.exp(rng.uniform(-40, 0, COUNT)), 1e-8 * near]
    x = np.concatenate(parts).astype(dtype)
    return x[x > -1] if name == "log1p" else x


def units(y, exact, dtype):
    """The largest error in units of the last place, of results that are normal numbers."""
    with np.errstate(over="ignore"):
        rounded = exact.astype(dtype)
    normal = np.isfinite(rounded) & (np.abs(rounded) >= np.finfo(dtype).tiny)
    assert normal.mean() > 0.4
    error = np.abs(y.astype(exact.dtype) - exact)[normal] / np.spacing(np.abs(rounded))[normal]
    return float(error.max())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_errors(name, dtype):
    if dtype == np.float64 and not HAS_LONG:
        pytest.skip("long double has no more digits than double here")
    x = arguments(name, dtype, np.random.default_rng(1))
    exact = getattr(np, name)(x.astype(np.float64 if dtype == np.float32 else LONG))
    assert units(getattr(elementwise, name)(x), exact, dtype) <= (UNITS_32 if dtype == np.float32 else UNITS)[name]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("one", [False, True], ids=["powers", "one power for all"])
def test_errors_of_powers(dtype, one):
    if dtype == np.float64 and not HAS_LONG:
        pytest.skip("long double has no more digits than double here")
    rng = np.random.default_rng(2)
    wide = np.float64 if dtype == np.float32 else LONG
    for base, power in (
        (np.exp(rng.uniform(-20, 20, COUNT)), 4.0),
        (rng.uniform(0.5, 2, COUNT), 120.0),
        (np.exp(rng.uniform(-80, 80, COUNT)), 1.0),
        (1 + 1e-3 * rng.uniform(-1, 1, COUNT), 8e4),
    ):
        x = base.astype(dtype)
        y = (power * rng.uniform(-1, 1, 1 if one else COUNT)).astype(dtype)
        with np.errstate(over="ignore", under="ignore"):
            exact = np.power(x.astype(wide), y.astype(wide))
        assert units(elementwise.power(x, y), exact, dtype) <= (UNITS_32 if dtype == np.float32 else UNITS)["power"]


def ends(dtype):
    """Zeros, ones, infinities, NaN, denormal and huge numbers, whole and odd ones, of both signs."""
    info = np.finfo(dtype)
    numbers = [0, 1, np.inf, 2, 3, 0.5, 0.25, 7, 1e-3, 1e3, info.tiny, info.tiny / 8, info.smallest_subnormal, info.max]
    numbers += [1 + info.eps, 1 - info.eps / 2, 1 / info.eps, 2 / info.eps, 1 / info.eps + 1]  # whole from 1 / eps on
    numbers += [40, 88, 104, 709, 746, 1e10]
    with np.errstate(over="ignore"):
        return np.array([*numbers, *(-n for n in numbers), np.nan], dtype)


def same(y, expected):
    """Compare: zeros, infinities and NaN must be exactly the same, other numbers at most two units apart."""
    with np.errstate(invalid="ignore", over="ignore"):
        close = np.abs(y - expected) <= 2 * np.spacing(np.abs(expected))
    alike = (y == expected) & (np.signbit(y) == np.signbit(expected))
    return alike | (np.isnan(y) & np.isnan(expected)) | (close & np.isfinite(expected) & (expected != 0))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_ends_of_the_range_are_numpys(name, dtype):
    x = np.tile(ends(dtype), 3)
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(x)
    y = getattr(elementwise, name)(x)
    assert same(y, expected).all(), [(a, b, c) for a, b, c in zip(x, y, expected, strict=True) if not same(b, c)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_powers_of_all_ends_are_numpys(dtype):
    x, y = (np.ascontiguousarray(grid) for grid in np.meshgrid(ends(dtype), ends(dtype)))
    with np.errstate(all="ignore"):
        expected = np.power(x, y)
    found = elementwise.power(x, y)
    wrong = ~same(found, expected)
    assert not wrong.any(), list(zip(x[wrong], y[wrong], found[wrong], expected[wrong], strict=True))[:5]
    for exponent in ends(dtype):  # one exponent for all; of one 1/2 NumPy would make a root, which is NaN for -inf
        with np.errstate(all="ignore"):
            expected = np.power(x[0], np.full_like(x[0], exponent))
            found = elementwise.power(x[0].copy(), np.asarray(exponent))
        assert same(found, expected).all(), exponent


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=str)
def test_sixteen_bits_are_rounded_once(name, dtype):
    """Every one of the 65536 numbers; float32's last bit seldom decides, and then between two neighbours."""
    x = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(x.astype(np.float64)).astype(dtype)
    y = getattr(elementwise, name)(x)
    nan = np.isnan(expected.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(y.astype(np.float32)), nan)
    apart = np.abs(y.view(np.int16).astype(int) - expected.view(np.int16).astype(int))[~nan]
    assert apart.max() <= 1
    assert (apart > 0).mean() < 1e-3


def test_powers_that_are_one_rounding_are_exact():
    x = np.random.default_rng(3).standard_normal(1000)
    for exponent, expected in ((1.0, x), (2.0, x * x), (-1.0, 1 / x), (0.0, np.ones_like(x))):
        np.testing.assert_array_equal(elementwise.power(x, np.asarray(exponent)), expected)


def test_operands_of_powers_broadcast():
    a, b = np.linspace(0.5, 2, 12).reshape(3, 4), np.linspace(-2, 2, 5)[:, None, None]
    np.testing.assert_allclose(elementwise.power(a, b), np.power(a, b), rtol=1e-15)
    np.testing.assert_allclose(elementwise.power(a[0], b[:, :, 0]), np.power(a[0], b[:, :, 0]), rtol=1e-15)
    assert elementwise.power(a, np.ones((1, 1, 1, 1))).shape == (1, 1, 3, 4)
