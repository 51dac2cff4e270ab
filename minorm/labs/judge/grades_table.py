"""The CSV of a class: its rows as text, and what stays of a table that was written before.

A submission has one row, however often it is graded, and also where its name changes case.
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
    """The rows with a line of names above."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: for_spreadsheet(cell) if isinstance(cell, str) else cell for key, cell in row.items()})
    return text.getvalue()


def before(path: str | Path) -> list[Row]:
    """The rows of a table that was written before, without the roster's columns; none where there is no such file."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if row.get("submission")]
    except FileNotFoundError:
        return []
    found = [{name: _cell(cell) for name, cell in row.items() if not str(name).startswith(ROSTER)} for row in rows]
    return [{**row, "notes": without_remarks(row.get("notes", ""))} for row in found]


def joined(now: Sequence[Row], earlier: Sequence[Row], there: Collection[str]) -> list[Row]:
    """The rows of now, and of the earlier ones those of other submissions, one for each, by name.

    there  the names of all submissions that lie in the folder: where `Anna.py` and `anna.py` both do, they are two
    """
    found: dict[str, Row] = {row["submission"]: row for row in now}
    folded = {name.casefold() for name in there}
    for row in earlier:
        name = row["submission"]
        if name in there or name.casefold() not in folded:
            found.setdefault(name, row)
    return [found[name] for name in sorted(found)]


def _cell(cell: Any) -> str:
    """Without the apostrophe that `for_spreadsheet` puts in front."""
    text = cell if isinstance(cell, str) else ""
    return text[1:] if text.startswith("'") and for_spreadsheet(text[1:]) == text else text
