"""`labs grade` on a class: options that are refused at once, rows that stay one, and Ctrl-C."""

from __future__ import annotations

import contextlib
import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from minorm.cli import main
from minorm.labs.judge import judges
from minorm.labs.sealed import finding

SOLUTIONS = Path(__file__).resolve().parents[3] / "examples" / "labs" / "solutions"
SOLUTION = (SOLUTIONS / "lab00_axes.py").read_text()
FULL = 18.0


def class_of(folder: Path, count: int = 1) -> Path:
    """Make a folder with solutions, and a roster beside it."""
    (folder / "all").mkdir()
    for number in range(count):
        (folder / "all" / f"student{number}.py").write_text(SOLUTION)
    (folder / "roster.csv").write_text("ID,Name\n1,Anna\n")
    return folder / "all"


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--jobs", "0"], 2, "--jobs 0: expected at least 1"),
        (["--jobs", "-3"], 2, "--jobs -3: expected at least 1"),
        (["--due", "2027-01-01", "--late-per-day", "-1"], 2, "--late-per-day -1: expected a percentage from 0 to 100"),
        (["--due", "2027-01-01", "--late-per-day", "nan"], 2, "--late-per-day nan: expected a percentage"),
        (["--late-per-day", "5"], 2, "--late-per-day needs --due DATE"),
        (["--late-days", "3"], 2, "--late-days needs --due DATE"),
        (["--due", "2027-01-01", "--late-days", "-1"], 2, "--late-days -1: expected at least 0"),
        (["--due", "soon"], 2, "--due: 'soon' is not a date"),
        (["--roster", "none.csv"], 1, "none.csv"),
        (["--roster", "."], 1, "expected a regular file"),
        (["--roster", "binary.csv"], 2, "binary.csv' has the columns"),
        (["--roster", "roster.csv", "--roster-key", "Nr"], 2,
         "'roster.csv' has the columns ID, Name; expected a column 'Nr'"),
        (["--roster-key", "ID"], 2, "--roster-key needs --roster FILE"),
        (["--moodle", "m.csv"], 2, "--moodle needs --roster FILE"),
        (["-o", "none/g.csv"], 1, "the folder 'none' does not exist; create it first"),
        (["-o", "all"], 1, "'all' is a folder; expected a file name"),
        (["--roster", "roster.csv", "--moodle", "none/m.csv"], 1, "the folder 'none' does not exist"),
        (["--roster", "roster.csv", "--moodle", "g.csv", "-o", "g.csv"], 2, "g.csv is named twice"),
        (["--reports", "roster.csv"], 1, "roster.csv"),
    ],
)  # fmt: skip
def test_options_are_refused_before_anybody_is_judged(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    code: int,
    said: str,
) -> None:
    """Nor are walls tried: a wrong letter is said at once."""
    class_of(tmp_path)
    (tmp_path / "binary.csv").write_bytes(bytes(range(1, 9)))
    monkeypatch.chdir(tmp_path)

    def never(*_: object, **__: object) -> None:
        raise AssertionError("a submission was judged")

    monkeypatch.setattr(judges.Judges, "ask", never)
    monkeypatch.setattr(finding, "find", never)
    there = sorted(os.listdir(tmp_path))
    assert main(["labs", "grade", "0", "all", *options]) == code
    printed = capsys.readouterr()
    assert said in printed.err
    assert len(printed.err.splitlines()) == 1
    assert not printed.out
    assert sorted(os.listdir(tmp_path)) == there


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_said_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class_of(tmp_path)
    (tmp_path / "closed").mkdir(mode=0o500)
    assert main(["labs", "grade", "0", str(tmp_path / "all"), "-o", str(tmp_path / "closed" / "g.csv")]) == 1
    assert "Permission denied" in capsys.readouterr().err


def test_a_damaged_archive_and_an_ambiguous_name_among_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = class_of(tmp_path)
    (folder / "anna or ben.py").write_text(SOLUTION)
    (folder / "carl.zip").write_bytes(b"PK\x03\x04 and no more")
    (tmp_path / "roster.csv").write_text("ID,Name\n1,Anna\n2,Ben\n3,Carl\n")
    table = tmp_path / "g.csv"
    command = ["labs", "grade", "0", str(folder), "-o", str(table), "--roster", str(tmp_path / "roster.csv")]
    assert main(command) == 0
    said = capsys.readouterr()
    assert (
        "anna or ben.py: matches several students on the roster, so no student gets its points: 1 Anna or 2 Ben"
        in said.err
    )
    assert "student0.py: not on the roster" in said.err
    with open(table, newline="") as file:
        rows = {row["submission"] or row["roster Name"]: row for row in csv.DictReader(file)}
    assert rows["carl.zip"]["roster ID"] == "3"
    assert rows["carl.zip"]["notes"].startswith("carl.zip cannot be unpacked: ")
    assert float(rows["student0.py"]["score"]) == float(rows["anna or ben.py"]["score"]) == FULL
    assert rows["anna or ben.py"]["roster ID"] == ""
    assert {rows[name]["notes"] for name in ("Anna", "Ben")} == {"nothing was handed in"}
    for name in ("student0.py", "Student0.py"):  # graded alone, twice, and once under a name that changed case
        (folder / "student0.py").rename(folder / name)
        assert main([*command, "--only", "[sS]*"]) == 0
        with open(table, newline="") as file:
            again = [row["submission"] for row in csv.DictReader(file)]
        assert sorted(again) == sorted(["", "", "anna or ben.py", "carl.zip", name])
        (folder / name).rename(folder / "student0.py")


def test_ctrl_c_ends_all_judges_and_leaves_the_table_whole(tmp_path: Path) -> None:
    """Two judges wait for students that never answer; a third submission is done, and stays graded."""
    folder = class_of(tmp_path)
    for name in ("z1.py", "z2.py", "z3.py"):
        (folder / name).write_text("while True:\n    pass\n")
    table = tmp_path / "g.csv"
    command = [sys.executable, "-m", "minorm", "labs", "grade", "0", str(folder), "-o", str(table), "--jobs", "2"]
    grading_now = subprocess.Popen(
        command, cwd=SOLUTIONS.parents[2], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert grading_now.stdout is not None
        assert "student0.py" in grading_now.stdout.readline()
        deadline = time.monotonic() + 60
        while len(children(grading_now.pid)) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        judging_now = children(grading_now.pid)
        assert len(judging_now) == 2
        began = time.monotonic()
        grading_now.send_signal(signal.SIGINT)
        _, said = grading_now.communicate(timeout=60)
        assert time.monotonic() - began < 15  # a student's file has 30 s
    finally:
        grading_now.kill()
    assert grading_now.returncode == 130
    assert said.split("\n")[-2] == "minorm labs: stopped"
    assert "Traceback" not in said
    assert not [pid for pid in judging_now if Path(f"/proc/{pid}").exists()]
    with open(table, newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["submission"], row["score"]) for row in rows] == [("student0.py", f"{FULL:g}")]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all", "g.csv", "roster.csv"]


def children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(word) for word in task.read_text().split()]
    return found
