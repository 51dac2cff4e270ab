"""Collectives: the same bits on any number of processes, and both calls named where they differ."""

from __future__ import annotations

import copy
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from minorm.distributed import RankError, simulate
from minorm.distributed.collectives import SMALL
from minorm.distributed.meeting import HEADER, Call, compare
from tests.distributed.engines import Wires, on_processes

CARRIED = [(size, processes) for size in (1, 2, 3, 4, 6, 8) for processes in range(1, size + 1)]


def values(rank: int, count: int, dtype: Any = np.float32) -> Any:
    """Numbers whose sum depends on the order in which they are added."""
    rng = np.random.default_rng(rank)
    return (rng.standard_normal(count) * 10.0 ** rng.integers(-3, 4, count)).astype(dtype)


def keep(lower: Any, higher: Any) -> Any:
    """Which leaves came first, as digits: neither commutative nor a sum of single numbers."""
    return np.array([lower[0] * 10.0 ** higher[1] + higher[0], lower[1] + higher[1], *(lower[2:] - higher[2:])])


@pytest.mark.parametrize(("size", "processes"), CARRIED)
@pytest.mark.parametrize("count", [1, 300, 5000])
def test_sums_have_the_same_bits_on_any_number_of_processes(size: int, processes: int, count: int) -> None:
    def program(group: Any) -> Any:
        return [
            group.all_reduce(values(group.rank, count)),
            group.all_reduce(values(group.rank, count, np.float16).reshape(-1, 1)),
            group.all_gather(values(group.rank, count)),
            group.all_reduce(np.append([group.rank, 1.0], values(group.rank, count, np.float64)), keep),
            group.broadcast(values(group.rank, count), size - 1),
        ]

    expected = simulate(size, program)
    found = on_processes(processes, size, program)
    for results in found:
        for mine, theirs in zip(results, expected[0], strict=True):
            assert mine.dtype == theirs.dtype
            assert mine.shape == theirs.shape
            assert mine.tobytes() == theirs.tobytes()
    np.testing.assert_array_equal(found[0][2], [values(rank, count) for rank in range(size)])
    assert found[0][3][0] == int("".join(map(str, range(size))))
    np.testing.assert_array_equal(found[0][4], values(size - 1, count))


def test_the_order_matters_for_these_numbers() -> None:
    """Else the tests above would pass with any order."""
    total = simulate(8, lambda group: group.all_reduce(values(group.rank, 1000)))[0]
    assert not np.array_equal(total, np.add.accumulate([values(rank, 1000) for rank in range(8)], 0)[-1])


def test_sums_are_those_of_the_tree() -> None:
    v = [values(rank, 100) for rank in range(6)]
    total = simulate(6, lambda group: group.all_reduce(v[group.rank]))[0]
    np.testing.assert_array_equal(total, ((v[0] + v[1]) + (v[2] + v[3])) + (v[4] + v[5]))


@pytest.mark.parametrize("dtype", [np.int64, np.bool_, np.uint8, ml_dtypes.bfloat16])
def test_other_types(dtype: Any) -> None:
    found = on_processes(2, 4, lambda group: group.all_reduce(np.full((3, 2), group.rank, dtype)))
    assert all(total.dtype == dtype for total in found)
    np.testing.assert_array_equal(found[3].astype(float), np.full((3, 2), 6.0 if dtype != np.bool_ else 1.0))


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_empty_arrays_and_arrays_without_axes(processes: int) -> None:
    def program(group: Any) -> Any:
        group.barrier()
        return group.all_reduce(np.zeros((0, 3))), group.all_reduce(float(group.rank)), group.all_gather(group.rank)

    for empty, total, ranks in on_processes(processes, 3, program):
        assert empty.shape == (0, 3)
        assert total == 3.0
        assert ranks.tolist() == [0, 1, 2]


def test_what_one_rank_gets_is_its_own_and_nothing_of_the_callers_changes() -> None:
    def program(group: Any) -> Any:
        mine = np.arange(4.0)
        found = group.all_reduce(mine)
        found += group.rank
        group.barrier()
        return mine.tolist(), found[0]

    assert on_processes(2, 4, program) == [([0, 1, 2, 3], rank) for rank in range(4)]


@pytest.mark.parametrize("processes", [2, 4, 8])
def test_a_long_sum_sends_two_vectors_and_a_small_one_log2_messages(processes: int) -> None:
    wires = Wires(processes)
    on_processes(processes, 8, lambda group: group.all_reduce(np.zeros(100_000, np.float32)), wires)
    steps = (processes - 1).bit_length()
    expected = 2 * 400_000 * (processes - 1) / processes
    assert all(abs(sent - expected) <= HEADER * steps + 8 * 4 * steps for sent in wires.sent)
    wires = Wires(processes)
    on_processes(processes, 8, lambda group: group.all_reduce(np.zeros(SMALL, np.uint8)), wires)
    assert wires.messages == [steps] * processes


def wrong_calls(group: Any, kind: str) -> None:
    last = group.rank == group.size - 1
    group.barrier()
    if kind == "another":
        group.all_gather(1.0) if last else group.all_reduce(1.0)
    elif kind == "shape":
        group.all_reduce(np.zeros((2, 3 if last else 2)), label="the gradients")
    elif kind == "type":
        group.all_reduce(np.zeros(2000, np.float64 if last else np.float32))
    elif kind == "root":
        group.broadcast(np.zeros(2), group.size - 1 if last else 0)
    elif kind == "ends" and not last:
        group.all_reduce(1.0)


