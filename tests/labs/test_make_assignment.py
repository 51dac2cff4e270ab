"""examples/labs/make_assignment.py: a lab for nbgrader and for Otter gives the points of `minorm labs check`."""

from __future__ import annotations

import json
import re
import runpy
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minorm.labs import catalogue, cells

SCRIPT = catalogue.CHECKOUT / "make_assignment.py"
HIDDEN = re.compile(r"### BEGIN HIDDEN TESTS\n(.*?)### END HIDDEN TESTS\n?", re.DOTALL)


@pytest.fixture
def made(tmp_path: Path) -> Callable[[str, int], Path]:
    """Return the folder that the script writes: made("otter", 0)."""

    def make(kind: str, number: int) -> Path:
        runpy.run_path(str(SCRIPT))["main"]([kind, str(number), "-o", str(tmp_path / kind), "--seed", "4711"])
        return tmp_path / kind

    return make


@pytest.fixture
def handed_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write lab 0 as a notebook with a wrong task 0.2 into the current folder; it loses two of 18 points."""
    text = (catalogue.CHECKOUT / "solutions" / "lab00_axes.py").read_text()
    assert "1 << axis" in text
    text = text.replace("1 << axis", "2 << axis")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "lab00_axes.ipynb").write_text(cells.to_notebook(cells.read_percent(text)))
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("PYTHONPATH", str(catalogue.CHECKOUT.parents[1]))


def check_of(number: int, notebook: str) -> dict[str, float]:
    """Return the points that `minorm labs check` gives the file, by task."""
    from minorm.labs.judge import judging

    points: dict[str, float] = {}
    for row in judging.judge(catalogue.find(number), Path(notebook), seed=4711).outcomes:
        points[row.task] = points.get(row.task, 0) + row.earned
    return points


def evaluated(code: str, names: dict[str, Any]) -> object:
    """Run the lines, and return the last one's value, as a notebook does."""
    *lines, last = code.rstrip().splitlines()
    exec("\n".join(lines), names)
    return eval(last, names)


def test_the_cells_of_nbgrader_give_the_points_of_each_task(
    made: Callable[[str, int], Path], handed_in: None, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook = json.loads((made("nbgrader", 0) / "lab00_axes.ipynb").read_text())
    graded = [cell for cell in notebook["cells"] if "nbgrader" in cell["metadata"]]
    names: dict[str, Any] = {}
    found = {}
    for cell, task in zip(graded, catalogue.find(0).tasks, strict=True):
        (code,) = HIDDEN.findall("".join(cell["source"]))
        found[task] = evaluated(code, names)
        meta = cell["metadata"]["nbgrader"]
        assert meta["grade"]
        assert meta["locked"]
        assert meta["points"] == catalogue.find(0).of_task(task).points
        assert re.fullmatch(r"[\w-]+", meta["grade_id"]), "nbgrader takes no other characters"
    expected = check_of(0, "lab00_axes.ipynb")
    assert found == expected
    assert 0 < sum(expected.values()) < 18
    assert "0.2 a mask of axes - wrong" in capsys.readouterr().out


@pytest.mark.parametrize("number", catalogue.numbers())
def test_students_of_nbgrader_get_the_lab_and_no_seed(number: int, tmp_path: Path) -> None:
    lab = catalogue.find(number)
    names = runpy.run_path(str(SCRIPT))
    (text,) = names["nbgrader"](lab, 4711).values()
    notebook = json.loads(text)
    shown = HIDDEN.sub("", "\n".join("".join(cell["source"]) for cell in notebook["cells"]))
    assert "4711" not in shown
    given = cells.read_percent(catalogue.notebook(lab))
    assert ["".join(cell["source"]) for cell in notebook["cells"]][: len(given)] == [cell.text for cell in given]
    ours = sum(cell["metadata"]["nbgrader"]["points"] for cell in notebook["cells"] if "nbgrader" in cell["metadata"])
    assert ours == lab.points
    assert len(cells.read(text, "x.ipynb")) == len(given) + 1 + len(lab.tasks)
    tests = [content for name, content in names["otter"](lab, 4711).items() if name.startswith("tests/")]
    assert sum(float(p) for content in tests for p in re.findall(r"points=([\d.]+)", content)) == lab.points


def test_the_tests_of_otter_give_the_points_of_each_task(
    made: Callable[[str, int], Path], handed_in: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases: list[tuple[float, Callable[[], None]]] = []
    said: list[str] = []

    def test_case(name: str, points: float, hidden: bool) -> Callable[..., Any]:
        def keep(function: Callable[[], None]) -> Callable[[], None]:
            cases.append((points, function))
            return function

        return keep

    otter = types.ModuleType("otter.test_files")
    otter.test_case = test_case  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "otter", types.ModuleType("otter"))
    monkeypatch.setitem(sys.modules, "otter.test_files", otter)
    found = {}
    for path in sorted((made("otter", 0) / "tests").glob("*.py")):
        cases.clear()
        names = runpy.run_path(str(path))
        earned = 0.0
        for points, function in cases:
            try:
                function()
            except AssertionError as wrong:
                said.append(str(wrong))
            else:
                earned += points
        found[names["name"]] = earned
    assert found == check_of(0, "lab00_axes.ipynb")
    assert said
    assert all("expected" in text for text in said)
