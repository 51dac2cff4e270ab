"""Ranks as threads: one runs at a time, errors name the rank, and each draws separate random numbers."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import random
from minorm.distributed import Group, RankError, run, simulate
from tests.distributed.engines import on_processes


def test_one_rank_runs_at_a_time() -> None:
    running, most = 0, 0

    def program(group: Any) -> None:
        nonlocal running, most
        for _ in range(20):
            running += 1
            most = max(most, running)
            time.sleep(0.0002)  # lets another thread run, if one could
            running -= 1
            group.barrier()

    simulate(4, program)
    assert most == 1


def test_one_rank_runs_in_the_callers_thread() -> None:
    assert simulate(1, lambda group: threading.current_thread()) == [threading.current_thread()]


def test_results_come_by_rank() -> None:
    assert simulate(3, lambda group: (group.rank, group.size, group.processes)) == [(0, 3, 1), (1, 3, 1), (2, 3, 1)]


@pytest.mark.parametrize("wrong", [0, 2, 3])
def test_a_ranks_own_error_is_raised_with_its_rank(wrong: int) -> None:
    left = []

    def program(group: Any) -> None:
        try:
            group.barrier()
            if group.rank == wrong:
                raise KeyError("gone")
            group.all_reduce(1.0)
        finally:
            left.append(group.rank)

    with pytest.raises(KeyError, match="gone") as caught:
        simulate(4, program)
    assert caught.value.__notes__ == [f"on rank {wrong} of 4"]
    assert sorted(left) == [0, 1, 2, 3]  # every rank's `finally` ran


def test_an_error_of_one_rank_without_others_has_no_note() -> None:
    with pytest.raises(KeyError) as caught:
        simulate(1, lambda group: {}["x"])
    assert not hasattr(caught.value, "__notes__")


def test_a_rank_that_catches_the_error_does_not_hang_the_others() -> None:
    def program(group: Any) -> str:
        if group.rank == 1:
            return "left"
        for _ in range(3):
            with contextlib.suppress(RankError):
                group.barrier()
        return "tried"

    assert simulate(3, program) == ["tried", "left", "tried"]


def draws(group: Any) -> list[float]:
    mn.manual_seed(5)
    first = mn.rand(2).tolist()
    group.barrier()
    return first + mn.rand(2).tolist()


def test_each_rank_draws_numbers_of_its_own_and_rank_0_those_of_one_rank() -> None:
    found = simulate(4, draws)
    assert found[0] == simulate(1, draws)[0]
    assert len({number for row in found for number in row}) == 16
    for processes in (2, 3, 4):
        assert on_processes(processes, 4, draws) == found


def test_streams_go_on_from_the_state_of_the_process() -> None:
    def program(group: Any) -> float:
        return mn.rand(1).item()

    mn.manual_seed(3)
    first, second = simulate(3, program), simulate(3, program)
    assert len({*first, *second}) == 6
    mn.manual_seed(3)
    assert simulate(3, program) == first


def test_the_state_holds_all_streams_and_puts_them_back() -> None:
    def program(group: Any) -> tuple[Any, Any, Any]:
        mn.manual_seed(1)
        mn.randint(0, 9, (3,))  # leaves half a word
        state = random.get_state()
        first = mn.rand(3).tolist()
        random.set_state(state)
        return state, first, mn.rand(3).tolist()

    found = simulate(3, program)
    assert len(found[0][0]["ranks"]) == 3
    assert all(state == found[0][0] for state, _, _ in found)
    assert all(first == again for _, first, again in found)


def test_a_state_of_another_number_of_ranks_is_refused() -> None:
    state = simulate(2, lambda group: random.get_state())[0]
    with pytest.raises(ValueError, match="the state is that of 2 ranks, but this program has 1"):
        random.set_state(state)
    with pytest.raises(ValueError, match="the state is that of 1 ranks, but this program has 2"):
        simulate(2, lambda group: random.set_state(dict(np.random.PCG64(1).state)))


def test_after_a_run_the_generator_is_the_programs_again() -> None:
    mn.manual_seed(2)
    expected = random.generator()
    simulate(3, draws)
    assert random.generator() is expected
    assert "ranks" not in random.get_state()


@pytest.mark.parametrize("count", [1025, 10**6, 10**30])
def test_more_ranks_than_a_process_carries_are_refused_at_once(count: int) -> None:
    def program(_: Group) -> None:
        pytest.fail("it ran")

    with pytest.raises(
        ValueError, match=f"simulate: size={count}; expected at most 1,024, because a process runs each"
    ):
        simulate(count, program)
    with pytest.raises(ValueError, match=f"run: ranks={count}; expected at most 1,024"):
        run(program, count)


@pytest.mark.parametrize("refused", [RuntimeError("can't start new thread"), KeyboardInterrupt("pressed")])
@pytest.mark.parametrize("place", [0, 1, 3])
def test_ranks_that_cannot_all_be_started(refused: BaseException, place: int, monkeypatch) -> None:
    """Those that were started end, and none of them runs the program."""
    start, before, made, ran = threading.Thread.start, threading.active_count(), [], []

    def refusing(thread: threading.Thread) -> None:
        if len(made) == place:
            raise refused
        made.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refusing)
    with pytest.raises(type(refused), match=rf"could start only {place}: can't start|pressed"):
        simulate(4, lambda group: ran.append(group.rank))
    for thread in made:
        thread.join(10)
    assert (len(made), ran, threading.active_count()) == (place, [], before)
