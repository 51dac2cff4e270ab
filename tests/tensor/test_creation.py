"""Tensors made of numbers: shapes, types, ranges."""

from __future__ import annotations

import numpy as np
import pytest

import minorm as mn


def test_filled() -> None:
    assert mn.zeros(2, 3).shape == (2, 3)
    assert mn.zeros((2, 3)).dtype == mn.float32
    assert mn.ones(2, dtype=mn.bfloat16).tolist() == [1, 1]
    assert mn.full((2,), 7, dtype=mn.int64).tolist() == [7, 7]
    assert mn.full_like(mn.zeros(3, dtype=mn.float64), 2).dtype == mn.float64
    assert mn.empty(0, 4).shape == (0, 4)
    assert mn.eye(2).tolist() == [[1, 0], [0, 1]]
    assert mn.ones_like(mn.zeros(2), requires_grad=True).requires_grad


def test_ranges() -> None:
    assert mn.arange(3).tolist() == [0, 1, 2]
    assert mn.arange(3).dtype == mn.int64
    assert mn.arange(1, 2, 0.5).dtype == mn.float32
    assert mn.linspace(0, 1, 3).tolist() == [0, 0.5, 1]


def test_random_fills() -> None:
    x = mn.rand(10_000)
    assert 0 <= x.amin().item() <= x.amax().item() < 1
    assert abs(mn.randn(10_000).mean().item()) < 0.05
    assert set(mn.randint(2, 4, 100).tolist()) == {2, 3}
    assert sorted(mn.randperm(9).tolist()) == list(range(9))
    assert mn.randn().shape == ()


def test_as_tensor_copies_only_where_it_must() -> None:
    array = np.ones(2, np.float32)
    assert mn.as_tensor(array).array is array
    x = mn.ones(2)
    assert mn.as_tensor(x) is x
    assert mn.as_tensor(x, mn.float64).dtype == mn.float64
    with pytest.raises(TypeError, match="from_numpy: got list"):
        mn.from_numpy([1])


def test_bad_sizes_are_named() -> None:
    with pytest.raises(TypeError, match=r"zeros: \(2, 'x'\) holds something that is not an integer"):
        mn.zeros(2, "x")


def test_a_range_of_integer_tensors_has_integers() -> None:
    for whole in (mn.tensor(5), mn.tensor(5, dtype=mn.uint8), mn.tensor(5, dtype=mn.int32)):
        found = mn.arange(whole)
        assert (found.dtype, found.tolist()) == (mn.int64, [0, 1, 2, 3, 4])
    found = mn.arange(mn.tensor(1), mn.tensor(8), mn.tensor(3))
    assert (found.dtype, found.tolist()) == (mn.int64, [1, 4, 7])
    found = mn.arange(mn.tensor(1), mn.tensor(2.5), 0.5)
    assert (found.dtype, found.tolist()) == (mn.float32, [1.0, 1.5, 2.0])
    assert mn.arange(mn.tensor(3.0)).dtype == mn.float32
