"""An installation has the labs with stubs, and no solution; the README's line starts lab 0."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from minorm.cli import main
from minorm.labs import catalogue
from tests.project.test_installing import strangers

ROOT = Path(__file__).resolve().parents[2]


def test_a_build_takes_the_stubs_and_no_solution(tmp_path: Path) -> None:
    pytest.importorskip("setuptools", minversion="77")
    pytest.importorskip("Cython")
    if not (ROOT / "setup.py").exists():
        pytest.skip("needs a checkout")
    egg = ["egg_info", "--egg-base", str(tmp_path)]
    build = [sys.executable, "setup.py", "-q", *egg, "build_py", "--build-lib", str(tmp_path / "lib")]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    found = {path.name: path.read_text() for path in (tmp_path / "lib/minorm/labs/notebooks").iterdir()}
    assert found == {f"{lab.file}.py": catalogue.notebook(lab) for lab in map(catalogue.find, catalogue.numbers())}
    assert (tmp_path / "lib/minorm/labs/judge/mistakes.md").exists()  # where hints come from
    headers = {path.relative_to(ROOT) for path in (ROOT / "minorm/labs").rglob("*.h")}
    assert {path.relative_to(tmp_path / "lib") for path in (tmp_path / "lib/minorm/labs").rglob("*.h")} == headers
    assert not list((tmp_path / "lib").rglob("*solution*"))
    assert not list((tmp_path / "lib").rglob("*examination*"))
    assert not [path for path in (tmp_path / "lib").rglob("*") if path.is_file() and strangers(path.read_text())]


def test_the_test_extra_brings_what_a_build_needs() -> None:
    """Tests run setup.py in the environment of the README's test line, and nothing else is installed there."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert set(project["build-system"]["requires"]) <= set(project["project"]["optional-dependencies"]["test"])


def test_the_readmes_line_starts_lab_0(tmp_path: Path) -> None:
    lines = [line for line in (ROOT / "README.md").read_text().splitlines() if "minorm labs start" in line]
    (line,) = lines
    command = line.split("minorm ")[1].split(" &&")[0].split()
    assert command[:3] == ["labs", "start", "0"]
    assert main([*command[:-1], str(tmp_path)]) == 0


def test_the_guide_tells_of_every_lab_and_of_no_other() -> None:
    text = (ROOT / "docs" / "labs.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    labs = [catalogue.find(number) for number in catalogue.numbers()]
    for lab in labs:
        (row,) = (row for row in rows if row.startswith(f"| {lab.number} {lab.title} | {lab.minutes} |"))
        words = re.match(r"labs? (\d+(?:, \d+)*(?: and \d+)?)", row.split(" | ")[2])
        assert lab.needs == tuple(map(int, re.findall(r"\d+", words[1] if words else ""))), row
    assert len([row for row in rows if re.match(r"\| \d+ [A-Z]", row)]) == len(labs)
