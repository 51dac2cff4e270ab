"""A folder of the worst submissions is graded to the end, and each gets what its good parts are worth."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minorm.cli import main
from minorm.labs import catalogue, cells
from minorm.labs.judge import grading
from minorm.labs.sealed import walls

SOLUTION = (Path(__file__).resolve().parents[3] / "examples" / "labs" / "solutions" / "lab00_axes.py").read_text()
MASK = "return sum(1 << axis for axis in set(axes))"
FULL = 18.0
MASK_POINTS = 1.0  # the check that calls to_mask alone
TASK_POINTS = 2.0  # its task, all of which goes with a process that is lost
CHILD = """
    import os, time
    if os.fork() == 0:
        os.setsid()
        open({path!r}, "a").write(str(os.getpid()) + chr(10))
        time.sleep(600)
"""
FORGE = """
    import json, os, sys
    for name in ("results.json", "grades0.csv", "/autograder/results/results.json", "../grades0.csv"):
        try:
            open(name, "w").write(json.dumps({"score": 1000}))
        except OSError:
            pass
    import minorm.labs.scores, minorm.labs.lab, numpy
    minorm.labs.scores.Outcome.earned = property(lambda self: 1000)
    minorm.labs.lab.Check.run = lambda *a: []
    numpy.array_equal = lambda *a: True
    print(json.dumps({"value": 13, "score": 1000}), flush=True)
    return 999
"""
SPOIL = """
    import os
    for fd in range(3, 64):
        try:
            os.write(fd, b"x" * 4096)
        except OSError:
            pass
    return 13
"""


READ = """
    import minorm.labs.catalogue
    text = (minorm.labs.catalogue.CHECKOUT / "solutions" / "lab00_axes.py").read_text()
    return 13
