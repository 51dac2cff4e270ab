"""Samplers: each gives what it promises, and draws the same after the same seed."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import minorm as mn
from minorm.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    random_split,
)


def test_orders() -> None:
    data = list(range(10))
    assert list(SequentialSampler(data)) == data
    assert sorted(RandomSampler(data)) == data
    assert len(list(RandomSampler(data, num_samples=25))) == len(RandomSampler(data, num_samples=25)) == 25
    assert set(RandomSampler(data, replacement=True, num_samples=50)) <= set(data)
    assert sorted(SubsetRandomSampler([3, 5, 7])) == [3, 5, 7]
    mn.manual_seed(3)
    first = list(RandomSampler(data))
    mn.manual_seed(3)
    assert list(RandomSampler(data)) == first


def test_weights_decide() -> None:
    drawn = Counter(WeightedRandomSampler([0, 1, 3], 4000))
    assert set(drawn) == {1, 2}
    assert 2.5 < drawn[2] / drawn[1] < 3.5
    assert sorted(WeightedRandomSampler([1, 1, 1], 3, replacement=False)) == [0, 1, 2]
    with pytest.raises(ValueError, match="WeightedRandomSampler: num_samples=4 of 3"):
        WeightedRandomSampler([1, 1, 1], 4, replacement=False)


@pytest.mark.parametrize(("drop", "expected"), [(False, [[0, 1, 2], [3, 4, 5], [6]]), (True, [[0, 1, 2], [3, 4, 5]])])
def test_batches(drop: bool, expected: list[list[int]]) -> None:
    batches = BatchSampler(SequentialSampler(range(7)), 3, drop)
    assert list(batches) == expected
    assert len(batches) == len(expected)


def test_datasets_together_and_apart() -> None:
    one, two = (TensorDataset(mn.arange(a, b), mn.ones(b - a)) for a, b in ((0, 3), (3, 8)))
    both = ConcatDataset([one, two])
    assert [int(both[i][0]) for i in range(8)] == list(range(8))
    assert int(both[-1][0]) == 7
    with pytest.raises(IndexError, match="index 8 is out of range"):
        both[8]
    parts = random_split(both, [5, 3])
    assert sorted(int(part[i][0]) for part in parts for i in range(len(part))) == list(range(8))
    assert [len(part) for part in random_split(both, [0.5, 0.5])] == [4, 4]
    with pytest.raises(ValueError, match=r"random_split: lengths are \[5, 5\]"):
        random_split(both, [5, 5])
    x, ones = next(iter(DataLoader(two, batch_size=5)))
    np.testing.assert_array_equal(x.array, [3, 4, 5, 6, 7])
    assert isinstance(two[0][1], mn.Tensor)
    assert ones.shape == (5,)
