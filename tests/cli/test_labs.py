"""`minorm labs`: list, start, check."""

from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path

import pytest

from minorm.cli import main
from minorm.labs import catalogue

Capture = pytest.CaptureFixture[str]
SOLUTION = catalogue.CHECKOUT / "solutions" / "lab00_axes.py"


def test_list(capsys: Capture) -> None:
    assert main(["labs", "list"]) == 0
    out = capsys.readouterr().out
    rows = [line for line in out.splitlines() if " min, " in line]
    assert len(rows) == len(catalogue.numbers())
    assert re.fullmatch(r"  0  Axes +60 min, 18 points", rows[0])
    assert len({row.index(" min, ") for row in rows}) == 1
    (capstone,) = (row for row in rows if "Capstone" in row)
    assert capstone.endswith(" points, needs labs 1, 3 and 5")
    order = [int(row.split()[0]) for row in rows]
    assert sorted(order) == catalogue.numbers()
    for row in rows:
        needed = re.findall(r"\d+", row.partition("needs ")[2])
        assert all(order.index(int(number)) < order.index(int(row.split()[0])) for number in needed), row


def test_start_writes_both_files_and_never_over_work(tmp_path: Path, capsys: Capture) -> None:
    to = tmp_path / "new" / "folder"
    assert main(["labs", "start", "0", "--to", str(to)]) == 0
    assert sorted(path.name for path in to.iterdir()) == ["lab00_axes.ipynb", "lab00_axes.py"]
    assert (to / "lab00_axes.py").read_text() == catalogue.notebook(catalogue.find(0))
    assert "labs check 0" in capsys.readouterr().out
    (to / "lab00_axes.py").unlink()
    assert main(["labs", "start", "0", "--to", str(to)]) == 1
    assert "already exists, with your work in it" in capsys.readouterr().err
    assert not (to / "lab00_axes.py").exists()


def test_start_says_what_comes_before(tmp_path: Path, capsys: Capture) -> None:
    assert main(["labs", "start", "0", "-o", str(tmp_path)]) == 0
    assert " first." not in capsys.readouterr().out
    assert main(["labs", "start", "6", "-o", str(tmp_path)]) == 0
    assert "Do lab 1 (Forward) and lab 2 (Stable variance) first." in capsys.readouterr().out.splitlines()


def test_start_leaves_no_folder_behind_where_it_cannot_write(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert main(["labs", "start", "0", "-o", str(tmp_path / "a" / "b" / "made")]) == 1
    assert "No space left on device" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_check(tmp_path: Path, capsys: Capture) -> None:
    assert main(["labs", "check", "0", str(SOLUTION)]) == 0
    assert "total 18 of 18 points" in capsys.readouterr().out
    assert main(["labs", "start", "0", "--to", str(tmp_path)]) == 0
    capsys.readouterr()
    assert main(["labs", "check", "0", str(tmp_path / "lab00_axes.ipynb"), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["score"] == 0


def test_an_autograder_gets_a_score_for_no_file_as_well(tmp_path: Path, capsys: Capture) -> None:
    assert main(["labs", "check", "0", str(tmp_path / "lab00_axes.py"), "--json"]) == 1
    result = json.loads(capsys.readouterr().out)
    assert result["score"] == 0
    assert "lab00_axes.py" in result["output"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--seed", "-1"], "--seed -1: expected a whole number of at least 0"),
        (["--memory", "-5"], "--memory -5: expected MB from 256 to"),
        (["--memory", "1"], "--memory 1: expected MB from 256 to"),
        (["--memory", "99999999999"], "or 0 for no limit"),
        (["--patience", "0"], "--patience 0: expected a factor above 0"),
        (["--patience", "-3"], "--patience -3: expected a factor above 0"),
        (["--patience", "nan"], "--patience nan: expected a factor above 0"),
        (["--patience", "inf"], "--patience inf: expected a factor above 0 and at most 1000"),
    ],
)
def test_options_that_nobody_can_be_judged_with(tmp_path: Path, capsys: Capture, options: list[str], said: str) -> None:
    """Wrong usage and no score, not even for an autograder: a seed below 0 gave everybody 0 points."""
    csv = tmp_path / "grades.csv"
    for command in (
        ["check", "0", str(SOLUTION)],
        ["check", "0", str(SOLUTION), "--json"],
        ["grade", "0", str(SOLUTION.parent), "--csv", str(csv)],
    ):
        assert main(["labs", *command, *options]) == 2
        printed = capsys.readouterr()
        assert not printed.out
        assert said in printed.err
        assert len(printed.err.splitlines()) == 1
    assert not csv.exists()


def test_an_unknown_lab(capsys: Capture) -> None:
    assert main(["labs", "start", "99"]) == 1
    assert "there is no lab 99" in capsys.readouterr().err
