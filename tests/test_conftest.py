"""`--list-skipped` names the skipped tests of every process, for any reason, so that pytest can run them again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.long import EACH

pytest.importorskip("xdist")

SOME = """
import os
import pytest

def test_runs(): pass

@pytest.mark.parametrize("word", ["with a space", "a::b"])
def test_skips(word):
    if "THERE" not in os.environ:
        pytest.skip("for a while")

@pytest.mark.skipif("THERE" not in os.environ, reason="for a while")
def test_is_marked(): pass

@pytest.mark.parametrize("n", [1, 2] if "THERE" in os.environ else [])
def test_has_nothing_to_try(n): pass

@pytest.mark.xfail
def test_fails(): assert False
"""
MODULE = """
import os
import pytest

if "THERE" not in os.environ:
    pytest.skip("for a while", allow_module_level=True)

def test_first(): pass
def test_second(): pass
"""


def test_what_was_skipped_runs_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "conftest.py").write_text(Path(__file__).with_name("conftest.py").read_text())
    (tmp_path / "tests" / "test_some.py").write_text(SOME)
    (tmp_path / "tests" / "test_module.py").write_text(MODULE)
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = tests\n")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)

    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    assert "1 passed, 5 skipped, 1 xfailed" in run("-n", "1", "--list-skipped", "list.txt")
    assert sorted((tmp_path / "list.txt").read_text().splitlines()) == [
        "tests/test_module.py",
        "tests/test_some.py::test_has_nothing_to_try",
        "tests/test_some.py::test_is_marked",
        "tests/test_some.py::test_skips[a::b]",
        "tests/test_some.py::test_skips[with a space]",
    ]
    monkeypatch.setenv("THERE", "")
    assert "7 passed in" in run("@list.txt")


def test_each_long_test_is_there() -> None:
    absent = []
    for name in EACH:
        file, _, function = name.partition("::")
        if f"def {function}(" not in (Path(__file__).parent / file).read_text():
            absent.append(name)
    assert absent == []
