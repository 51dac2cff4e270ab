"""Hints: at a check that failed, the mistakes that others made there, from the table mistakes.md."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from minorm.labs.report import Outcome, Report

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
def mistakes() -> tuple[Mistake, ...]:
    """All rows of the table."""
    rows = ROW.finditer(TABLE.read_text(encoding="utf-8"))
    return tuple(
        Mistake(row["task"], row["words"], [part.removeprefix("... ").strip() for part in row["checks"].split(";")])
        for row in rows
    )


def hint(row: Outcome) -> str:
    """Mistakes that this check shows, or else those of its task; empty for a check that passed or has no answer."""
    if row.status not in ANSWERED:
        return ""
    of_task = [mistake for mistake in mistakes() if mistake.task == row.task]
    if here := [mistake.words for mistake in of_task if mistake.shows_in(row.title)]:
        return "the usual mistake here: " + "; or: ".join(here)
    if of_task:
        return f"usual mistakes in task {row.task}: " + "; or: ".join(mistake.words for mistake in of_task)
    return ""


def hinted(report: Report) -> Report:
    """The report with a hint at each check that failed."""
    return replace(report, outcomes=[row.but(hint=hint(row)) for row in report.outcomes])
