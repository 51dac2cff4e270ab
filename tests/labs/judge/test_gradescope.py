"""The zip for Gradescope grades a submission in a folder that is laid out like Gradescope's machine."""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minorm.cli import main
from minorm.labs import catalogue, cells
from minorm.labs.judge import gradescope

ROOT = Path(__file__).resolve().parents[3]
SOLUTION = (ROOT / "examples" / "labs" / "solutions" / "lab00_axes.py").read_text()


@pytest.fixture
def place(unpacked: Callable[..., Path]) -> Path:
    return unpacked("0")


@pytest.mark.parametrize("ending", [".py", ".ipynb"])
def test_a_submission_gets_its_points(place: Path, graded: Callable[[Path], Any], ending: str) -> None:
    text = SOLUTION if ending == ".py" else cells.to_notebook(cells.read_percent(SOLUTION))
    (place / "submission" / f"my work{ending}").write_text(text)
    found = graded(place)
    assert found["score"] == catalogue.find(0).points
    assert {test["visibility"] for test in found["tests"] if "hidden" in test["tags"]} == {"after_published"}
    assert {test["visibility"] for test in found["tests"] if "visible" in test["tags"]} == {"visible"}
    assert "5" not in [word for word in found["output"].split() if word.isdigit()]  # the seed


def test_points_that_are_missing_are_no_failure_of_the_autograder(place: Path, graded: Callable[[Path], Any]) -> None:
    (place / "submission" / "a.py").write_text("x = 1\n")
    assert graded(place)["score"] == 0


def test_several_files_are_said(place: Path, graded: Callable[[Path], Any]) -> None:
    for name, text in (("a.py", SOLUTION), ("b.py", SOLUTION.replace("1 << axis", "2**axis"))):
        (place / "submission" / name).write_text(text)
    found = graded(place)
    assert found["score"] == 0
    assert "2 files that hold different work: a.py, b.py" in found["output"]


def test_the_solved_notebook_beside_the_untouched_file_is_graded(place: Path, graded: Callable[[Path], Any]) -> None:
    (place / "submission" / "lab00_axes.py").write_text(catalogue.notebook(catalogue.find(0)))
    (place / "submission" / "lab00_axes.ipynb").write_text(cells.to_notebook(cells.read_percent(SOLUTION)))
    found = graded(place)
    assert found["score"] == catalogue.find(0).points
    assert "taken from lab00_axes.ipynb; left out: lab00_axes.py" in found["output"]


@pytest.mark.parametrize(
    ("wheel", "python"),
    [
        ("minorm_nn-1-cp311-cp311-linux_x86_64.whl", "python3.11"),
        ("minorm_nn-1-cp313-cp313-manylinux_2_28_x86_64.whl", "python3.13"),
        ("minorm_nn-1-py3-none-any.whl", "python3.11"),
    ],
)
def test_the_machine_gets_the_python_of_the_wheel(tmp_path: Path, wheel: str, python: str) -> None:
    (tmp_path / wheel).write_bytes(b"")
    assert main(["labs", "gradescope", "0", "--wheel", str(tmp_path / wheel), "-o", str(tmp_path / "z.zip")]) == 0
    with zipfile.ZipFile(tmp_path / "z.zip") as archive:
        setup = archive.read("setup.sh").decode()
    assert f"apt-get install -y {python} {python}-dev {python}-venv gcc g++" in setup
    assert f'{python} -m venv "${{AUTOGRADER:-/autograder}}/environment"' in setup


@pytest.mark.parametrize(
    ("lab", "options", "words"),
    [
        ("0", [], " --seed - --variant plain <"),
        ("0", ["--variant", "autumn 2027"], " --seed - --variant 'autumn 2027' <"),
        ("7", ["--variant", "2027"], " --seed - <"),
    ],
)
def test_the_machine_grades_the_variant_of_the_course(tmp_path: Path, lab: str, options: list[str], words: str) -> None:
    """Not the one that a submission names; lab 7 has none."""
    wheel = tmp_path / "minorm_nn-1-py3-none-any.whl"
    wheel.write_bytes(b"")
    zipped = ["--wheel", str(wheel), "-o", str(tmp_path / "z.zip"), *options]
    assert main(["labs", "gradescope", lab, *zipped]) == 0
    with zipfile.ZipFile(tmp_path / "z.zip") as archive:
        run = archive.read("run_autograder").decode()
    assert words in run
    subprocess.run(["bash", "-n"], input=run.encode(), check=True)


def test_the_scripts_are_bash() -> None:
    for text in (gradescope.SETUP, gradescope.RUN):
        subprocess.run(["bash", "-n"], input=text.encode(), check=True)


def test_another_projects_wheel_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wheel = tmp_path / "minorm-3.1-py3-none-any.whl"
    wheel.write_bytes(b"")
    assert main(["labs", "gradescope", "0", "--wheel", str(wheel), "-o", str(tmp_path / "z.zip")]) == 1
    assert "expected minorm_nn-VERSION-TAGS.whl" in capsys.readouterr().err
    assert not (tmp_path / "z.zip").exists()


def test_a_name_that_a_zip_cannot_hold_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(ROOT / "examples" / "own_labs", tmp_path / "own")
    (folder,) = [path for path in (tmp_path / "own").iterdir() if (path / "checks.py").exists()]
    (folder / "notes\udcfc.txt").write_text("")
    wheel = tmp_path / "minorm_nn-1-py3-none-any.whl"
    wheel.write_bytes(b"")
    words = ["--wheel", str(wheel), "-o", str(tmp_path / "z.zip"), "--lab-dir", str(tmp_path / "own")]
    assert main(["labs", "gradescope", folder.name[3:5], *words]) == 1
    assert r"notes\xfc.txt' is not UTF-8, as a name in a zip has to be; rename it" in capsys.readouterr().err
    assert not (tmp_path / "z.zip").exists()
