"""Checks inside a notebook: `check("3.1")` runs the visible checks of one task on what the notebook has defined.

It shows a table when all is well. Otherwise it raises: NotImplementedError for a task not done yet, the student's own
exception where one was raised, and else CheckFailed, whose message is the table. The line VARIANT of a notebook says
which variant it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any

from minorm.labs import catalogue
from minorm.labs.calling.student import Here
from minorm.labs.judge.recognizing import hinted
from minorm.labs.lab import Lab
from minorm.labs.scores import Outcome, table
from minorm.support.safe_names import quoted

SEED = 0  # graded are others


class Short(Exception):
    """An error whose message says all."""

    def _render_traceback_(self) -> list[str]:
        """What IPython shows: the message and no traceback, which would lead into the grader."""
        return str(self).split("\n")


class CheckFailed(Short, AssertionError):
    """An answer was not the expected one."""


class NoChecks(Short, FileNotFoundError):
    """The folder with the checks is not there."""


class NotDone(Short, NotImplementedError):
    """A task that still has its stub."""


class Table:
    """Rows that a notebook shows."""

    def __init__(self, rows: list[Outcome]) -> None:
        self.rows = rows

    def __repr__(self) -> str:
        return "\n".join(table(self.rows))


class Checker:
    """The visible checks of a lab, for the names of a notebook."""

    def __init__(self, lab: Lab, names: dict[str, Any]) -> None:
        self.lab, self.names = lab, names

    def __call__(self, task: str) -> Table:
        """Run the checks of one task."""
        items = [item for item in self.lab.items if item.task == task and item.visible]
        if not items:
            raise ValueError(
                f"lab {self.lab.number} has no visible checks for task {task!r}; there are {self._tasks()}"
            )
        student = Here(SimpleNamespace(**self.names), self.lab.beside)
        code = self.names.get("VARIANT", "")
        with self.lab.variants.using(self.lab.variants.read(str(code))):
            rows = hinted([row for item in items for row in item.run(student, SEED)], self.lab.recognizer)
        for row in rows:
            if row.status == "not done":
                raise NotDone(f"{row.got} (not done yet)")
            if row.cause is not None:
                raise row.cause.with_traceback(_in_students_code(row.cause)) from None
        if any(row.status != "passed" for row in rows):
            raise CheckFailed("\n".join(table(rows)))
        return Table(rows)

    def _tasks(self) -> str:
        return ", ".join(dict.fromkeys(item.task for item in self.lab.items if item.visible))


def _in_students_code(error: BaseException) -> TracebackType | None:
    """The traceback without the grader's frames, which come first."""
    found = error.__traceback__
    while found is not None and found.tb_frame.f_globals.get("__name__", "").startswith("minorm.labs."):
        found = found.tb_next
    return found


def checker(number: int, names: dict[str, Any], lab_dir: str | Path | None = None) -> Callable[[str], Any]:
    """`check = checker(3, globals())` at the top of lab 3.

    lab_dir  the folder of a teacher's own labs; where students did not get it, `check` says so
    """
    if lab_dir is not None and not Path(lab_dir).is_dir():
        return functools.partial(_absent, lab_dir)
    return Checker(catalogue.find(number, lab_dir), names)


def _absent(lab_dir: str | Path, task: str) -> None:
    raise NoChecks(f"the checks of task {task} are not here: there is no folder {quoted(str(lab_dir))} in {Path.cwd()}")
