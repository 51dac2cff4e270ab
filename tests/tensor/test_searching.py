"""searchsorted, bucketize and isin; PyTorch's samples, NaN and infinities are in tests/pytorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int64", "uint8"])
@pytest.mark.parametrize("right", [False, True])
def test_places_of_every_type(dtype: str, right: bool, rng: np.random.Generator) -> None:
    numbers = rng.integers(0, 9, (3, 7)), rng.integers(0, 9, (3, 4))
    rows, x = (mn.tensor(n).to(getattr(mn, dtype)) for n in numbers)
    rows = rows.sort(-1).values
    theirs, y = (torch.tensor(n).to(getattr(torch, dtype)) for n in numbers)
    theirs = theirs.sort(-1).values
    for order, other, found in ((rows, theirs, x), (rows[0], theirs[0], x), (rows[1], theirs[1], x.T)):
        wanted = torch.searchsorted(other, y if found is x else y.T.contiguous(), right=right)
        assert mn.searchsorted(order, found, right=right).tolist() == wanted.tolist()
    expected = torch.bucketize(y, theirs[0], right=right, out_int32=True)
    places = mn.bucketize(x, rows[0], right=right, out_int32=True)
    assert (places.dtype, places.tolist()) == (mn.int32, expected.tolist())
    assert mn.isin(x, rows[0]).tolist() == np.isin(numbers[1], numbers[0][0]).tolist()


def test_many_rows(rng: np.random.Generator) -> None:
    rows, x = np.sort(rng.normal(size=(2, 3, 1000)), -1), rng.normal(size=(2, 3, 5))
    found = mn.searchsorted(mn.tensor(rows), mn.tensor(x)).numpy()
    expected = [[np.searchsorted(rows[i, j], x[i, j]) for j in range(3)] for i in range(2)]
    np.testing.assert_array_equal(found, expected)


def test_by_a_sorter_and_by_a_side() -> None:
    sequence = mn.tensor([5, 1, 3])
    assert mn.searchsorted(sequence, 3, sorter=sequence.argsort()).item() == 1
    assert mn.searchsorted(sequence.sort().values, 3, side="right").item() == 2


def test_integers_beside_floats() -> None:
    assert mn.bucketize(mn.tensor([1, 2]), mn.tensor([1.5])).tolist() == [0, 1]
    assert mn.isin(mn.tensor([1, 2]), mn.tensor([2.0, 1.5])).tolist() == [False, True]
    with pytest.raises(TypeError, match="isin: operands are float32 and float64; expected one float type"):
        mn.isin(mn.ones(2), mn.ones(2).double())


def test_what_does_not_fit_is_an_error() -> None:
    x: Any = mn.zeros(2, 3)
    message = r"sorted_sequence has shape \(3, 3\), input \(2, 3\); expected a vector, or shapes that are equal except"
    with pytest.raises(ValueError, match=message):
        mn.searchsorted(mn.zeros(3, 3), x)
    with pytest.raises(ValueError, match=r"bucketize: boundaries has shape \(2, 3\); expected a vector"):
        mn.bucketize(x, x)
    for options in ({"side": "middle"}, {"side": "left", "right": True}):
        with pytest.raises(ValueError, match=r"searchsorted: side is .* expected 'left' with right=False"):
            mn.searchsorted(x[0], x, **options)


def test_places_have_no_gradient() -> None:
    x = mn.ones(2, requires_grad=True)
    assert not mn.searchsorted(x, x).requires_grad
    assert not mn.isin(x, x).requires_grad
