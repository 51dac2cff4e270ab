"""`minorm labs`: list, start, check."""

from __future__ import annotations

import json
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


def test_start_writes_both_files_and_never_over_work(tmp_path: Path, capsys: Capture) -> None:
    to = tmp_path / "new" / "folder"
    assert main(["labs", "start", "0", "--to", str(to)]) == 0
    assert sorted(path.name for path in to.iterdir()) == ["lab00_axes.ipynb", "lab00_axes.py"]
    assert (to / "lab00_axes.py").read_text() == catalogue.notebook(catalogue.find(0))
    assert "labs check 0" in capsys.readouterr().out
    (to / "lab00_axes.py").unlink()
    assert main(["labs", "start", "0", "--to", str(to)]) == 1
    assert "is there already" in capsys.readouterr().err
    assert not (to / "lab00_axes.py").exists()


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


def test_an_unknown_lab(capsys: Capture) -> None:
    assert main(["labs", "start", "99"]) == 1
    assert "there is no lab 99" in capsys.readouterr().err
