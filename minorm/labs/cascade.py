"""A wrong function costs its own task: what builds on it is asked again with a right one in its place.

Later tasks call the functions of earlier ones. A lab *provides* right functions for some of its tasks:

    LAB.provide("1.1", moments=_moments)

After a task that was not passed, a later check that fails runs once more, with the provided functions in place of the
student's. They stay in the judge's process; the student's code only gets their results. Where the check passes then, it
earns its points, and its row says with which task right. A task that does not come back, or crashes, is replaced at
once for all that follows, and the rest of its own checks is not run: so it costs no more than one limit of time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from minorm.labs.report import Outcome
from minorm.labs.student import Failure, Student

Functions = Mapping[str, Callable[..., Any]]
LOST = ("too slow", "died", "lost")


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
    return [row for item in items for row in asking.rows(item)]


class _Asking:
    """What is known so far. failed: tasks that were not passed; lost: those that did not come back."""

    def __init__(
        self, replace: Callable[[Functions], None], student: Student, seed: int, provided: Mapping[str, Functions]
    ) -> None:
        self._replace, self._student, self._seed, self._provided = replace, student, seed, provided
        self._failed: dict[str, None] = {}  # in order
        self._lost: dict[str, None] = {}

    def rows(self, item: Item) -> list[Outcome]:
        """Ask one item, and again with right functions where that may help."""
        if item.task in self._lost:
            silent = _Silent(f"not run: in a check before, task {item.task} did not come back")
            return item.run(silent, self._seed)
        before = [task for task in self._lost if task != item.task]
        found = self._asked(item, before)
        others = [task for task in self._failed if task not in (item.task, *before)]
        if others and any(row.status != "passed" and not _undone(row) for row in found):
            found = [
                first if first.status == "passed" or again.status != "passed" else again
                for first, again in zip(found, self._asked(item, [*before, *others]), strict=True)
            ]
        if item.task in self._provided:
            self._failed |= {item.task: None} if any(row.status != "passed" for row in found) else {}
            self._lost |= {item.task: None} if any(row.status in LOST for row in found) else {}
        return found

    def _asked(self, item: Item, tasks: Sequence[str]) -> list[Outcome]:
        """The rows with the functions of these tasks replaced; rows that passed say which of them were called."""
        if not tasks:
            return item.run(self._student, self._seed)
        called: set[str] = set()

        def noting(task: str, function: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(function)
            def noted(*args: Any, **options: Any) -> Any:
                called.add(task)
                return function(*args, **options)

            return noted

        self._replace({name: noting(task, right) for task in tasks for name, right in self._provided[task].items()})
        try:
            found = item.run(self._student, self._seed)
        finally:
            self._replace({})
        if not called:
            return found
        words = f"passes with {_listed([task for task in tasks if task in called])} right"
        return [
            row.but(remark="; ".join(filter(None, [row.remark, words]))) if row.status == "passed" else row
            for row in found
        ]


class _Silent(Student):
    """A student who is not asked any more, and why."""

    def __init__(self, said: str) -> None:
        self.notes, self.remarks = [], []
        self._said = said

    def ask(self, *_: object, **__: object) -> Any:
        """No answer to anything."""
        raise Failure("lost", self._said)


def _undone(row: Outcome) -> bool:
    """Whether the stub of this very task is what failed, which no other task's functions can help."""
    return row.status == "not done" and row.got.startswith(f"Task {row.task}:")


def _listed(words: Sequence[str]) -> str:
    """`1.1, 1.2 and 1.3`."""
    return " and ".join([*filter(None, [", ".join(words[:-1])]), *words[-1:]])
