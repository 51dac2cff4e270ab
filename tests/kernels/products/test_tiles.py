"""bfloat16 in the order of a processor's tiles: NumPy's twin against exact fractions, every level against the twin.

docs/maths-narrow-types.md defines the order. The oracle below has it in Python's fractions, which round nothing by
themselves.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minorm_ext
from minorm.devices.dtypes import bfloat16
from minorm.kernels.cpu import elementwise
from minorm.kernels.cpu.memory import empty
from minorm.kernels.reference import tiles

SEEDS = st.integers(0, 2**32 - 1)
SIDES = st.integers(1, 40) | st.sampled_from([96, 97, 200])
LARGEST = Fraction(float(np.finfo(np.float32).max))


def numbers(shape, seed, exponent=0):
    """Numbers of very different size, a few of them zeros of either sign."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape) * 2.0 ** (exponent + rng.integers(-8, 5, shape))
    return np.where(rng.random(shape) < 0.05, np.copysign(0.0, values), values).astype(bfloat16)


def rounded(exact: Fraction, zero: float) -> np.float32:
    """The float32 next to a fraction, ties to even; `zero` is what an exact 0 becomes, denormals their sign's zero."""
    if exact == 0:
        return np.float32(zero)
    sign = -1 if exact < 0 else 1
    size, exponent = abs(exact), -149
    while size / Fraction(2) ** exponent >= 2**24:
        exponent += 1
    whole = round(size / Fraction(2) ** exponent)  # Python rounds ties to even
    value = whole * Fraction(2) ** exponent
    if value < Fraction(2) ** -126:
        return np.float32(np.copysign(0.0, sign))
    return np.float32(sign * (float(value) if value <= LARGEST else np.inf))


def plus(a: np.float32, b: np.float32) -> np.float32:
    return rounded(Fraction(float(a)) + Fraction(float(b)), float(a + b))


def multiply_add(a: np.float32, b: np.float32, c: np.float32) -> np.float32:
    return rounded(Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c)), float(a * b + c))


def sum_by_fractions(a, b) -> np.float32:
    """One number of a product, from a row and a column of float32."""
    total = np.float32(0)
    for begin in range(0, len(a), 32):
        chains = [np.float32(0), np.float32(0)]
        for k in range(begin, begin + 32):
            pair = (a[k], b[k]) if k < len(a) else (np.float32(0), np.float32(0))
            chains[k % 2] = multiply_add(*pair, chains[k % 2])
        total = plus(total, plus(*chains))
    return total


@pytest.mark.parametrize("exponent", [0, -60, -65])
@pytest.mark.parametrize("depth", [1, 2, 31, 32, 33, 63, 70])
def test_the_twin_is_the_order_in_fractions(depth, exponent):
    """Also where products and sums are so small that they count as zero."""
    a, b = numbers((2, depth), depth, exponent), numbers((depth, 3), depth + 1, exponent)
    got = tiles.product(a, b)
    wide = [tiles.flushed(x.astype(np.float32)) for x in (a, b)]
    expected = [[sum_by_fractions(row, column) for column in wide[1].T] for row in wide[0]]
    np.testing.assert_array_equal(got.view(np.uint32), np.array(expected, np.float32).view(np.uint32))


def test_the_order_is_none_of_the_others():
    """One chain, or a sum in float64, gives other bits: the test above would notice."""
    a, b = numbers((8, 300), 1), numbers((300, 8), 2)
    got, wide = tiles.product(a, b), [x.astype(np.float64) for x in (a, b)]
    chain = np.zeros((8, 8), np.float32)
    for k in range(300):
        chain = tiles.multiply_add(*(np.float32(x) for x in (a[:, k, None], b[None, k])), chain)
    assert (chain != got).any()
    assert ((wide[0] @ wide[1]).astype(np.float32) != got).any()
    np.testing.assert_allclose(got, wide[0] @ wide[1], rtol=0, atol=1e-6 * (abs(wide[0]) @ abs(wide[1])).max())


@given(rows=SIDES, depth=SIDES | st.just(1100), columns=SIDES, bias=st.booleans(), seed=SEEDS,
       turned=st.tuples(st.booleans(), st.booleans()), exponent=st.sampled_from([0, 0, -58, -62, 61]))  # fmt: skip
def test_every_level_has_the_bits_of_the_twin(rows, depth, columns, bias, seed, turned, exponent):
    rows, columns = (min(rows, 20), min(columns, 20)) if depth > 40 else (rows, columns)
    a = numbers((depth, rows), seed, exponent).T if turned[0] else numbers((rows, depth), seed, exponent)
    b = numbers((columns, depth), seed + 1, exponent).T if turned[1] else numbers((depth, columns), seed + 1, exponent)
    more = numbers(columns, seed + 2, 2 * exponent) if bias else None
    with np.errstate(over="ignore", invalid="ignore"):
        expected = tiles.with_bias(tiles.product(a, b), more)
    for level in minorm_ext.levels():
        for threads in (1, 2):
            got = minorm_ext.kernels("products", level).multiply(a, b, more, empty, threads)
            np.testing.assert_array_equal(got.astype(np.float32), expected.astype(bfloat16).astype(np.float32), level)
            same = ~np.isnan(expected)
            np.testing.assert_array_equal(np.signbit(got)[same], np.signbit(expected)[same], level)


def test_stacks_steps_and_a_depth_that_is_packed_in_pieces():
    a, b = numbers((3, 2, 20, 40), 1), numbers((3, 2, 40, 9), 2)
    cases = [(a, b), (a[:, :, ::2], b[..., ::-1]), (np.broadcast_to(a[:1], a.shape), b), (a[:, :1, :1], b[:, :1])]
    cases += [(numbers((2, 33_000), 3), numbers((33_000, 3), 4)), (numbers((70, 5), 5), numbers((5, 1), 6))]
    for left, right in cases:
        expected = tiles.product(left, right).astype(bfloat16)
        for level in minorm_ext.levels():
            got = minorm_ext.kernels("products", level).multiply(left, right, None, empty, 2)
            assert got.tobytes() == expected.tobytes(), (level, left.shape, right.shape)


def test_the_caller_keeps_its_denormals():
    """Inside they count as zero; outside NumPy still has them, and so has every thread that took part."""
    tiny = np.full((700, 700), 2.0**-130, np.float32)
    before = minorm_ext.get_num_threads()
    try:
        minorm_ext.set_num_threads(2)
        product = minorm_ext.kernels("products").multiply(tiny.astype(bfloat16), tiny.astype(bfloat16), None, empty, 2)
        assert not product.any()
        assert (tiny * np.float32(0.5)).all()
        assert elementwise.scale(tiny, 0.5).all()
    finally:
        minorm_ext.set_num_threads(before)