"""


def in_mask(code: str) -> str:
    """Return the right solution of lab 0 with another body of to_mask."""
    assert MASK in SOLUTION
    return SOLUTION.replace(MASK, code.strip())


def submissions(pids: Path) -> dict[str, tuple[str, float]]:
    """File -> (text, the score it should get)."""
    broken_cell = "\n\n# %%\ndef f(:\n    pass\n\n\n# %%\nprint('goes on')\n"
    rest, without = FULL - MASK_POINTS, FULL - TASK_POINTS
    return {
        "right.py": (SOLUTION, FULL),
        "right.ipynb": (cells.to_notebook(cells.read_percent(SOLUTION)), FULL),
        "marked.py": ("\ufeff" + SOLUTION, FULL),
        "marked.ipynb": ("\ufeff" + cells.to_notebook(cells.read_percent(SOLUTION)), FULL),
        "empty.py": ("", 0.0),
        "not_a_notebook.ipynb": ("{}", 0.0),
        "imports_what_is_not_there.py": ("import not_there\nfrom os import not_this\n" + SOLUTION, FULL),
        "cell_that_is_no_python.py": (SOLUTION + broken_cell, FULL),
        "magics.py": (SOLUTION.replace("import numpy as np", "%matplotlib inline\n!ls\nimport numpy as np", 1), FULL),
        "exits_at_the_end.py": (SOLUTION + "\n\n# %%\nimport sys\nsys.exit(0)\n", FULL),
        "exits.py": (in_mask("import sys; sys.exit(0)"), rest),
        "leaves.py": (in_mask("import os; os._exit(0)"), without),
        "crashes.py": (in_mask("import ctypes; ctypes.string_at(0)"), without),
        "hangs.py": (in_mask("while True: pass"), without),
        "hangs_in_a_cell.py": (SOLUTION + "\n\n# %%\nwhile True: pass\n", 0.0),
        "fills_memory.py": (in_mask("x = []\n    while True: x.append(bytes(1 << 26))"), rest),
        "recurses.py": (in_mask("return to_mask(axes)"), rest),
        "prints.py": (in_mask("for _ in range(40): print('x' * 1000000)\n    " + MASK), FULL),
        "answers_with_megabytes.py": (in_mask("return np.ones((1 << 24,))"), rest),
        "answers_oddly.py": (in_mask("return type('Evil', (), {'__eq__': lambda self, other: True})()"), rest),
        "forks.py": (in_mask(CHILD.format(path=str(pids)) + "    " + MASK), rest),
        "child_goes_on.py": (in_mask("import os; os.fork()\n    " + MASK), rest),
        "forges.py": (in_mask(FORGE), rest),
        "spoils_the_line.py": (in_mask(SPOIL), without),
        "reads_the_solution.py": (in_mask(READ), rest),
        "closes_the_line.py": (in_mask("import os; os.closerange(3, 64)"), without),
        "kills_the_grader.py": (in_mask("import os; os.kill(os.getppid(), 9)"), rest),
        "=cmd.py": (SOLUTION, FULL),
    }


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, dict[str, Any]]]]:
    folder = tmp_path_factory.mktemp("grading")
    (folder / "all").mkdir()
    for name, (text, _) in submissions(folder / "pids").items():
        (folder / "all" / name).write_text(text)
    (folder / "all" / "frida.zip").write_bytes(b"PK")
    (folder / "all" / "old grades.csv").write_text("")
    (folder / "all" / "latin.py").write_bytes(("# naïve\n" + SOLUTION).encode("latin-1"))
    for student, files in {"anna": ["lab00_axes.py"], "ben": ["lab00_axes.ipynb", "notes.py"], "no one": []}.items():
        (folder / "all" / student).mkdir()
        for file in files:
            text = SOLUTION if file.endswith(".py") else cells.to_notebook(cells.read_percent(SOLUTION))
            (folder / "all" / student / file).write_text(text)
    code = main(
        ["labs", "grade", "0", str(folder / "all"), "--csv", str(folder / "grades.csv"), "--memory", "1500",
         "--patience", "0.25"]
    )  # fmt: skip
    assert code == 0
    with open(folder / "grades.csv", newline="") as file:
        yield folder, {row["submission"]: row for row in csv.DictReader(file)}


def test_the_score_is_what_the_good_parts_are_worth(graded: Any) -> None:
    rows = {name.removeprefix("'"): row for name, row in graded[1].items()}
    worth = {name: score for name, (_, score) in submissions(Path("pids")).items()}
    assert {name: float(rows[name]["score"]) for name in worth} == worth
    assert {float(rows[name]["points"]) for name in worth} == {FULL}


def test_every_submission_has_a_row_and_its_tasks_add_up(graded: Any) -> None:
    folder, rows = graded
    names = {path.name.replace("=cmd", "'=cmd") for path in (folder / "all").iterdir()}
    assert rows.keys() == names - {"old grades.csv"}
    for row in rows.values():
        assert float(row["score"]) == sum(float(value) for key, value in row.items() if key.startswith("task "))


def test_the_notes_say_what_happened(graded: Any) -> None:
    rows = graded[1]
    assert "No module named 'not_there'" in rows["imports_what_is_not_there.py"]["notes"]
    assert "SyntaxError" in rows["cell_that_is_no_python.py"]["notes"]
    assert "SystemExit" in rows["exits_at_the_end.py"]["notes"]
    assert "a mask of axes: died" in rows["crashes.py"]["failed"]
    assert "a mask of axes: too slow" in rows["hangs.py"]["failed"]
    assert "a mask of axes: error" in rows["fills_memory.py"]["failed"]
    assert "printed 160,000," in rows["prints.py"]["notes"]
    assert "a mask of axes: error" in rows["kills_the_grader.py"]["failed"]
    assert all(row["walls"].startswith("walls: ") for row in rows.values())
    assert rows["latin.py"]["notes"] == "read as Latin-1, because it is not UTF-8"
    assert "is not a notebook" in rows["not_a_notebook.ipynb"]["notes"]
    assert "frida.zip cannot be unpacked" in rows["frida.zip"]["notes"]
    assert "a mask of axes: error" in rows["reads_the_solution.py"]["failed"]


def test_a_part_of_a_class_is_graded_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two at a time, with a roster and a rule for what is late; then one again, and the others' rows stay."""
    (tmp_path / "all").mkdir()
    for name in ("anna", "ben", "carl"):
        (tmp_path / "all" / f"{name}.py").write_text(in_mask("return 0") if name == "ben" else SOLUTION)
        os.utime(tmp_path / "all" / f"{name}.py", (1.8e9, 1.8e9))
    (tmp_path / "roster.csv").write_text("ID,Name\n1,Anna\n2,Ben\n3,Dora\n")
    table = tmp_path / "grades.csv"
    command = ["labs", "grade", "0", str(tmp_path / "all"), "-o", str(table), "--roster", str(tmp_path / "roster.csv")]
    command += ["--due", "2027-01-15 00:00", "--jobs", "2", "--moodle", str(tmp_path / "moodle.csv")]
    assert main(command) == 0
    with open(table, newline="") as file:
        first = {row["submission"]: row for row in csv.DictReader(file)}
    assert {name: row["roster ID"] for name, row in first.items()} == {
        "anna.py": "1",
        "ben.py": "2",
        "carl.py": "",
        "": "3",
    }
    assert first["anna.py"]["days late"] == "1"
    assert float(first["anna.py"]["score after lateness"]) == round(0.9 * FULL, 2)
    with open(tmp_path / "moodle.csv", newline="") as file:
        assert next(row["Grade"] for row in csv.DictReader(file)) == f"{0.9 * FULL:g}"
    (tmp_path / "all" / "ben.py").write_text(SOLUTION)
    os.utime(tmp_path / "all" / "ben.py", (1.7e9, 1.7e9))
    assert main([*command, "--only", "b*"]) == 0
    with open(table, newline="") as file:
        second = {row["submission"]: row for row in csv.DictReader(file)}
    assert second["ben.py"]["score"] == f"{FULL:g}"
    assert {name: row["score"] for name, row in second.items() if name != "ben.py"} == {
        name: row["score"] for name, row in first.items() if name != "ben.py"
    }
    written = table.read_bytes()
    assert main(["labs", "grade", "0", str(tmp_path / "all"), "-o", str(table), "--only", "b*"]) == 1
    assert "does not have the columns that these options give" in capsys.readouterr().err
    assert table.read_bytes() == written
    assert main([*command, "--only", "nobody*"]) == 1
    assert "has no submissions called nobody*" in capsys.readouterr().err


