"""A wrong function costs its own task: what builds on it is asked again with a right one in its place.

Later tasks call the functions of earlier ones. A lab *provides* right functions for some of its tasks:

    LAB.provide("1.1", moments=_moments)

When all checks have run, each that failed behind a task that was not passed runs once more, with the provided functions
in place of the student's. They stay in the judge's process; the student's code only gets their results (what works on
models is `Sent`). Where the check passes then, it earns its points, and its row says with which task right. A task that
does not come back, or crashes, is replaced at once for all that follows, and the rest of its own checks is not run: so
it costs no more than one limit of time.

No process that was given a task's right function is asked about that task, for it could copy it: replacing begins fresh
processes, with the functions of other tasks than the one that is asked about.
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
    """A check, or the bugs that a student's tests are to find."""

    @property
    def task(self) -> str:
        """Its number, such as "1.1"."""

    def run(self, student: Student, seed: int) -> list[Outcome]:
        """Its rows."""


def run(items: Sequence[Item], student: Any, seed: int, provided: Mapping[str, Functions]) -> list[Outcome]:
    """The rows of all items. A student whose functions cannot be replaced is asked each once, as it is."""
    replace = getattr(type(student), "replace", None)
    if replace is None or not provided:
        return [row for item in items for row in item.run(student, seed)]
    asking = _Asking(functools.partial(replace, student), student, seed, provided)
    found = [asking.first(item) for item in items]
    return [row for item, rows in zip(items, found, strict=True) for row in asking.again(item, rows)]


class _Asking:
    """One student, asked with functions of their own and of ours.

    lost   tasks that did not come back
    wrong  those that were not passed, whatever else is right, of those that have functions to be replaced by
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
        """Rows with the student's own functions, but for those that would not come back."""
        if item.task in self._lost:
            silent = _Silent(f"in a check before, task {item.task} did not come back")
            return item.run(silent, self._seed)
        rows = self._asked(item, [task for task in self._lost if task in self._provided])
        if any(row.status in LOST for row in rows):
            self._lost[item.task] = None
        return rows

    def again(self, item: Item, rows: list[Outcome]) -> list[Outcome]:
        """The rows, and in place of one that failed another that passes with the functions of earlier tasks right.

        Two rounds, and not each item twice, for replacing takes a fresh process.
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
        """The rows with the functions of these tasks replaced; those that passed say which of them were called."""
        if tasks != self._replaced:
            solves = {name: task for task in tasks for name in self._provided[task]}
            functions = {name: self._provided[task][name] for name, task in solves.items()}
            self._replace(functions, lambda name: self._called.add(solves[name]))
            self._replaced = tasks
        self._called.clear()
        rows = item.run(self._student, self._seed)
        if not self._called:
            return rows
        words = f"passes with {_listed([task for task in tasks if task in self._called])} right"
        return [
            row.but(remark="; ".join(filter(None, [row.remark, words]))) if row.status == "passed" else row
            for row in rows
        ]


class _Silent(Student):
    """A student who is not asked any more, and why."""

    def __init__(self, said: str) -> None:
        self.notes, self.remarks = [], []
        self.calls, self.right = deque(maxlen=0), deque(maxlen=0)
        self._said = said

    def ask(self, *_: object, **__: object) -> Any:
        """No answer to anything."""
        raise Failure("not run", self._said)


def _better(row: Outcome, again: Outcome) -> Outcome:
    """The second row if only that passed; else the first, with what both failed at."""
    if again.status == "passed" != row.status:
        return again
    return row.but(failures=[*row.failures, *again.failures])


def _undone(row: Outcome) -> bool:
    """Whether the stub of this very task is what failed, which no other task's functions can help."""
    return row.status == "not done" and row.got.startswith(f"Task {row.task}:")


def _listed(words: Sequence[str]) -> str:
    """`1.1, 1.2 and 1.3`."""
    return " and ".join([*filter(None, [", ".join(words[:-1])]), *words[-1:]])
