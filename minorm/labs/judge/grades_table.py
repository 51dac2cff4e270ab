"""Writes the CSV of a class, and keeps rows of a table that was written before.

A submission has one row, even if it is graded several times or the case of its name changes.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from minorm.labs.judge.roster import ROSTER, without_remarks
from minorm.support.safe_names import for_spreadsheet

Row = dict[str, Any]


def as_csv(rows: Sequence[Row]) -> str:
    """Return the rows as CSV, with a line of column names above."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: for_spreadsheet(cell) if isinstance(cell, str) else cell for key, cell in row.items()})
    return text.getvalue()


def before(path: str | Path) -> list[Row]:
    """Read the rows of a table that was written before, without the roster's columns; empty if the file is missing."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if row.get("submission")]
    except FileNotFoundError:
        return []
    found = [{name: _cell(cell) for name, cell in row.items() if not str(name).startswith(ROSTER)} for row in rows]
    return [{**row, "notes": without_remarks(row.get("notes", ""))} for row in found]


def joined(now: Sequence[Row], earlier: Sequence[Row], there: Collection[str]) -> list[Row]:
    """Return the new rows and the earlier rows of other submissions, sorted by name. Each submission has one row.

    there  the names of all submissions in the folder. If the folder has both `Anna.py` and `anna.py`, they are two
           submissions.
    """
    found: dict[str, Row] = {row["submission"]: row for row in now}
    folded = {name.casefold() for name in there}
    for row in earlier:
        name = row["submission"]
        if name in there or name.casefold() not in folded:
            found.setdefault(name, row)
    return [found[name] for name in sorted(found)]


def _cell(cell: Any) -> str:
    """Return the cell without the apostrophe that `for_spreadsheet` puts before it."""
    text = cell if isinstance(cell, str) else ""
    return text[1:] if text.startswith("'") and for_spreadsheet(text[1:]) == text else text