MESSAGES = {
    "another": r"rank {waits} calls all_reduce, but rank {last} calls all_gather; expected the same call on all ranks",
    "shape": r"all_reduce of .*: rank {waits} sends .* shape \(2, 2\), but rank {last} one of shape \(2, 3\)",
    "type": r"all_reduce: rank {waits} sends float32, but rank {last} sends float64; expected one type",
    "root": r"rank {waits} calls broadcast from rank 0, but rank {last} calls broadcast from rank 3",
    "ends": r"rank \d waits in all_reduce for rank {last}, which has ended",
}


@pytest.mark.parametrize("kind", MESSAGES)
def test_ranks_that_do_not_call_the_same_are_named_in_one_process(kind: str) -> None:
    said = MESSAGES[kind].format(waits=0, last=3)
    with pytest.raises(RankError, match=said):
        simulate(4, lambda group: wrong_calls(group, kind))


@pytest.mark.parametrize("kind", ["another", "shape", "type", "root"])
@pytest.mark.parametrize("processes", [2, 3, 4])
def test_ranks_that_do_not_call_the_same_are_named_over_processes(processes: int, kind: str) -> None:
    said = MESSAGES[kind].format(waits=r"\d", last=r"\d")
    with pytest.raises(RankError, match=said):
        on_processes(processes, 4, lambda group: wrong_calls(group, kind))


def test_a_call_that_one_rank_left_out_is_found_by_its_number() -> None:
    """Same name, same shape: only the serial number tells them apart."""
    calls = [Call(3, "all_reduce", "float32", (2,)), Call(4, "all_reduce", "float32", (2,))]
    with pytest.raises(RankError, match="this is call number 3 on rank 0, but number 4 on rank 1"):
        compare(0, calls[0], 1, calls[1])


def test_headers_have_one_size_and_come_back() -> None:
    for call in (
        Call(0, "barrier"),
        Call(12, "all_reduce of the gradients", "bfloat16", (3, 0, 7)),
        Call(1 << 40, "x" * 120, "float64", (1,) * 20),
    ):
        assert len(call.header()) == HEADER
        assert Call.of(call.header()) == call
    assert len(Call(0, "y" * 500, "float32", (10**9,) * 60).header()) == HEADER


ODD_LABELS = {
    "bar": "a|b||c|",
    "spaces": "  before and behind  ",
    "lines": "one\ntwo\r\n\t",
    "nothing": "\0 and \0\0",
    "Greek": "\u03b1" * 119,
    "beyond 16 bits": "\U0001f600" * 60,
    "surrogate": "file\udcff",
    "long": "l" * 5000,
}


@pytest.mark.parametrize("label", ODD_LABELS.values(), ids=ODD_LABELS)
@pytest.mark.parametrize("processes", [1, 2, 3, 4])
def test_a_label_may_hold_any_characters(label: str, processes: int) -> None:
    def program(group: Any) -> list[float]:
        total = group.all_reduce(np.ones(2), label=label)
        said = f"{label}0".encode(errors="backslashreplace")[:1024].decode(errors="ignore")
        assert group.all_gather_text(f"{label}{group.rank}", label)[0] == said
        return (total + group.all_gather(np.ones(()), label=label).sum()).tolist()

    assert on_processes(processes, 4, program) == [[8.0, 8.0]] * 4


def test_a_label_in_a_header() -> None:
    for label in ODD_LABELS.values():
        call = Call(7, f"all_reduce of {label}", "float64", (1,) * 63 + (2**62,))
        seen = Call.of(call.header())
        assert (seen.serial, seen.dtype, seen.shape) == (7, "float64", call.shape)
        assert seen == Call.of(Call(7, call.name, "float64", call.shape).header())
        assert seen != Call.of(Call(7, f"{call.name}!", "float64", call.shape).header())


@pytest.mark.parametrize("processes", [1, 2])
def test_long_labels_that_differ_at_the_end_are_told_apart(processes: int) -> None:
    def program(group: Any) -> None:
        group.all_reduce(np.ones(2), label="the gradients of " + "x" * 400 + str(group.rank))

    with pytest.raises(
        RankError, match=r"rank 0 calls all_reduce of the gradients of x+.*rank 1 calls all_reduce of the"
    ):
        on_processes(processes, 2, program)


def test_a_models_copy_shares_the_group() -> None:
    def program(group: Any) -> bool:
        return copy.deepcopy({"group": group})["group"] is group

    assert simulate(2, program) == [True, True]


def test_a_text_with_the_name_of_a_file_that_is_not_utf_8() -> None:
    """Say of a disk that is full."""
    assert simulate(2, lambda group: group.all_gather_text(f"j\udcfcrgen {group.rank}", "x"))[1] == [
        r"j\udcfcrgen 0",
        r"j\udcfcrgen 1",
    ]


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="simulate: size=0"):
        simulate(0, print)
    with pytest.raises(ValueError, match="broadcast: root=2; expected a rank from 0 to 1"):
        simulate(2, lambda group: group.broadcast(1.0, 2))
