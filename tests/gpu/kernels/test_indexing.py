"""The gradient of reading by position: the reference's sums, and what is read whole is sorted as one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm.kernels.reference import indexing as reference

WHOLE = slice(None)
ROWS = np.array([[2, 0], [2, -1], [1, 2]])
CASES: dict[str, tuple[Any, tuple[int, ...], int]] = {  # index, shape of x, positions that are sorted
    "rows": (ROWS, (4, 5), 6),
    "planes": (ROWS, (4, 5, 3), 6),
    "columns": ((WHOLE, ROWS), (5, 4), 6),
    "in the middle": ((WHOLE, WHOLE, ROWS[0], WHOLE), (2, 3, 4, 5), 2),
    "two axes": ((ROWS, ROWS[::-1]), (4, 3, 5), 6),
    "two axes behind another": ((WHOLE, ROWS, np.array(1)), (5, 4, 3), 6),
    "all axes": ((ROWS, ROWS), (4, 3), 6),
    "two that are apart": ((ROWS[0], WHOLE, ROWS[1]), (4, 5, 3), 10),
    "a part of the rest": ((ROWS, slice(1, 4)), (4, 5), 18),
    "a number": ((ROWS, 2), (4, 5), 6),
    "behind dots": ((..., ROWS), (3, 4), 18),
    "bools": (np.array([True, False, True, True]), (4, 5), 15),
    "one row": (np.array([1]), (4, 5), 1),
    "none": (np.zeros(0, int), (4, 5), 0),
    "of nothing": (ROWS, (4, 0), 6),
}


@pytest.mark.parametrize("name", CASES)
def test_sums_and_what_is_sorted(name: str, cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from minorm.kernels.gpu import indexing

    index, shape, count = CASES[name]
    dy = np.random.default_rng(0).integers(-9, 9, np.zeros(shape)[index].shape).astype(np.float32)
    argsort, seen = cuda.argsort, []
    monkeypatch.setattr(cuda, "argsort", lambda places: seen.append(places.size) or argsort(places))
    dx = indexing.add_at(cuda.array(dy), index, shape)
    assert seen == [count]
    assert (dx.shape, dx.dtype) == (shape, np.float32)
    np.testing.assert_array_equal(dx.memory, reference.add_at(dy, index, shape))


def test_the_gradient_of_an_embedding_sorts_its_words(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    table = mn.ones(11, 64, device="cuda", requires_grad=True)
    words = mn.tensor([[3, 1, 3], [3, 10, 1]], device="cuda")
    argsort, seen = cuda.argsort, []
    monkeypatch.setattr(cuda, "argsort", lambda places: seen.append(places.size) or argsort(places))
    F.embedding(words, table).sum().backward()
    assert seen == [words.numel()]
    assert table.grad is not None
    assert table.grad.cpu()[:, 5].tolist() == [0, 2, 0, 3, 0, 0, 0, 0, 0, 0, 1]


def test_a_sum_in_sixteen_bits_is_rounded_once(cuda: Any) -> None:
    from minorm.kernels.gpu import indexing

    dy = np.full((300, 2), 1 + 2**-10, np.float16)
    dx = indexing.add_at(cuda.array(dy), np.zeros(300, int), (1, 2))
    np.testing.assert_array_equal(dx.memory, np.full((1, 2), math.fsum(dy[:, 0].tolist()), np.float16))


def one_after_the_other(x: np.ndarray, index: Any, values: np.ndarray) -> np.ndarray:
    """x with the values put there row by row: of several at one place the last one stays."""
    y, places = x.copy(), np.arange(x.size).reshape(x.shape)[index]
    for place, value in zip(places.reshape(-1), np.broadcast_to(values, places.shape).reshape(-1), strict=True):
        y.reshape(-1)[place] = value
    return y


@pytest.mark.parametrize("name", CASES)
def test_of_several_at_one_place_the_last_counts(name: str, cuda: Any) -> None:
    from minorm.kernels.gpu import indexing

    index, shape, _ = CASES[name]
    rng = np.random.default_rng(0)
    x, values = rng.standard_normal(shape), rng.standard_normal(np.zeros(shape)[index].shape)
    for given in (values, values[:1], np.asfortranarray(values), values[None]):
        expected = one_after_the_other(x, index, given[0] if given.ndim > values.ndim else given)
        for _ in range(3):
            there, host = cuda.array(x), x.copy()
            indexing.put(there, index, cuda.array(given))
            np.testing.assert_array_equal(there.memory, expected)
            reference.put(host, index, given)
            np.testing.assert_array_equal(host, expected)


def test_a_part_that_is_written_need_not_lie_together(cuda: Any) -> None:
    from minorm.kernels.gpu import indexing

    x, values = cuda.zeros((4, 6)), np.arange(12.0).reshape(6, 2)
    indexing.put(x.transpose(1, 0)[:, ::2], np.array([1, 1, 4, 4, 1, 0]), cuda.array(values))
    expected = np.zeros((4, 6))
    expected.T[:, ::2] = one_after_the_other(np.zeros((6, 2)), np.array([1, 1, 4, 4, 1, 0]), values)
    np.testing.assert_array_equal(x.memory, expected)


def _unpooled(at: Any, values: Any) -> Any:
    places = at.reshape(1, 1, -1)
    return F.max_unpool1d(values.reshape(1, 1, -1), places, 2)


def _assigned(at: Any, values: Any) -> Any:
    x = mn.zeros(12, device=values.device)
    x[at] = values
    return x


def _recorded(at: Any, values: Any) -> Any:
    x = mn.zeros(12, device=values.device, requires_grad=True) * 1
    x[at] = values
    return x


def _of_a_view(at: Any, values: Any) -> Any:
    x = mn.zeros(12, 2, device=values.device)
    x[:, 1][at] = values
    return x


WRITES: dict[str, Any] = {
    "scatter": lambda at, v: mn.zeros(12, device=v.device).scatter(0, at, v),
    "index_copy": lambda at, v: mn.zeros(12, device=v.device).index_copy(0, at, v),
    "index_copy of rows": lambda at, v: mn.zeros(12, 3, device=v.device).index_copy(0, at, v[:, None].expand(40, 3)),
    "x[i] = y": _assigned,
    "x[i] = y, in a graph": _recorded,
    "x[:, 1][i] = y": _of_a_view,
    "max_unpool1d": _unpooled,
}


@pytest.mark.parametrize("name", WRITES)
def test_what_writes_by_position_has_the_bits_of_the_cpu_each_time(name: str, cuda: Any) -> None:
    rng = np.random.default_rng(1)
    places, numbers = rng.integers(0, 12, 40), rng.standard_normal(40).astype(np.float32)
    expected = WRITES[name](mn.tensor(places), mn.tensor(numbers)).numpy()
    for _ in range(5):
        at, values = (mn.tensor(array, device="cuda") for array in (places, numbers))
        found = WRITES[name](at, values).cpu().numpy()
        np.testing.assert_array_equal(found, expected)
    assert cuda.transfers.atomics == 0


def test_weights_that_are_counted_are_added_in_order(cuda: Any) -> None:
    rng = np.random.default_rng(1)
    places, weights = rng.integers(0, 5, 300), rng.standard_normal(300)
    there = mn.tensor(places, device="cuda").bincount(mn.tensor(weights, device="cuda"), minlength=7)
    exact = [math.fsum(weights[places == place]) for place in range(7)]
    np.testing.assert_allclose(there.cpu().numpy(), exact, rtol=1e-13, atol=1e-13)
    assert cuda.transfers.atomics == 0
    assert mn.zeros(0, dtype=mn.int64, device="cuda").bincount(mn.zeros(0, device="cuda"), minlength=2).tolist() == [
        0,
        0,
    ]
