"""Labs 2, 3 and 6: honest ways to write a task earn its points, and right answers by another way do not."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np
import pytest

from minorm.labs import catalogue
from minorm.labs.calling import submission
from minorm.labs.calling.student import Here
from minorm.labs.lab import SECONDS, Check
from minorm.labs.scores import Outcome
from tests.labs.checks.ways import ways_lab02, ways_lab03, ways_lab06
from tests.labs.conftest import changed

WAYS: dict[int, Any] = {2: ways_lab02, 3: ways_lab03, 6: ways_lab06}
# Rows that such a submission still earns: another function of the task, or a case in which the way is right.
EARNED = {
    "2.4": {"Chan: two pieces as one"},
    "3.4": {"in RMSNorm, which is not centered"},
    "6.1": {"errors in ulp"},
    "6.4": {"float32 in float64"},
}

LONG = {("3.1", "loops"), ("3.1", "finite differences with more steps, so with more digits")}


def outcomes(number: int, task: str, text: str) -> list[Outcome]:
    """The rows of a task's checks, but those that train, for the solution with these functions put in."""
    lab = catalogue.find(number).of_task(task)
    quick = [item for item in lab.items if isinstance(item, Check) and item.seconds <= SECONDS]
    module, _ = submission.load(changed(number), "mine.py")
    exec(compile(text, "mine.py", "exec"), module.__dict__)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dataclasses.replace(lab, items=quick).run(Here(module, lab.beside), 1)


def pairs(name: str) -> Any:
    found = []
    for number, ways in WAYS.items():
        honest = [(task, *way) for task, written in ways.HONEST.items() for way in written]
        rows = honest if name == "HONEST" else ways.CHEATS
        for row in rows:
            marks = pytest.mark.slow if row[:2] in LONG else ()
            found.append(pytest.param(number, *row, id=f"{row[0]} {row[1]}", marks=marks))
    return found


@pytest.mark.parametrize(("number", "task", "name", "text"), pairs("HONEST"))
def test_honest_ways_earn_all(number: int, task: str, name: str, text: str) -> None:
    lost = [row for row in outcomes(number, task, text) if row.status != "passed"]
    assert not lost, name


@pytest.mark.parametrize(("number", "task", "name", "text", "words"), pairs("CHEATS"))
def test_cheats_earn_nothing_and_are_told_why(number: int, task: str, name: str, text: str, words: str) -> None:
    rows = outcomes(number, task, text)
    assert {row.title for row in rows if row.status == "passed"} <= EARNED.get(task, set()), name
    said = " ".join(f"{row.what} {row.expected} {row.got}" for row in rows if row.status != "passed")
    assert words in said


def test_each_task_has_two_honest_ways_and_three_cheats() -> None:
    for number, ways in WAYS.items():
        tasks = {item.task for item in catalogue.find(number).items if isinstance(item, Check)}
        assert {task for task, found in ways.HONEST.items() if len(found) >= 2} == tasks
        assert {task for task in tasks if sum(row[0] == task for row in ways.CHEATS) >= 3} == tasks
