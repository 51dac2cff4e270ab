"""Through the judge: a wrong function, and one that never comes back, cost their own task."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from minorm.labs.report import Report

MEAN = "    mean = x.mean(axis=axes, keepdims=True)\n"
DDOF = ("np.square(x - mean).mean(axis=axes, keepdims=True)", "x.var(axis=axes, keepdims=True, ddof=1)")


def lost(report: Report) -> set[str]:
    return {row.task for row in report.outcomes if row.earned < row.points}


def test_ddof_1_in_the_first_task_costs_that_task(judge_changed: Callable[..., Report]) -> None:
    report = judge_changed(1, DDOF)
    assert lost(report) == {"1.1"}
    assert (report.score, report.points) == (17, 21)
    assert {row.task for row in report.outcomes if row.remark == "passes with 1.1 right"} == {"1.2", "1.4", "1.5"}
    assert "note      passes with 1.1 right" in str(report)


def test_an_endless_loop_costs_its_own_task_within_90_seconds(judge_changed: Callable[..., Report]) -> None:
    start = time.monotonic()
    report = judge_changed(1, (MEAN, "    while True: pass\n"))
    assert lost(report) == {"1.1"}
    assert time.monotonic() - start < 90


def test_what_is_in_place_of_a_students_function_stays_in_the_judge(judge_changed: Callable[..., Report]) -> None:
    """Its code cannot be looked at: what is there instead asks the judge."""
    look = (
        "    import inspect\n    assert 'rows.sum' not in inspect.getsource(moments)\n    mean, var = moments(x, axes"
    )
    report = judge_changed(1, DDOF, ("    mean, var = moments(x, axes", look))
    assert lost(report) == {"1.1"}


@pytest.mark.parametrize(("change", "tasks"), [(("x.size // x.shape[1]", "x.shape[0]"), {"4.1"})])
def test_the_students_tests_are_graded_as_before(
    judge_changed: Callable[..., Report], change: tuple[str, str], tasks: set[str]
) -> None:
    """They ask the judge for functions as well, under other names."""
    report = judge_changed(4, change)
    assert lost(report) == tasks
