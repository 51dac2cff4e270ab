"""Cheats earn nothing that they have not worked for, hang nothing, and change no other student's marks.

They are graded in one folder, with an honest file before and one behind them, through the real command.
"""

from __future__ import annotations

import csv
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minorm.cli import main
from minorm.labs import catalogue
from minorm.labs.sealed import finding, walls
from tests.labs.sealed.cheats import CHEATS

SOLUTIONS = catalogue.CHECKOUT / "solutions"
SAMPLE = [  # of lab 1, which is quick
    "edits_the_grades", "hides_a_child", "imports_the_checks", "reads_a_neighbour_otherwise",
    "writes_a_result_and_kills_the_judge",
]  # fmt: skip
LONGEST = 45.0  # seconds that a cheat may take, with the options below
slow = pytest.mark.slow
needs_walls = pytest.mark.skipif(not finding.find().stand, reason="this system has no walls, and says so")


def written(folder: Path, lab: int, names: list[str]) -> dict[str, str]:
    """Write cheats and honest files there; return the contents that must not change."""
    folder.mkdir()
    file = f"{catalogue.find(lab).file}.py"
    solution, stub = (SOLUTIONS / file).read_text(), catalogue.notebook(catalogue.find(lab))
    places = {
        "neighbour": folder / "a_honest.py",
        "folder": folder,
        "csv": folder.parent / "grades.csv",
        "solutions": SOLUTIONS,
        "checks": walls.HIDDEN[0],
    }
    texts = {"a_honest.py": solution, "z_honest.py": solution}
    for name in names:
        code = CHEATS[name].code
        for place, path in places.items():
            code = code.replace(f"{{{place}}}", str(path))
        texts[f"{name}.py"] = stub + "\n\n# %%\n" + code
    for name, text in texts.items():
        (folder / name).write_text(text)
    return texts


def grade(folder: Path, lab: int) -> dict[str, dict[str, Any]]:
    table = folder.parent / "grades.csv"
    command = ["labs", "grade", str(lab), str(folder), "--csv", str(table), "--patience", "0.3" if lab < 5 else "1"]
    assert main([*command, "--memory", "3000"]) == 0
    with open(table, newline="") as file:
        return {row["submission"]: row for row in csv.DictReader(file)}


def check(tmp_path: Path, lab: int, names: list[str]) -> None:
    os.chmod(tmp_path, 0o755)  # as a teacher's folder may be
    texts = written(tmp_path / "all", lab, names)
    rows = grade(tmp_path / "all", lab)
    wrong = {name: rows[f"{name}.py"] for name in names if float(rows[f"{name}.py"]["score"]) > CHEATS[name].most}
    assert not wrong
    for name in ("a_honest.py", "z_honest.py"):
        assert rows[name]["score"] == rows[name]["points"], rows[name]
    assert rows.keys() == texts.keys()
    assert {name: (tmp_path / "all" / name).read_text() for name in texts} == texts
    assert sorted(os.listdir(tmp_path)) == ["all", "grades.csv"]
    late = {name: row["seconds"] for name, row in rows.items() if float(row["seconds"]) > LONGEST * (1 + (lab >= 7))}
    assert not late


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Check that no process of a student is left."""
    yield
    deadline = time.monotonic() + 5
    while (left := strangers()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left


def strangers() -> list[str]:
    """Processes of the users that students' code runs as whose judge is gone; others belong to a test beside this."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else []):
        try:
            user = os.stat(f"/proc/{name}").st_uid
            with open(f"/proc/{name}/stat") as file:
                state, parent = file.read().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if walls.FIRST_USER <= user <= walls.LAST_USER and state != "Z" and parent == "1":
            found.append(name)
    return found


@needs_walls
def test_a_sample_of_cheats(tmp_path: Path) -> None:
    check(tmp_path, 1, SAMPLE)


@needs_walls
@slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("lab", sorted({cheat.lab for cheat in CHEATS.values()}))
def test_all_cheats(lab: int, tmp_path: Path) -> None:
    check(tmp_path, lab, [name for name in sorted(CHEATS) if CHEATS[name].lab == lab])


def test_there_are_thirty() -> None:
    assert len(CHEATS) >= 30
