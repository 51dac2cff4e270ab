"""nansum, nanmean and diff; PyTorch's samples, and NaN everywhere, are in tests/pytorch."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import minorm as mn
from minorm.testing import gradcheck


@pytest.mark.parametrize("dtype", [mn.float16, mn.bfloat16])
def test_sums_and_means_of_many_16_bit_numbers(dtype: object) -> None:
    """bfloat16 counts to 256, and float16 adds up to 65504."""
    x = mn.full((3000,), 30.0).to(dtype)
    x[::2] = float("nan")
    assert (x.nanmean().dtype, x.nanmean().item()) == (dtype, 30.0)
    assert x.nansum().float().item() == pytest.approx(45_000, rel=2**-8)


def test_means_of_nothing_are_nan_in_silence() -> None:
    x = mn.tensor([[np.nan, np.nan], [1.0, np.nan]], requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mean = x.nanmean(1)
        mean.sum().backward()
    np.testing.assert_array_equal(mean.detach().numpy(), [np.nan, 1.0])
    assert x.grad is not None
    assert x.grad.tolist() == [[0.0, 0.0], [1.0, 0.0]]
    assert mn.zeros(0).nansum().item() == 0.0


def test_integers() -> None:
    n = mn.tensor([1, 2], dtype=mn.uint8)
    assert (n.nansum().dtype, n.nansum().item()) == (mn.int64, 3)
    assert n.nanmean(dtype=mn.float64).item() == 1.5
    with pytest.raises(TypeError, match="nanmean: x is uint8; expected a float type"):
        n.nanmean()


def test_differences_are_numpys(rng: np.random.Generator) -> None:
    x, before, behind = rng.normal(size=(3, 4)), rng.normal(size=(3, 2)), rng.normal(size=(3, 1))
    for n in range(1, 9):
        expected = np.diff(x, n, 1, before, behind)
        found = mn.tensor(x).diff(n, 1, mn.tensor(before), mn.tensor(behind)).numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    assert gradcheck(lambda x, b: x.diff(2, 0, prepend=b), x, x[:1]) < 1e-6
    bools = np.array([True, True, False])
    np.testing.assert_array_equal(mn.tensor(bools).diff().numpy(), np.diff(bools))


def test_differences_that_cannot_be_taken() -> None:
    x = mn.zeros(2, 3)
    with pytest.raises(ValueError, match=r"diff: n is -1; expected at least 0; x.shape is \(2, 3\)"):
        x.diff(-1)
    with pytest.raises(ValueError, match=r"diff: shapes are \(3, 1\), \(2, 3\); expected shapes that differ in axis 1"):
        x.diff(prepend=mn.zeros(3, 1))
