"""Through the judge: a wrong function, and one that never comes back, cost their own task."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from minorm.cli import main
from minorm.labs.scores import Report
from minorm.labs.sealed import finding
from tests.labs.conftest import changed

MEAN = "    mean = x.mean(axis=axes, keepdims=True)\n"
DDOF = ("np.square(x - mean).mean(axis=axes, keepdims=True)", "x.var(axis=axes, keepdims=True, ddof=1)")


def lost(report: Report) -> set[str]:
    return {row.task for row in report.outcomes if row.earned < row.points}


def test_ddof_1_in_the_first_task_costs_that_task(judge_changed: Callable[..., Report]) -> None:
    report = judge_changed(1, DDOF)
    assert lost(report) == {"1.1"}
    assert (report.score, report.points) == (17, 21)
    assert {
        row.task for row in report.outcomes if row.remark == "passes if the functions of 1.1 are replaced by right ones"
    } == {"1.2", "1.4", "1.5"}
    assert "note      passes if the functions of 1.1 are replaced by right ones" in str(report)


def test_an_endless_loop_costs_its_own_task_within_90_seconds(judge_changed: Callable[..., Report]) -> None:
    start = time.monotonic()
    report = judge_changed(1, (MEAN, "    while True: pass\n"))
    assert lost(report) == {"1.1"}
    assert time.monotonic() - start < 90


def test_what_is_in_place_of_a_students_function_stays_in_the_judge(judge_changed: Callable[..., Report]) -> None:
    """A test cannot look at its code: the stand-in in its place asks the judge."""
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


OPSET = ("    return max(older)", "    return opsets[domain]")  # the opset is taken for the version


def test_through_the_command_a_wrong_version_costs_its_own_task(tmp_path: Path) -> None:
    """Lab 10: the right function works on a node, and runs in the student's process."""
    pytest.importorskip("onnx")
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "mine.py").write_text(changed(10, OPSET))
    command = ["labs", "grade", "10", str(tmp_path / "all"), "--csv", str(tmp_path / "grades.csv")]
    assert main([*command, "--reports", str(tmp_path / "pages")]) == 0
    with open(tmp_path / "grades.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["score"], row["points"]) == ("24", "26")
    assert row["failed"] == (
        "10.1 the newest version at or before the opset: wrong; "
        "10.1 other domains, and the long name of ONNX's own: wrong"
    )
    (page,) = (tmp_path / "pages").iterdir()
    assert page.read_text().count("passes if the functions of 10.1 are replaced by right ones") == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "change", "task", "builds_on_it"),
    [
        (5, ("        layer.momentum = None\n", ""), "5.3", {"5.4"}),
        (7, ("        total += x[i]\n        i += 1\n", "        i += 1\n"), "7.2", {"7.3"}),
        (7, (" + delta * delta * n1 * n2 / (n1 + n2)", ""), "7.4", {"7.5"}),
        (8, ("__shfl_xor_sync", "__shfl_down_sync"), "8.4", {"8.5", "8.6"}),
        (8, ("d[blockIdx.x] = rest", "d[blockIdx.x] = 1"), "8.5", {"8.6"}),
        (10, ("return defaults | said", "return said | defaults"), "10.2", {"10.3", "10.7"}),
        (12, ("            run.scheduler.step()\n", ""), "12.2", {"12.6"}),
        (12, ('("model", "optimizer", "scheduler", "loader")', '("model",)'), "12.3", {"12.6"}),
    ],
)  # fmt: skip
def test_in_the_other_labs(
    judge_changed: Callable[..., Report], number: int, change: tuple[str, str], task: str, builds_on_it: set[str]
) -> None:
    report = judge_changed(number, change, patience=3)
    assert lost(report) == {task}
    assert {
        row.task
        for row in report.outcomes
        if row.remark == f"passes if the functions of {task} are replaced by right ones"
    } == builds_on_it
    assert report.seconds < 90


@pytest.mark.slow
@pytest.mark.skipif(not finding.find().stand, reason="this system has no walls, and says so")
def test_where_no_file_can_be_opened_any_more(judge_changed: Callable[..., Report]) -> None:
    """The functions that are sent import no module that was not loaded before."""
    around = finding.find(("landlock", "mounts", "user"))
    change = ("        layer.momentum = None\n", "")
    assert lost(judge_changed(5, change, patience=3, around=around)) == {"5.3"}


LOOPS = {
    5: ("    before, momenta = model.training", "    while True: pass\n    before, momenta = model.training"),
    7: ("    cdef Py_ssize_t i = 0, j\n", "    cdef Py_ssize_t i = 0, j\n    while n >= 0: i = 0\n"),
    8: ("v += __shfl_xor_sync(0xffffffff, v, step);", "step += step;"),
    10: ("    axes = batch_axes(x.shape, s.shape)", "    while True: pass\n    axes = batch_axes(x.shape, s.shape)"),
    12: ("    losses = []\n    run.model.train()", "    while True: pass\n    losses = []\n    run.model.train()"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("number", "task"), [(5, "5.3"), (7, "7.2"), (8, "8.4"), (10, "10.5"), (12, "12.2")])
def test_a_loop_without_end_costs_its_own_task_within_90_seconds(
    judge_changed: Callable[..., Report], number: int, task: str
) -> None:
    report = judge_changed(number, LOOPS[number])
    assert lost(report) == {task}
    assert report.seconds < 90
