"""Adds hints to failed checks: the common mistakes that the table mistakes.md lists for them."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from minorm.labs.lab import Lab
from minorm.labs.scores import Outcome, Report

TABLE = Path(__file__).resolve().parent / "mistakes.md"
ROW = re.compile(r"\| \d+ \| (?P<task>\d+\.\d+) \| (?P<words>.*?) \| (?P<checks>.*?) \|$", re.MULTILINE)
ANSWERED = ("wrong", "error", "too slow", "died")  # any other status has no answer that could be wrong


@dataclass(frozen=True)
class Mistake:
    """A row of the table: the task, the mistake, and the titles (or parts of titles) of the checks that show it."""

    task: str
    words: str
    checks: Sequence[str]

    def shows_in(self, title: str) -> bool:
        """Return whether this check shows the mistake."""
        return any(part in title or title in part for part in self.checks)


@functools.cache
def mistakes(table: Path = TABLE) -> tuple[Mistake, ...]:
    """Return all rows of the table; empty if the file does not exist."""
    rows = ROW.finditer(table.read_text(encoding="utf-8") if table.is_file() else "")
    return tuple(
        Mistake(row["task"], row["words"], [part.removeprefix("... ").strip() for part in row["checks"].split(";")])
        for row in rows
    )


def hint(row: Outcome, table: Path = TABLE) -> str:
    """Return a hint with the common mistakes that this check shows.

    If the table has no mistake for the check, name all mistakes of its task. Return "" for a status such as "not done".
    """
    if row.status not in ANSWERED:
        return ""
    of_task = [mistake for mistake in mistakes(table) if mistake.task == row.task]
    if here := [mistake.words for mistake in of_task if mistake.shows_in(row.title)]:
        return "a common mistake here: " + "; or: ".join(here)
    if of_task:
        return f"common mistakes in task {row.task}: " + "; or: ".join(mistake.words for mistake in of_task)
    return ""


def hinted(report: Report, lab: Lab) -> Report:
    """Return the report with a hint for each failed check, from the course's table or the lab's own folder.

    If the lab recognizes mistakes, the report already has better hints, and stays unchanged.
    """
    if lab.recognizer is not None:
        return report
    table = TABLE if lab.folder is None else lab.folder / "mistakes.md"
    return replace(report, outcomes=[row.but(hint=hint(row, table)) for row in report.outcomes])
