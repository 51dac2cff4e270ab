"""Runs failed checks again with right functions for earlier tasks, so a wrong function costs only its own task.

Functions of later tasks call functions of earlier tasks. A lab *provides* right functions for some of its tasks:

    LAB.provide("1.1", moments=_moments)

When all checks have run, each check that failed after a failed task runs once more, with the provided functions in
place of the student's. The provided functions stay in the judge's process, and the student's code gets only their
results (functions on models are `Sent`). If the check now passes, it earns its points, and its row names the tasks
whose functions were provided. If a task times out or crashes, its functions are replaced at once for all later checks,
and its remaining checks do not run. So such a task costs at most one time limit.

A process that received a task's right function could copy this function, so the process is never asked about that task.
Replacing functions starts fresh processes, which get right functions of other tasks only.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from minorm.labs.calling.student import Failure, Student
from minorm.labs.scores import Outcome

Functions = Mapping[str, Callable[..., Any]]
LOST = ("too slow", "died", "not run")


class Item(Protocol):
    """Something that earns points: a check, or the bugs that a student's tests should find."""

    @property
    def task(self) -> str:
        """The task's number, such as "1.1"."""

    def run(self, student: Student, seed: int) -> list[Outcome]:
        """Run the check or the tests on the student's functions, and return the rows of results."""


def run(items: Sequence[Item], student: Any, seed: int, provided: Mapping[str, Functions]) -> list[Outcome]:
    """Run all checks and return their rows.

    If the student's functions cannot be replaced, each check runs just once.
    """
    replace = getattr(type(student), "replace", None)
    if replace is None or not provided:
        return [row for item in items for row in item.run(student, seed)]
    asking = _Asking(functools.partial(replace, student), student, seed, provided)
    found = [asking.first(item) for item in items]
    return [row for item, rows in zip(items, found, strict=True) for row in asking.again(item, rows)]


class _Asking:
    """Runs items for one student, first with the student's own functions, then with right ones for some tasks.

    lost   the tasks whose functions hung or crashed
    wrong  the tasks whose checks fail even with right functions for other tasks, and for which the lab provides right
           functions
    """

    def __init__(
        self,
        replace: Callable[[Functions, Callable[[str], None]], None],
        student: Student,
        seed: int,
        provided: Mapping[str, Functions],
    ) -> None:
        self._replace, self._student, self._seed, self._provided = replace, student, seed, provided
        self._lost: dict[str, None] = {}  # in order
        self._wrong: dict[str, None] = {}
        self._replaced: list[str] = []
        self._called: set[str] = set()

    def first(self, item: Item) -> list[Outcome]:
        """Run a check with the student's own functions and return its rows.

        Functions that hung or crashed earlier are replaced.
        """
        if item.task in self._lost:
            silent = _Silent(f"task {item.task} did not return in an earlier check")
            return item.run(silent, self._seed)
        rows = self._asked(item, [task for task in self._lost if task in self._provided])
        if any(row.status in LOST for row in rows):
            self._lost[item.task] = None
        return rows

    def again(self, item: Item, rows: list[Outcome]) -> list[Outcome]:
        """Run a failed check again with right functions for earlier tasks. Replace each failed row that now passes.

        This second round comes after all checks have run once, because replacing functions takes a fresh process.
        """
        earlier = [task for task in self._wrong if task != item.task]
        hopeless = item.task in self._lost or set(earlier) <= set(self._lost)
        if not hopeless and not all(row.status == "passed" or _undone(row) for row in rows):
            rows = [
                better
                if better.status == "passed" != row.status
                else row.but(failures=[*row.failures, *better.failures])
                for row, better in zip(rows, self._asked(item, earlier), strict=True)
            ]
        if item.task in self._provided and any(row.status != "passed" for row in rows):
            self._wrong[item.task] = None
        return rows

    def _asked(self, item: Item, tasks: list[str]) -> list[Outcome]:
        """Run a check with right functions for these tasks.

        Return its rows; rows that passed name the tasks whose right functions were called.
        """
        if tasks != self._replaced:
            solves = {name: task for task in tasks for name in self._provided[task]}
            functions = {name: self._provided[task][name] for name, task in solves.items()}
            self._replace(functions, lambda name: self._called.add(solves[name]))
            self._replaced = tasks
        self._called.clear()
        rows = item.run(self._student, self._seed)
        if not self._called:
            return rows
        words = (
            f"passes if the functions of {_listed([task for task in tasks if task in self._called])} are replaced "
            "by right ones"
        )
        return [
            row.but(remark="; ".join(filter(None, [row.remark, words]))) if row.status == "passed" else row
            for row in rows
        ]


class _Silent(Student):
    """Stands for a student whose functions are not called any more. Each request raises a Failure that says why."""

    def __init__(self, said: str) -> None:
        self.notes, self.remarks = [], []
        self.calls, self.right = deque(maxlen=0), deque(maxlen=0)
        self._said = said

    def ask(self, *_: object, **__: object) -> Any:
        """Raise a Failure that says why the student is not asked any more."""
        raise Failure("not run", self._said)


def _better(row: Outcome, again: Outcome) -> Outcome:
    """Return `again` if only `again` passed. Otherwise return `row` with the failures of both rows."""
    if again.status == "passed" != row.status:
        return again
    return row.but(failures=[*row.failures, *again.failures])


def _undone(row: Outcome) -> bool:
    """Return whether the check failed because its own task still has the stub.

    Right functions for other tasks cannot help then.
    """
    return row.status == "not done" and row.got.startswith(f"Task {row.task}:")


def _listed(words: Sequence[str]) -> str:
    """Join words: `1.1, 1.2 and 1.3`."""
    return " and ".join([*filter(None, [", ".join(words[:-1])]), *words[-1:]])
