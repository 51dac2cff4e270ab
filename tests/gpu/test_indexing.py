"""The gradient of reading by position: the reference's sums, and what is read whole is sorted as one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

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
    import minorm as mn
    import minorm.functional as F

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
