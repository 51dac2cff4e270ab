"""Hints: at a check that failed, the mistakes that others made there, from the table mistakes.md."""

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
ANSWERED = ("wrong", "error", "too slow", "died")  # elsewhere there is nothing yet to have a mistake in


@dataclass(frozen=True)
class Mistake:
    """A row of the table: the task, what people do, and the titles, or parts of titles, of the checks that show it."""

    task: str
    words: str
    checks: Sequence[str]

    def shows_in(self, title: str) -> bool:
        """Is this one of its checks?"""
        return any(part in title or title in part for part in self.checks)


@functools.cache
def mistakes(table: Path = TABLE) -> tuple[Mistake, ...]:
    """All rows of the table; none where there is no such file."""
    rows = ROW.finditer(table.read_text(encoding="utf-8") if table.is_file() else "")
    return tuple(
        Mistake(row["task"], row["words"], [part.removeprefix("... ").strip() for part in row["checks"].split(";")])
        for row in rows
    )


def hint(row: Outcome, table: Path = TABLE) -> str:
    """Mistakes that this check shows, or else those of its task; empty for a check that passed or has no answer."""
    if row.status not in ANSWERED:
        return ""
    of_task = [mistake for mistake in mistakes(table) if mistake.task == row.task]
    if here := [mistake.words for mistake in of_task if mistake.shows_in(row.title)]:
        return "a mistake that is common here: " + "; or: ".join(here)
    if of_task:
        return f"mistakes that are common in task {row.task}: " + "; or: ".join(mistake.words for mistake in of_task)
    return ""


def hinted(report: Report, lab: Lab) -> Report:
    """The report with a hint at each check that failed, from the table of the course or of the lab's own folder.

    A lab that recognizes mistakes has its hints already, and a guess beside them could only mislead.
    """
    if lab.recognizer is not None:
        return report
    table = TABLE if lab.folder is None else lab.folder / "mistakes.md"
    return replace(report, outcomes=[row.but(hint=hint(row, table)) for row in report.outcomes])
