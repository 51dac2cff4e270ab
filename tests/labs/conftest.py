"""Changes solutions and returns the judge's report; makes a folder like Gradescope's machine."""

from __future__ import annotations

import dataclasses
import json
import os
import stat
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minorm.cli import main
from minorm.labs import catalogue
from minorm.labs.calling import submission
from minorm.labs.calling.student import Here
from minorm.labs.judge import judging
from minorm.labs.judge.mutation import Mutants
from minorm.labs.lab import SECONDS, Check
from minorm.labs.scores import Outcome, Report

ROOT = Path(__file__).resolve().parents[2]
SOLUTIONS = ROOT / "examples" / "labs" / "solutions"


def changed(number: int, *changes: tuple[str, str]) -> str:
    """Return the text of a solution with each first text replaced by its second; each must occur."""
    text = (SOLUTIONS / f"{catalogue.find(number).file}.py").read_text()
    for old, new in changes:
        assert old in text, f"lab {number} has no {old!r}"
        text = text.replace(old, new)
    return text


Judge = Callable[..., Report]


@pytest.fixture
def judge_changed(tmp_path: Path) -> Judge:
    """Return the report on lab 1's solution with a change: judge_changed(1, (old, new), ...)."""

    def judge(number: int, *changes: tuple[str, str], **options: Any) -> Report:
        path = tmp_path / "mine.py"
        path.write_text(changed(number, *changes))
        return judging.judge(catalogue.find(number), path, **options)

    return judge


@pytest.fixture
def lost() -> Callable[..., set[str]]:
    """lost(1, (old, new), ..., seed=1): the titles of the checks that a changed solution does not pass.

    It runs in this process: wrong answers do no harm, and a process for each would take minutes.
    """

    def titles(number: int, *changes: tuple[str, str], seed: int = 1) -> set[str]:
        lab = catalogue.find(number)
        module, notes = submission.load(changed(number, *changes), "mine.py")
        assert not notes
        with np.errstate(all="ignore"):
            rows = lab.run(Here(module, lab.beside), seed)
        return {row.title for row in rows if row.status != "passed"}

    return titles


@pytest.fixture
def rows_of_tests() -> Callable[[int, str], list[Outcome]]:
    """rows_of_tests(3, text): what the solution earns for its tests when this text is executed behind it."""

    def rows(number: int, text: str) -> list[Outcome]:
        lab = catalogue.find(number)
        lab = dataclasses.replace(lab, items=[item for item in lab.items if isinstance(item, Mutants)])
        module, _ = submission.load(changed(number), "mine.py")
        exec(compile(text, "mine.py", "exec"), module.__dict__)
        return lab.run(Here(module, lab.beside), 1)

    return rows


@pytest.fixture
def hints() -> Callable[..., dict[str, str]]:
    """hints(1, (old, new), ...): the hint at each check that a changed solution, or an object like it, does not pass.

    In this process, as `lost`. Checks that train, and the student's own tests, are left out: they take long.
    """

    def found(number: int, *changes: Any) -> dict[str, str]:
        lab = catalogue.find(number)
        quick = [item for item in lab.items if isinstance(item, Check) and item.seconds <= SECONDS]
        lab = dataclasses.replace(lab, items=quick)
        if changes and isinstance(changes[0], tuple):
            module, notes = submission.load(changed(number, *changes), "mine.py")
            assert not notes
        else:
            (module,) = changes
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows = lab.run(Here(module, lab.beside), 1)
        return {f"{row.task} {row.title}": row.hint for row in rows if row.status != "passed"}

    return found


@pytest.fixture
def unpacked(tmp_path: Path) -> Callable[..., Path]:
    """unpacked("0", ...): /autograder with the zip that these options make, and this interpreter in its environment."""

    def made(*lab: str) -> Path:
        wheel = tmp_path / "minorm_nn-0.1.0-py3-none-any.whl"
        wheel.write_bytes(b"a wheel")
        zipped = tmp_path / "lab.zip"
        options = ["--wheel", str(wheel), "--seed", "5", "--hidden", "after_published", "-o", str(zipped)]
        assert main(["labs", "gradescope", *lab, *options]) == 0
        there = tmp_path / "autograder"
        for folder in ("submission", "results", "environment/bin", "source"):
            (there / folder).mkdir(parents=True)
        with zipfile.ZipFile(zipped) as archive:
            modes = {entry.filename: entry.external_attr >> 16 for entry in archive.infolist()}
            archive.extractall(there / "source")
        assert modes["setup.sh"] == modes["run_autograder"] == 0o755
        assert modes["seed.txt"] == 0o600
        assert (there / "source" / wheel.name).read_bytes() == b"a wheel"
        minorm = there / "environment" / "bin" / "minorm"
        minorm.write_text(f'#!/bin/sh\ncd "{ROOT}" && exec "{sys.executable}" -m minorm "$@"\n')
        minorm.chmod(minorm.stat().st_mode | stat.S_IXUSR)
        return there

    return made


@pytest.fixture
def graded() -> Callable[[Path], Any]:
    """Run run_autograder in a prepared folder, and return its results."""

    def results(place: Path) -> Any:
        environment = {**os.environ, "AUTOGRADER": str(place)}
        subprocess.run(["bash", place / "source" / "run_autograder"], env=environment, check=True)
        return json.loads((place / "results" / "results.json").read_text())

    return results
