"""Holds a lab's results: a row for each check, shown as a table, as Gradescope's results.json, or as numbers."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

WIDTH = 100
MUCH_OUTPUT = 10_000  # printed bytes that deserve a remark


@dataclass(frozen=True)
class Outcome:
    """The result of one check. `what`, `expected` and `got` are texts of one line each.

    status    passed, wrong, not done, error, too slow, died, not run or not tried; "not tried" means that this machine
              cannot run the check, or that the check cannot follow the function
    remark    a remark on the function's behaviour, also for right answers
    hint      names the probable mistake
    failures  the calls of the failed check, in which `recognizing` looks for the mistake
    """

    task: str
    title: str
    points: float
    earned: float = 0.0
    status: str = "not run"
    what: str = ""
    expected: str = ""
    got: str = ""
    remark: str = ""
    hint: str = ""
    seconds: float = 0.0
    visible: bool = False
    cause: BaseException | None = field(default=None, repr=False, compare=False)
    failures: Sequence[Any] = field(default=(), repr=False, compare=False)

    def but(self, **changes: Any) -> Outcome:
        """Return the outcome with some fields changed."""
        return replace(self, **changes)

    @property
    def detail(self) -> list[str]:
        """The lines below a row of the table.

        For a failed check, they have the expected and the actual answer. A remark and a hint follow.
        """
        lines = []
        if self.status != "passed":
            label = "got       " if self.expected else ""
            lines += [self.what] if self.what else []
            lines += [f"expected  {self.expected}"] if self.expected else []
            lines += [f"{label}{self.got}"] if self.got else []
        lines += [f"note      {self.remark}"] if self.remark else []
        return lines + ([f"hint      {self.hint}"] if self.hint else [])


@dataclass(frozen=True)
class Report:
    """All outcomes of one submission.

    notes      lines about statements of the file that failed
    printed    how many bytes the code printed
    beginning  the beginning of the printed text
    walls      the walls around the code
    remark     a note if the file names another variant than the one that was graded
    """

    lab: int
    title: str
    file: str
    outcomes: Sequence[Outcome]
    notes: Sequence[str] = ()
    printed: int = 0
    beginning: str = ""
    seconds: float = 0.0
    walls: str = ""
    remark: str = ""

    @property
    def score(self) -> float:
        """The earned points."""
        return sum(row.earned for row in self.outcomes)

    @property
    def points(self) -> float:
        """The possible points."""
        return sum(row.points for row in self.outcomes)

    def by_task(self) -> dict[str, tuple[float, float]]:
        """Return the earned and possible points of each task."""
        totals: dict[str, tuple[float, float]] = {}
        for row in self.outcomes:
            earned, points = totals.get(row.task, (0.0, 0.0))
            totals[row.task] = earned + row.earned, points + row.points
        return totals

    def __str__(self) -> str:
        lines = [f"Lab {self.lab}, {self.title}: {self.file}", "", *table(self.outcomes), ""]
        lines += [f"total {self.score:g} of {self.points:g} points"]
        lines += ["", f"Note: {self.remark}."] if self.remark else []
        if self.notes:
            lines += ["", "Statements of the file that failed (the rest went on without them):"]
            lines += [_wrapped(note, "  ") for note in self.notes]
        if self.printed > MUCH_OUTPUT:
            lines += ["", f"The code printed {self.printed:,} bytes, which count for nothing."]
        if self.walls:
            lines += ["", self.walls]
        return "\n".join(lines)

    def gradescope(self) -> dict[str, Any]:
        """Return results.json as Gradescope's autograder reads it."""
        output = [
            f"{self.score:g} of {self.points:g} points",
            *filter(None, [self.remark]),
            *self.notes,
            *filter(None, [self.walls]),
        ]
        if self.printed:
            output += [f"The code printed {self.printed:,} bytes. The first of them:", self.beginning]
        return {
            "score": self.score,
            "execution_time": round(self.seconds, 3),
            "output": "\n".join(output),
            "output_format": "text",
            "visibility": "visible",
            "tests": [
                {
                    "number": row.task,
                    "name": f"{row.task} {row.title}",
                    "score": row.earned,
                    "max_score": row.points,
                    "status": "passed" if row.status == "passed" else "failed",
                    "output": "\n".join([row.status, *row.detail]),
                    "output_format": "text",
                    "visibility": "visible",
                    "tags": ["visible" if row.visible else "hidden"],
                }
                for row in self.outcomes
            ],
            "extra_data": {"lab": self.lab, "file": self.file, "max_score": self.points},
        }


def table(rows: Sequence[Outcome]) -> list[str]:
    """Return lines with task, title, points and status, and below failed rows the expected and actual answers."""
    width = min(max([len(row.title) for row in rows] + [5]), 64)
    lines = [f"task  {'check':{width}}   points"]
    before = ""
    for row in rows:
        points = f"{row.earned:g} of {row.points:g}"
        lines.append(f"{row.task if row.task != before else '':5} {row.title:{width}}   {points:9} {row.status}")
        lines += [_wrapped(line, " " * 8) for line in row.detail]
        before = row.task
    return lines


def _wrapped(text: str, indent: str) -> str:
    return textwrap.fill(
        text, WIDTH, initial_indent=indent, subsequent_indent=indent + " " * 10, break_long_words=True,
        break_on_hyphens=False, drop_whitespace=False, replace_whitespace=True,
    )  # fmt: skip
