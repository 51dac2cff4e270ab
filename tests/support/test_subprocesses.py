"""Programs in another process, and how they end."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from minorm.support import subprocesses


def run(folder: Path, program: str, seconds: float = 30.0, **how: object) -> int | None:
    return subprocesses.run([sys.executable, "-S", "-c", program], str(folder / "errors"), seconds, **how)


@pytest.mark.parametrize(
    ("program", "status", "said"),
    [
        ("", 0, ""),
        ("raise SystemExit(3)", 3, ""),
        ("raise ValueError('no such case')", 1, "ValueError: no such case"),
        ("print('out'); import sys; print('one\\ntwo', file=sys.stderr); sys.exit(2)", 2, "two"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", -11, ""),
    ],
)
def test_a_program_ends(tmp_path, program, status, said):
    assert run(tmp_path, program) == status
    assert subprocesses.last_words(str(tmp_path / "errors")) == said


def test_variables_stand_beside_those_of_this_process(tmp_path, monkeypatch):
    monkeypatch.setenv("MINORM_TEST_KEPT", "1")
    program = "import os, sys; sys.exit(os.environ['MINORM_TEST_KEPT'] + os.environ['MINORM_TEST_ADDED'] != '12')"
    assert run(tmp_path, program, environment={"MINORM_TEST_ADDED": "2"}) == 0
    assert "MINORM_TEST_ADDED" not in os.environ


def test_a_crash_is_named():
    assert subprocesses.crash(-11) == "crashed (SIGSEGV)"
    assert subprocesses.crash(-9) == "crashed (SIGKILL)"
    assert subprocesses.crash(-1000) == "crashed (signal 1000)"


@pytest.mark.parametrize("watched", [False, True])
def test_one_that_hangs_is_stopped(tmp_path, watched):
    started = time.monotonic()
    how = {"progress": str(tmp_path / "progress")} if watched else {}
    assert run(tmp_path, "import time; time.sleep(60)", 0.5, **how) is None
    assert time.monotonic() - started < 30


def test_one_that_goes_on_may_take_longer(tmp_path):
    program = """
import sys, time
for i in range(6):
    time.sleep(0.4)
    with open(sys.argv[1], "a") as file:
        file.write("{}\\n")
"""
    progress = str(tmp_path / "progress")
    command = [sys.executable, "-S", "-c", program, progress]
    assert subprocesses.run(command, str(tmp_path / "errors"), 1.5, progress, first=30.0) == 0
    assert len(subprocesses.written(progress)) == 6


def test_what_was_written_ends_before_a_line_that_was_cut(tmp_path):
    path = tmp_path / "progress"
    assert subprocesses.written(str(path)) == []
    path.write_text('{"begin": 1}\n{"done": 1}\n{"begin": 2')
    assert subprocesses.written(str(path)) == [{"begin": 1}, {"done": 1}]
    path.write_text('{"begin": 1}\nnonsense\n{"done": 1}\n')
    assert subprocesses.written(str(path)) == [{"begin": 1}]
