"""Submissions find their students by number, address or name, and both learning platforms get their columns."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from minorm.labs import catalogue
from minorm.labs.judge.roster import MISSING, Roster

LAB = catalogue.find(0)
MOODLE = """Identifier,Full name,Email address,Status,Grade
Participant 1815,Ada Lovelace,ada@example.org,Submitted,
Participant 1912,Alan Turing,alan@example.org,Submitted,
Participant 1906,Grace Hopper,grace@example.org,,
"""
CANVAS = """Student,ID,SIS User ID,SIS Login ID,Section,Old lab
    Points Possible,,,,,20
"Lovelace, Ada",1815,a1,ada,Lab A,3
"Turing, Alan",1912,a2,alan,Lab A,4
"""


def roster(tmp_path: Path, text: str, key: str | None = None) -> Roster:
    (tmp_path / "roster.csv").write_text(text)
    return Roster.read(tmp_path / "roster.csv", key)


def row(name: str, score: str = "7", **more: str) -> dict[str, Any]:
    return {"submission": name, "score": score, "points": "18", "percent": 38.9, "failed": "", "notes": "", **more}


@pytest.mark.parametrize(
    ("text", "name", "place"),
    [
        (MOODLE, "Ada Lovelace_98765_assignsubmission_file_", 0),
        (MOODLE, "Participant_1912_assignsubmission_file", 1),
        (MOODLE, "grace@example.org.ipynb", 2),
        (MOODLE, "GRACE HOPPER", 2),
        (MOODLE, "Ada", None),
        (MOODLE, "Ada Lovelace and Alan Turing.py", None),
        (CANVAS, "lovelaceada_1815_55555_lab00_axes.ipynb", 0),
        (CANVAS, "alan.zip", 1),
        (CANVAS, "turingalan_99_1_lab.py", 1),
        (CANVAS, "turingalan_1815_1_lab.py", None),
    ],
)
def test_a_submission_finds_its_student(tmp_path: Path, text: str, name: str, place: int | None) -> None:
    assert roster(tmp_path, text).student(name) == place


def test_who_handed_nothing_in_has_a_row_and_strangers_are_named(tmp_path: Path) -> None:
    rows = [row("Ada Lovelace_1"), row("mallory.py"), row("ada@example.org.zip")]
    found = list(roster(tmp_path, MOODLE).joined(rows))
    assert [one["roster Full name"] for one in found] == [
        "Ada Lovelace",
        "",
        "Ada Lovelace",
        "Alan Turing",
        "Grace Hopper",
    ]
    assert [one["notes"] for one in found] == [
        "", "not on the roster", "a second submission of this student", MISSING, MISSING
    ]  # fmt: skip
    assert [one["score"] for one in found] == ["7", "7", "7", "0", "0"]
    assert {tuple(one) for one in found} == {tuple(found[0])}


def test_moodles_worksheet_is_filled_in(tmp_path: Path) -> None:
    known = roster(tmp_path, MOODLE)
    scores = known.scores(
        [row("Ada Lovelace_1", failed="0.2: wrong"), row("alan@example.org", **{"score after lateness": "6.3"})]
    )
    found = list(csv.DictReader(io.StringIO(known.filled(LAB, scores, "moodle"))))
    assert [one["Grade"] for one in found] == ["7", "6.3", ""]
    assert found[0]["Feedback comments"] == "0.2: wrong"
    assert found[0]["Identifier"] == "Participant 1815"


def test_canvas_gets_its_columns_and_the_points_possible(tmp_path: Path) -> None:
    known = roster(tmp_path, CANVAS)
    found = list(csv.DictReader(io.StringIO(known.filled(LAB, known.scores([row("lovelaceada_1815_2")]), "canvas"))))
    assert list(found[0]) == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "Lab 0: Axes"]
    assert [one["Lab 0: Axes"] for one in found] == ["18", "7", ""]
    assert found[0]["Student"].strip() == "Points Possible"
    assert found[1]["ID"] == "1815"


def test_a_name_that_a_spreadsheet_would_compute_is_a_text(tmp_path: Path) -> None:
    known = roster(tmp_path, "ID,Name\n1,=cmd()\n")
    assert "'=cmd()" in known.filled(LAB, {}, "moodle")


def test_a_key_of_the_teachers(tmp_path: Path) -> None:
    known = roster(tmp_path, "Matrikel,Vorname\n007,Ada\n", "Matrikel")
    assert known.student("lab_007.py") == 0
    with pytest.raises(ValueError, match=r"has the columns Matrikel, Vorname; expected a column such as id"):
        roster(tmp_path, "Matrikel,Vorname\n007,Ada\n")
    with pytest.raises(ValueError, match="expected a column 'Nummer'"):
        roster(tmp_path, "Matrikel,Vorname\n007,Ada\n", "Nummer")


def test_latin_1_and_broken_files(tmp_path: Path) -> None:
    (tmp_path / "latin.csv").write_bytes("ID,Name\n1,Jürgen\n".encode("latin-1"))
    assert Roster.read(tmp_path / "latin.csv").rows[0]["Name"] == "Jürgen"
    (tmp_path / "broken.csv").write_text('ID,Name\n1,"open\n')
    with pytest.raises(ValueError, match="is not a CSV file"):
        Roster.read(tmp_path / "broken.csv")
