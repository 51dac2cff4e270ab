"""Joins the submissions with the list of a course's students, as Moodle or Canvas exports it.

A submission belongs to a student if its name contains the student's number, e-mail address or name from the list (see
`whose`). If several students match, the notes say so, and the submission goes to none of them.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from minorm.labs.judge import whose
from minorm.labs.lab import Lab
from minorm.serialization.opening import regular
from minorm.support.safe_names import for_spreadsheet, quoted

KEYS = (
    "id", "identifier", "student id", "id number", "sis user id", "sis login id", "username", "user name", "login",
    "email", "email address", "e-mail", "mail", "full name", "name", "student",
)  # fmt: skip
LARGEST = 16 << 20
POINTS = "Points Possible"  # marks a row of Canvas that is not a student
MISSING = "nothing was handed in"
STRANGER = "not on the roster"
SECOND = "a second submission of this student"
AMBIGUOUS = "matches several students on the roster, so no student gets its points: "
ROSTER = "roster "  # before the names of its columns, which may equal ours


@dataclass(frozen=True)
class Roster:
    """A course's students: the rows of a CSV file, each as a dict by column name."""

    columns: Sequence[str]
    rows: Sequence[Mapping[str, str]]
    keys: Sequence[str]

    @classmethod
    def read(cls, path: str | Path, key: str | None = None) -> Roster:
        """Read a CSV file whose first line names the columns; raise ValueError for any other file.

        key: the column that identifies students
        """
        with regular(path, "labs") as file:
            data = file.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise ValueError(f"the roster {quoted(str(path))} has more than {LARGEST >> 20} MB")
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = data.decode("latin-1")
        try:
            reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
            columns = [name.strip() for name in reader.fieldnames or []]
            reader.fieldnames = columns
            rows = [{name: (row.get(name) or "").strip() for name in columns} for row in reader]
        except csv.Error as error:
            raise ValueError(f"the roster {quoted(str(path))} is not a CSV file: {error}") from None
        keys = [name for name in columns if name.lower() in KEYS] if key is None else [key] if key in columns else []
        if not keys:
            expected = f"a column {key!r}" if key is not None else f"a column such as {', '.join(KEYS[:4])} or email"
            raise ValueError(
                f"the roster {quoted(str(path))} has the columns {', '.join(columns)}; expected {expected}"
            )
        rows = [row for row in rows if any(row[name] for name in keys) and POINTS not in row.values()]
        return cls(columns, rows, keys)

    @cached_property
    def _students(self) -> list[set[whose.Words]]:
        """For each row, the forms in which its student can be recognized in a submission's name (see whose.forms)."""
        return [{words for key in self.keys for words in whose.forms(row[key])} for row in self.rows]

    @cached_property
    def _known(self) -> dict[str, list[int]]:
        """A cache from the names of submissions to the rows of their students.

        The whole table is written again after each submission.
        """
        return {}

    def _owners(self, submission: str) -> list[int]:
        if submission not in self._known:
            self._known[submission] = whose.owners(submission, self._students)
        return self._known[submission]

    def student(self, submission: str) -> int | None:
        """Return the index of the student's row to which a submission belongs.

        Return None if no row or several rows match.
        """
        found = self._owners(submission)
        return found[0] if len(found) == 1 else None

    def remark(self, submission: str) -> str:
        """Say why a submission belongs to no student; empty if it belongs to one."""
        found = self._owners(submission)
        if len(found) > 1:
            students = " or ".join(self._words_of(number) for number in found[:5])
            return f"{AMBIGUOUS}{students}{' or others' if len(found) > 5 else ''}"
        return "" if found else STRANGER

    def _words_of(self, number: int) -> str:
        """Return the cells of a row that identify the student, such as name and number, as one text."""
        return " ".join(dict.fromkeys(filter(None, (self.rows[number][key] for key in self.keys))))

    def joined(self, rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield the rows of grades with the students' columns in front.

        Each student without a submission has a row at the end.
        """
        here: set[int] = set()
        blank = dict.fromkeys(rows[0], "") if rows else {}
        for row in rows:
            number = self.student(str(row["submission"]))
            if number is None:
                yield {
                    **self._named({}),
                    **row,
                    "notes": _joined_notes(row["notes"], self.remark(str(row["submission"]))),
                }
                continue
            if number in here:
                row = {**row, "notes": _joined_notes(row["notes"], SECOND)}
            here.add(number)
            yield {**self._named(self.rows[number]), **row}
        for number, student in enumerate(self.rows):
            if number not in here and blank:
                nothing = {"score": "0", "points": rows[0]["points"], "percent": 0.0, "notes": MISSING}
                yield {**self._named(student), **blank, **nothing}

    def _named(self, row: Mapping[str, str]) -> dict[str, Any]:
        return {f"{ROSTER}{name}": row.get(name, "") for name in self.columns}

    def scores(self, rows: Sequence[Mapping[str, Any]]) -> dict[int, tuple[str, str]]:
        """Return a dict from the index of each student's row to (score, failures).

        If there is a rule for lateness, it is applied.
        """
        found: dict[int, tuple[str, str]] = {}
        for row in rows:
            number = self.student(str(row["submission"]))
            if number is not None:
                score = row.get("score after lateness") or row["score"]
                found[number] = str(score), "; ".join(filter(None, [row["failed"], row["notes"]]))
        return found

    def filled(self, lab: Lab, scores: Mapping[int, tuple[str, str]], kind: str) -> str:
        """Return the roster as Moodle's grading worksheet or Canvas's gradebook, with the scores of this lab.

        scores  score and feedback by the number of the row
        """
        if kind == "canvas":
            name = f"Lab {lab.number}: {lab.title}"
            columns = [*[c for c in CANVAS if c in self.columns], name]
            head = [{columns[0]: f"    {POINTS}", name: f"{lab.points:g}"}]
            rows = [{**row, name: scores.get(i, ("", ""))[0]} for i, row in enumerate(self.rows)]
        else:
            columns = list(dict.fromkeys([*self.columns, "Grade", "Feedback comments"]))
            head = []
            rows = [
                {**row, "Grade": scores.get(i, ("", ""))[0], "Feedback comments": scores.get(i, ("", ""))[1]}
                for i, row in enumerate(self.rows)
            ]
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, extrasaction="ignore", restval="", lineterminator="\n")
        writer.writeheader()
        for row in [*head, *rows]:
            writer.writerow({key: for_spreadsheet(value) for key, value in row.items()})
        return text.getvalue()


CANVAS = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")


def without_remarks(notes: str) -> str:
    """Return the notes of a row without the remarks that Roster.joined has added."""
    ours = (STRANGER, SECOND, AMBIGUOUS)
    return "; ".join(note for note in notes.split("; ") if not note.startswith(ours))


def _joined_notes(notes: Any, more: str) -> str:
    return "; ".join(filter(None, [str(notes), more]))
