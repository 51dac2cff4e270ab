"""A submission has one row, however often it is graded; other rows stay, with what a spreadsheet must not compute."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from minorm.labs.judge import grades_table
from minorm.labs.judge.roster import Roster


def row(name: str, score: str = "1", notes: str = "") -> dict[str, Any]:
    return {"submission": name, "score": score, "points": "18", "percent": "5.6", "failed": "", "notes": notes}


def names(rows: list[dict[str, Any]]) -> list[str]:
    return [one["submission"] for one in rows]


def test_a_row_takes_the_place_of_its_submissions_own() -> None:
    earlier = [row("anna.py"), row("ben.py"), row("gone.py")]
    found = grades_table.joined([row("ben.py", "2")], earlier, {"anna.py", "ben.py"})
    assert [(one["submission"], one["score"]) for one in found] == [("anna.py", "1"), ("ben.py", "2"), ("gone.py", "1")]


def test_a_name_that_changed_case_is_one_submission() -> None:
    found = grades_table.joined([row("anna.py", "2")], [row("Anna.py"), row("ben.py")], {"anna.py", "ben.py"})
    assert names(found) == ["anna.py", "ben.py"]
    renamed = grades_table.joined([row("ben.py")], [row("Anna.py"), row("anna.py")], {"anna.py", "ben.py"})
    assert names(renamed) == ["anna.py", "ben.py"]


def test_two_files_whose_names_differ_by_case_alone_are_two() -> None:
    there = {"Anna.py", "anna.py"}
    found = grades_table.joined([row("anna.py", "2")], [row("Anna.py"), row("anna.py")], there)
    assert [(one["submission"], one["score"]) for one in found] == [("Anna.py", "1"), ("anna.py", "2")]


def test_rows_that_were_there_twice_are_there_once() -> None:
    found = grades_table.joined([row("ben.py")], [row("anna.py", "3"), row("anna.py", "3")], {"anna.py", "ben.py"})
    assert names(found) == ["anna.py", "ben.py"]


def test_a_table_is_read_as_it_was_before_it_was_written(tmp_path: Path) -> None:
    rows = [row("=cmd.py", notes="-1 is no answer"), row("'quoted.py"), row("anna.py")]
    path = tmp_path / "grades.csv"
    for _ in range(2):
        path.write_text(grades_table.as_csv(rows))
        assert "'=cmd.py" in path.read_text()
        assert grades_table.before(path) == rows
    assert grades_table.before(tmp_path / "none.csv") == []


def test_what_a_roster_has_added_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / "roster.csv").write_text("ID,Name\n1,Anna\n2,Anna Maria\n3,Anna Maria\n4,Dora\n")
    roster = Roster.read(tmp_path / "roster.csv")
    rows = [row("anna_1.py", notes="empty"), row("anna.py"), row("anna maria.py"), row("eve.py", notes="odd; late")]
    for _ in range(2):
        text = grades_table.as_csv(list(roster.joined(rows)))
        (tmp_path / "grades.csv").write_text(text)
        assert grades_table.before(tmp_path / "grades.csv") == rows
    notes = [one["notes"] for one in csv.DictReader(io.StringIO(text))]
    assert notes == [
        "empty",
        "a second submission of this student",
        "matches several students on the roster, so no student gets its points: 2 Anna Maria or 3 Anna Maria",
        "odd; late; not on the roster",
        *["nothing was handed in"] * 3,
    ]
