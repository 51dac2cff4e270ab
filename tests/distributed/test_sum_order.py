"""The tree over ranks: every rank once, one bracket for any number of processes, and the promised volume."""

from __future__ import annotations

import pytest

from minorm.distributed import sum_order

SIZES = range(1, 17)


def bracket(size: int, processes: int) -> str:
    """Write out the order of the sums as brackets; each process adds up its largest subtrees itself."""
    parts = {}
    for process in range(processes):
        ranks = sum_order.carried(process, processes, size)
        leaves = {(rank, rank + 1): str(rank) for rank in ranks}
        for start, stop in sum_order.subtrees(ranks, 0, size):
            parts[start, stop] = sum_order.total(leaves, lambda a, b: f"({a} {b})", start, stop)
    return sum_order.total(parts, lambda a, b: f"({a} {b})", 0, size)


def paired_from_below(size: int) -> str:
    """The same by its definition: pairs, then pairs of pairs; the last of an odd level goes up alone."""
    level = [str(rank) for rank in range(size)]
    while len(level) > 1:
        pairs = [f"({a} {b})" for a, b in zip(level[::2], level[1::2], strict=False)]
        level = pairs + level[2 * len(pairs) :]
    return level[0]


@pytest.mark.parametrize("size", SIZES)
def test_the_bracket_depends_on_the_number_of_ranks_alone(size: int) -> None:
    for processes in range(1, size + 1):
        assert bracket(size, processes) == paired_from_below(size), processes


def test_six_ranks_do_not_split_at_the_middle() -> None:
    assert bracket(6, 2) == "(((0 1) (2 3)) (4 5))"


@pytest.mark.parametrize("size", SIZES)
def test_processes_share_all_ranks_evenly(size: int) -> None:
    for processes in range(1, size + 1):
        carried = [sum_order.carried(process, processes, size) for process in range(processes)]
        assert [rank for ranks in carried for rank in ranks] == list(range(size))
        assert max(map(len, carried)) - min(map(len, carried)) <= 1


@pytest.mark.parametrize("size", SIZES)
def test_subtrees_fill_the_ranks_and_are_the_largest(size: int) -> None:
    for processes in range(1, size + 1):
        for process in range(processes):
            ranks = sum_order.carried(process, processes, size)
            found = list(sum_order.subtrees(ranks, 0, size))
            assert [rank for start, stop in found for rank in range(start, stop)] == list(ranks)
            assert len(found) <= 2 * max(1, len(ranks)).bit_length()
            if size % processes == 0 and (len(ranks) & (len(ranks) - 1)) == 0:
                assert found == [(ranks.start, ranks.stop)]


@pytest.mark.parametrize("processes", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("length", [0, 1, 5, 64, 1000])
def test_halves_send_what_the_best_all_reduce_sends(processes: int, length: int) -> None:
    pieces = []
    for process in range(processes):
        steps = list(sum_order.halves(length, process, processes))
        assert len(steps) == (processes - 1).bit_length()
        sent = sum(give.stop - give.start for _, give, _ in steps) + sum(keep.stop - keep.start for _, _, keep in steps)
        assert abs(sent - 2 * length * (processes - 1) / processes) <= 2 * len(steps)
        for partner, give, keep in steps:
            theirs = next(step for step in sum_order.halves(length, partner, processes) if step[0] == process)
            assert (theirs[1], theirs[2]) == (keep, give)
        pieces.append(steps[-1][2] if steps else slice(0, length))
    assert sorted(index for piece in pieces for index in range(piece.start, piece.stop)) == list(range(length))