def test_folders_of_students(graded: Any) -> None:
    rows = graded[1]
    assert float(rows["anna"]["score"]) == float(rows["ben"]["score"]) == FULL
    assert float(rows["no one"]["score"]) == 0
    assert "no .py file and no .ipynb notebook" in rows["no one"]["notes"]


def test_no_score_file_was_written(graded: Any) -> None:
    assert sorted(os.listdir(graded[0])) == ["all", "grades.csv"]
    assert "1000" not in (graded[0] / "grades.csv").read_text()


def test_a_folder_without_submissions_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["labs", "grade", "0", str(tmp_path)]) == 1
    assert "has no submissions" in capsys.readouterr().err


def test_a_judge_that_fails_the_reference_solution_grades_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The teacher reads which check failed; no student's row is written."""
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "anna.py").write_text(SOLUTION)
    wrong, table = tmp_path / "wrong.py", tmp_path / "grades.csv"
    wrong.write_text(in_mask("return 12"))
    command = ["labs", "grade", "0", str(tmp_path / "all"), "--csv", str(table)]
    assert main([*command, "--reference", str(wrong)]) == 1
    said = capsys.readouterr()
    assert not said.out
    assert "no submission was graded, because the reference solution wrong.py earns only 17 of 18 points" in said.err
    assert "0.2 a mask of axes: wrong" in said.err
    assert not table.exists()


def test_a_package_without_solutions_says_that_its_judge_was_not_tried(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "CHECKOUT", tmp_path)
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "anna.py").write_text(SOLUTION)
    assert main(["labs", "grade", "0", str(tmp_path / "all"), "--csv", str(tmp_path / "grades.csv")]) == 0
    said = capsys.readouterr()
    assert "18 of 18  anna.py" in said.out
    assert "The judge was not tried on a right solution first" in said.err


def test_a_link_that_is_checked_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "anna.py").write_text(SOLUTION)
    (tmp_path / "link.py").symlink_to(tmp_path / "anna.py")
    assert main(["labs", "check", "0", str(tmp_path / "link.py")]) == 1
    assert "is a link; expected a regular file" in capsys.readouterr().err


def test_names_of_students_are_rows_that_can_be_read(tmp_path: Path) -> None:
    """Pictures are no submissions, so that no judge is asked; each has its row all the same."""
    folder, table = tmp_path / "all", tmp_path / "grades.csv"
    folder.mkdir()
    for name in ("anna.png", "j\udcfcrgen.png", "zoe.png", "\x1b[31m\nred.png", "=1+1.png"):
        (folder / name).write_bytes(b"")
    options = grading.Options(walls.Walls())
    rows = list(grading.grade(catalogue.find(0), folder, table, options, grading.Class(reports=tmp_path / "pages")))
    with open(table, newline="") as file:
        written = [row["submission"] for row in csv.DictReader(file)]
    assert written == [r"\x1b[31m\nred.png", "'=1+1.png", "anna.png", r"j\xfcrgen.png", "zoe.png"]
    assert [row["submission"] for row in rows] == [name.lstrip("'") for name in written]
    assert len(os.listdir(tmp_path / "pages")) == 5
