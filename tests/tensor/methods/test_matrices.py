"""diag_embed, and diag, which is made of it; PyTorch's samples are in tests/pytorch."""

from __future__ import annotations

import numpy as np
import pytest

import minorm as mn
from minorm.testing import gradcheck


@pytest.mark.parametrize("offset", [-2, 0, 1])
def test_the_diagonal_of_what_is_embedded_is_x(offset: int, rng: np.random.Generator) -> None:
    numbers = rng.normal(size=(2, 3))
    x = mn.tensor(numbers)
    matrices = x.diag_embed(offset)
    for row, matrix in zip(numbers, matrices.numpy(), strict=True):
        np.testing.assert_array_equal(matrix, np.diag(row, offset))
    np.testing.assert_array_equal(x[0].diag(offset).numpy(), np.diag(numbers[0], offset))
    np.testing.assert_array_equal(x.diag_embed(offset, 0, 1).diagonal(offset, 0, 1).numpy(), numbers)
    assert gradcheck(lambda x: x.diag_embed(offset, 2, 0), numbers) < 1e-6


@pytest.mark.parametrize("dtype", [mn.bfloat16, mn.int64, mn.bool])
def test_every_type_stays(dtype: object) -> None:
    assert mn.ones(2).to(dtype).diag_embed().dtype == dtype
    assert mn.zeros(2, 0).to(dtype).diag_embed(1).shape == (2, 1, 1)


def test_axes_that_are_one() -> None:
    with pytest.raises(
        ValueError,
        match=r"diag_embed: dim1=0, dim2=-3; expected two different axes of the result, which has 3 axes; x\.",
    ):
        mn.zeros(2, 3).diag_embed(0, 0, -3)
    with pytest.raises(ValueError, match=r"diag_embed: x has shape \(\); expected at least one axis"):
        mn.tensor(1.0).diag_embed()
