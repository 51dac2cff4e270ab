"""Collectives give all ranks the same result, and raise an error if a real program would hang."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minorm.labs.ranks import Rank, RankError, simulate


def test_gather_and_reduce() -> None:
    def program(rank: Rank) -> tuple[Any, Any]:
        return rank.all_gather([rank.number, 10]), rank.all_reduce(np.full((2, 1), 1.0 + rank.number))

    for gathered, total in simulate(3, program):
        assert gathered.tolist() == [[0, 10], [1, 10], [2, 10]]
        assert total.tolist() == [[6], [6]]


def test_sums_are_added_in_one_order_the_librarys_tree() -> None:
    v = np.random.default_rng(0).standard_normal((7, 100)) * 10.0 ** np.arange(7)[:, None]
    totals = simulate(7, lambda rank: rank.all_reduce(v[rank.number]))
    expected = ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + v[6])
    assert all(np.array_equal(total, expected) for total in totals)


def test_many_rounds_do_not_mix() -> None:
    def program(rank: Rank) -> list[float]:
        return [float(rank.all_reduce(step * (rank.number + 1))) for step in range(200)]

    assert simulate(4, program) == [[10.0 * step for step in range(200)]] * 4


def test_what_one_rank_gets_is_its_own() -> None:
    def program(rank: Rank) -> float:
        found = rank.all_gather(1.0)
        found += rank.number
        rank.all_reduce(0)
        return float(found[0])

    assert simulate(3, program) == [1, 2, 3]


def test_traffic_is_counted() -> None:
    def program(rank: Rank) -> tuple[int, int]:
        rank.all_gather(np.zeros((3, 4)))
        rank.all_reduce(1.0)
        return rank.messages, rank.numbers_sent

    assert simulate(2, program) == [(2, 13)] * 2


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (lambda rank: rank.number or rank.all_reduce(1.0), "rank 0 waits in all_reduce for rank 1, which has ended"),
        (
            lambda rank: rank.all_gather(1) if rank.number else rank.all_reduce(1),
            "rank 0 calls all_reduce, but rank 1 calls all_g",
        ),
        (
            lambda rank: rank.all_gather(np.zeros(rank.number)),
            r"rank 0 sends .* \(0,\), but rank 1 one of shape \(1,\)",
        ),
    ],
)
def test_what_would_hang_is_an_error(program: Any, said: str) -> None:
    with pytest.raises(RankError, match=said):
        simulate(2, program)


def test_a_ranks_own_error_comes_first() -> None:
    def program(rank: Rank) -> None:
        if rank.number == 1:
            raise NotImplementedError("Task 9.9")
        rank.all_reduce(1.0)

    with pytest.raises(NotImplementedError, match=r"Task 9\.9"):
        simulate(3, program)
