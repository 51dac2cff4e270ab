"""`minorm labs`: list, start, check."""

from __future__ import annotations

import csv
import errno
import json
import os
import re
from pathlib import Path

import pytest

from minorm.cli import main
from minorm.labs import catalogue, cells
from minorm.labs.varied import rendering

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


def test_a_variant_from_start_to_grades(tmp_path: Path, capsys: Capture) -> None:
    """`start --seed` writes the variant's name: `check` knows it, and `grade` says which file has another variant."""
    assert main(["labs", "start", "0", "--seed", "2027", "-o", str(tmp_path)]) == 0
    lab = catalogue.find(0)
    variants = {year: lab.variants.of(year) for year in ("2026", "2027")}
    assert f"Axes, variant {variants['2027'].code}: " in capsys.readouterr().out
    for ending in (".py", ".ipynb"):
        found = cells.read((tmp_path / f"lab00_axes{ending}").read_text(), f"x{ending}")
        assert rendering.said(found) == variants["2027"].code
    solved = tmp_path / "class"
    solved.mkdir()
    for year, variant in variants.items():
        (solved / f"{year}.py").write_text(rendering.rendered(SOLUTION.read_text(), lab.variants, variant))
        assert main(["labs", "check", "0", str(solved / f"{year}.py")]) == 0
        assert f"Lab 0, Axes, variant {variant.code}: {year}.py" in capsys.readouterr().out
    (solved / "plain.py").write_text(SOLUTION.read_text())
    grades = tmp_path / "g.csv"
    assert main(["labs", "grade", "0", str(solved), "-o", str(grades), "--variant", "2027"]) == 0
    with open(grades, newline="") as file:
        rows = {row["submission"]: row for row in csv.DictReader(file)}
    assert {name: float(row["percent"]) == 100 for name, row in rows.items()} == {
        "2026.py": False, "2027.py": True, "plain.py": False
    }  # fmt: skip
    code = variants["2027"].code
    assert rows["2026.py"]["notes"] == f"it is variant {variants['2026'].code}; graded as variant {code}"
    assert rows["plain.py"]["notes"] == f"it is the lab without a variant; graded as variant {code}"
    assert rows["2027.py"]["notes"] == ""
    assert {row["variant"] for row in rows.values()} == {code}


def test_seeds_of_variants_that_cannot_be(tmp_path: Path, capsys: Capture) -> None:
    for command in (["start", "0", "--seed", ""], ["check", "0", str(SOLUTION), "--variant", " "]):
        assert main(["labs", *command]) == 2
        assert "the seed of a variant is empty; expected a year such as 2027" in capsys.readouterr().err
    assert main(["labs", "start", "7", "--seed", "2027", "-o", str(tmp_path)]) == 0
    assert "Lab 7 has no variants: it is the same for every --seed." in capsys.readouterr().err
    wrong = tmp_path / "lab00_axes.py"
    wrong.write_text(SOLUTION.read_text().replace("# %%\nimport numpy", "# %%\nVARIANT = 'ABC'\nimport numpy", 1))
    assert main(["labs", "check", "0", str(wrong)]) == 1
    assert "lab00_axes has no variant 'ABC'" in capsys.readouterr().err


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
