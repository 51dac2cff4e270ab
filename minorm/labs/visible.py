"""Runs checks inside a notebook: `check("3.1")` runs one task's visible checks on the notebook's functions.

If all checks pass, a table is shown. Otherwise `check` raises an exception: NotImplementedError for a task that is not
done yet, the student's own exception if there was one, or CheckFailed, whose message is the table. The notebook names
its variant in the line VARIANT.
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

SEED = 0  # grading uses another seed


class Short(Exception):
    """An exception that IPython shows without a traceback."""

    def _render_traceback_(self) -> list[str]:
        """Return only the message to IPython, because a traceback would show the grader's code."""
        return str(self).split("\n")


class CheckFailed(Short, AssertionError):
    """Raised if an answer was not the expected one."""


class NoChecks(Short, FileNotFoundError):
    """Raised if the folder with the checks is missing."""


class NotDone(Short, NotImplementedError):
    """Raised for a task that still has its stub."""


class Table:
    """Rows that a notebook shows."""

    def __init__(self, rows: list[Outcome]) -> None:
        self.rows = rows

    def __repr__(self) -> str:
        return "\n".join(table(self.rows))


class Checker:
    """Runs the visible checks of a lab on the functions of a notebook."""

    def __init__(self, lab: Lab, names: dict[str, Any]) -> None:
        self.lab, self.names = lab, names

    def __call__(self, task: str) -> Table:
        """Run the visible checks of one task on the notebook's functions."""
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
    """Return the traceback from the first frame in the student's code on, without the grader's frames."""
    found = error.__traceback__
    while found is not None and found.tb_frame.f_globals.get("__name__", "").startswith("minorm.labs."):
        found = found.tb_next
    return found


def checker(number: int, names: dict[str, Any], lab_dir: str | Path | None = None) -> Callable[[str], Any]:
    """Make the function `check`: `check = checker(3, globals())` at the top of lab 3.

    lab_dir  the folder of a teacher's own labs; if students did not get this folder, `check` says so
    """
    if lab_dir is not None and not Path(lab_dir).is_dir():
        return functools.partial(_absent, lab_dir)
    return Checker(catalogue.find(number, lab_dir), names)


def _absent(lab_dir: str | Path, task: str) -> None:
    raise NoChecks(f"the checks of task {task} are not here: there is no folder {quoted(str(lab_dir))} in {Path.cwd()}")
