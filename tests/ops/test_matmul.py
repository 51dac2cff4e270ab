"""Matrix products of every pair of ranks, against NumPy and finite differences."""

from __future__ import annotations

import numpy as np
import pytest

import minorm as mn
from minorm.testing import gradcheck

SHAPES = [
    ((4,), (4,)),
    ((3, 4), (4,)),
    ((4,), (4, 2)),
    ((3, 4), (4, 2)),
    ((2, 3, 4), (4, 2)),
    ((3, 4), (2, 4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (3, 4, 5)),
    ((2, 3, 4), (4,)),
    ((4,), (2, 4, 3)),
    ((0, 4), (4, 2)),
    ((3, 0), (0, 2)),
]


@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_values_and_gradients(a, b, rng) -> None:
    x, y = rng.standard_normal(a), rng.standard_normal(b)
    np.testing.assert_allclose((mn.tensor(x) @ mn.tensor(y)).array, x @ y, rtol=1e-13)
    gradcheck(lambda p, q: p @ q, x, y)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_floats_are_multiplied_in_float32(dtype) -> None:
    a = mn.ones(1, 10_000, dtype=dtype)
    product = a @ a.T
    assert product.dtype == a.dtype
    assert float(product.array[0, 0]) == pytest.approx(10_000, rel=2**-8)


def test_scalars_are_refused() -> None:
    with pytest.raises(ValueError, match=r"matmul: a is \(2,\), b is \(\)"):
        mn.ones(2) @ 3.0


def test_stacks_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match=r"leading axes \(2, 3\) and \(2,\) to be equal or 1"):
        mn.ones(2, 3, 4, 5) @ mn.ones(2, 5, 4)
    assert (mn.ones(6, 2, 3, 4, 5) @ mn.ones(3, 5, 4)).shape == (6, 2, 3, 4, 4)
