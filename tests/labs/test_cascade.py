"""A wrong function costs its own task, and no more; nobody gets points for what is not theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from minorm.labs import cascade, catalogue, submission
from minorm.labs.lab import Lab
from minorm.labs.report import Outcome
from minorm.labs.student import Failure, Here
from tests.labs.conftest import changed

PROVIDED = [number for number in catalogue.numbers() if catalogue.find(number).provided]


class Replaceable(Here):
    """A student in this process, whose functions can be replaced; `hangs` are functions that never come back."""

    def __init__(self, module: Any, lab: str, hangs: tuple[str, ...] = ()) -> None:
        super().__init__(module, lab)
        self._theirs = dict(vars(module))
        self.hung = 0
        for name in hangs:
            self._theirs[name] = self._hang
        self.replace({})

    def _hang(self, *_: Any, **__: Any) -> Any:
        self.hung += 1
        raise Failure("too slow", "no answer within 10 s")

    def ask(self, request: dict[str, Any], *others: Any, **options: Any) -> Any:
        try:
            return super().ask(request, *others, **options)
        except Failure as failure:
            if isinstance(failure.__cause__, Failure):
                raise failure.__cause__ from None
            raise

    def replace(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        vars(self._module).update({**self._theirs, **functions})


def rows(number: int, *changes: tuple[str, str], hangs: tuple[str, ...] = ()) -> list[Outcome]:
    lab = catalogue.find(number)
    module, _ = submission.load(changed(number, *changes), "mine.py")
    with np.errstate(all="ignore"):
        return lab.run(Replaceable(module, lab.beside, hangs), 1)


def tasks_lost(found: list[Outcome]) -> set[str]:
    return {row.task for row in found if row.earned < row.points}


DDOF = ("np.square(x - mean).mean(axis=axes, keepdims=True)", "x.var(axis=axes, keepdims=True, ddof=1)")


@pytest.mark.parametrize(
    ("number", "change", "task", "builds_on_it"),
    [
        (1, DDOF, "1.1", {"1.2", "1.4", "1.5"}),
        (1, ("np.sqrt(var + eps)", "(np.sqrt(var) + eps)"), "1.2", {"1.4"}),
        (0, ("range(mask.bit_length())", "range(mask.bit_length() - 1)"), "0.2", {"0.6"}),
        (0, ("    return keep, reduce", "    return reduce, keep"), "0.5", {"0.6"}),
        (4, ("x.size // x.shape[1]", "x.shape[0]"), "4.1", {"4.4"}),
        (4, ("return var * m / (m - 1)", "return var"), "4.2", {"4.4"}),
        (4, ("return seen / (seen + 1)", "return 0.9"), "4.3", {"4.4"}),
        (9, ("(weight * (var + (mean - middle) ** 2)).sum(0)", "(weight * var).sum(0)"), "9.1", {"9.2", "9.5"}),
    ],
)  # fmt: skip
def test_a_wrong_function_costs_its_own_task(
    number: int, change: tuple[str, str], task: str, builds_on_it: set[str]
) -> None:
    if number == 9:
        pytest.importorskip("sklearn")
    found = rows(number, change)
    assert tasks_lost(found) == {task}
    remarked = {row.task for row in found if f"passes with {task} right" in row.remark}
    assert remarked == builds_on_it
    assert all(row.status == "passed" for row in found if row.remark.startswith("passes with"))


def test_without_it_the_penalty_cascades() -> None:
    """What `Here`, which replaces nothing, still does; so the tests above test something."""
    lab = catalogue.find(1)
    module, _ = submission.load(changed(1, DDOF), "mine.py")
    assert tasks_lost(lab.run(Here(module, lab.beside), 1)) == {"1.1", "1.2", "1.4", "1.5"}


def test_two_wrong_functions_cost_two_tasks_and_both_are_named() -> None:
    found = rows(1, DDOF, ("np.sqrt(var + eps)", "(np.sqrt(var) + eps)"))
    assert tasks_lost(found) == {"1.1", "1.2"}
    assert {row.remark for row in found if row.task == "1.4"} == {"passes with 1.2 right"}  # normalize calls moments
    assert {row.remark for row in found if row.task == "1.5"} == {"passes with 1.1 right"}


def test_a_mistake_of_ones_own_stays_one_beside_a_right_function() -> None:
    found = rows(1, DDOF, ("centered=False), s, None, first)", "centered=True), s, None, first)"))
    assert tasks_lost(found) == {"1.1", "1.4"}


def test_a_stub_is_a_wrong_function_too() -> None:
    found = rows(4, ("return var * m / (m - 1)", 'raise NotImplementedError("Task 4.2: the unbiased estimate")'))
    assert tasks_lost(found) == {"4.2"}
    assert {row.status for row in found if row.task == "4.2"} == {"not done"}


def test_a_function_that_never_comes_back_costs_its_own_task_and_one_limit_of_time() -> None:
    lab = catalogue.find(1)
    module, _ = submission.load(changed(1), "mine.py")
    student = Replaceable(module, lab.beside, hangs=("moments",))
    found = lab.run(student, 1)
    assert tasks_lost(found) == {"1.1"}
    assert student.hung == 1
    mine = [(row.status, row.got) for row in found if row.task == "1.1"]
    assert mine[0] == ("too slow", "no answer within 10 s")
    assert set(mine[1:]) == {("lost", "not run: in a check before, task 1.1 did not come back")}
    assert all(row.seconds < 5 for row in found)


def test_a_right_solution_is_asked_once() -> None:
    class Counting(Lab):
        asked = 0

    lab = Counting(1, "lab", "", "", 60)

    @lab.check("1.1", "one")
    def one(student: Any, rng: Any) -> None:
        Counting.asked += 1

    lab.provide("1.1", f=abs)
    module, _ = submission.load("", "mine.py")
    assert [row.status for row in lab.run(Replaceable(module, ""), 1)] == ["passed"]
    assert Counting.asked == 1


def provided_functions() -> Iterator[Any]:
    for number in PROVIDED:
        for task, functions in catalogue.find(number).provided.items():
            yield pytest.param(number, task, functions, id=f"lab {number}, task {task}")


@pytest.mark.parametrize(("number", "task", "functions"), list(provided_functions()))
def test_what_is_provided_passes_its_own_task(number: int, task: str, functions: cascade.Functions) -> None:
    """In place of a solution's functions nothing may be lost, the task's own checks included."""
    if number == 9:
        pytest.importorskip("sklearn")
    lab = catalogue.find(number)
    module, _ = submission.load(changed(number), "mine.py")
    assert functions.keys() <= vars(module).keys()
    vars(module).update(functions)
    assert not tasks_lost(lab.run(Here(module, lab.beside), 1))


@pytest.mark.parametrize(
    ("words", "text"), [([], ""), (["1.1"], "1.1"), (["1.1", "1.2"], "1.1 and 1.2"), (["1", "2", "3"], "1, 2 and 3")]
)
def test_tasks_are_listed_in_words(words: list[str], text: str) -> None:
    assert cascade._listed(words) == text
