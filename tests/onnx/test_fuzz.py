"""The fuzz of tests/onnx/fuzz: the first 500 broken models, and 20,000 with -m slow; models that coverage led to.

`python tests/onnx/fuzz --cases 200000` runs more by hand, and so does `python tests/onnx/fuzz/guided.py`.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("onnx")

FUZZ = Path(__file__).parent / "fuzz"
ROOT = FUZZ.parent.parent.parent


def fuzz(*arguments: str, program: str | None = None) -> subprocess.CompletedProcess[str]:
    start = [str(FUZZ)] if program is None else ["-c", program]
    command = [sys.executable, *start, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=280, check=False)


@pytest.mark.skipif(sys.platform != "linux", reason="it forks, and reads from /proc what memory a case takes")
@pytest.mark.parametrize("cases", [250, pytest.param(20_000, marks=pytest.mark.slow)])
def test_broken_models_load_and_run_or_say_why_not(cases: int) -> None:
    done = fuzz("--cases", str(cases))
    print(done.stdout[-3000:])
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    numbers = re.search(r"(\d+) differentiated, (\d+) load, (\d+) ran, (\d+) run; 0 failures", done.stdout)
    assert numbers is not None, done.stdout
    differentiated, refused, ran, failed = map(int, numbers.groups())
    assert differentiated + refused + ran + failed > 0.995 * cases
    assert min(differentiated, refused, ran, failed) > 0.075 * cases  # it reaches what there is to reach


def script(name: str, *arguments: str, seconds: float = 280) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(FUZZ / name), *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=seconds, check=False)


def test_models_that_were_kept_work_or_say_why_not() -> None:
    done = script("trial.py")
    assert done.returncode == 0, done.stderr[-3000:]
    count = len(list((FUZZ / "kept").iterdir()))
    assert count >= 10
    assert done.stdout.startswith(f"{count} models: "), done.stdout


def test_a_model_that_fails_is_named() -> None:
    """A fault that the fuzz would find: here an error that is not minorm's, planted in a copy of the program."""
    file = next((FUZZ / "kept").iterdir())
    planted = "import runpy, sys; sys.path[:0] = ['tests/onnx/fuzz', '.']; import minorm.onnx as mo\n"
    planted += "def load(*given, **options): raise KeyError('planted')\nmo.load = load\n"
    planted += f"sys.argv = ['trial', {str(file)!r}]; runpy.run_path('tests/onnx/fuzz/trial.py', run_name='__main__')"
    command = [sys.executable, "-c", planted]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=280, check=False)
    assert done.returncode == 1
    assert f"AssertionError: {file.name}: a raw KeyError: 'planted'" in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not installed")
def test_coverage_leads_to_no_failure(tmp_path: Path) -> None:
    found = tmp_path / "found"
    found.mkdir()
    done = script("guided.py", "-max_total_time=120", f"-artifact_prefix={tmp_path}/", str(found), seconds=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(list(found.iterdir())) > 10, "no model reached a new line"


BROKEN = """
import os, sys, time
sys.path[:0] = ["tests/onnx/fuzz"]
sys.path.append(".")
import runpy, case, corpus
import numpy as np

case.make = lambda number, seeds, folder: case.Case("seed", b"", {}, None, None, "", number)
corpus.seeds = lambda: []

def run(made):
    number = made.rng
    if number == 3:
        os.abort()
    if number == 14:
        raise AssertionError("a raw KeyError: 'x'")
    if number == 25:
        np.ones(80 << 20, np.float64).sum()
    if number == 36:
        start = time.process_time()
        while time.process_time() < start + 1.1:
            pass
    return "ran"

case.run = run
sys.argv[0] = "fuzz"
runpy.run_path("tests/onnx/fuzz/__main__.py", run_name="__main__")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="as above")
def test_what_it_would_find_is_named() -> None:
    done = fuzz("--cases", "40", "--chunk", "10", program=BROKEN)
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "case 3 (): the process died or hung: signal SIGABRT"
    assert lines[1] == "case 14 (seed): a raw KeyError: 'x'"
    assert re.match(r"case 25 \(\): it took 6\d\d MB", lines[2])
    assert re.match(r"case 36 \(seed\): it took 1\.\d\d s", lines[3])
    assert re.match(r"40 cases in \d+ s of one core: 35 ran; 4 failures", lines[4])
