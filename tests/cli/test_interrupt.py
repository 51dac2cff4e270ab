"""Ctrl-C in the first second: exit code 130, one line, no traceback, nothing ignored, no advice that is not true.

The handler stands as soon as `minorm.support.startup` is imported, which `-X importtime` shows in the process's stderr.
Python's start and its `site` come before: there Ctrl-C ends the process with Python's code, and often with a traceback.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import minorm
from minorm.checkpoint import load_training
from minorm.training.files.run_folder import BEST, CHECKPOINT, LOCK
from minorm.training.run import LOG

pytest.importorskip("rich")
pytest.importorskip("sklearn")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="SIGINT cannot be sent to another process there")

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(minorm.__file__).parents[1])}  # for the script
FIRST = 1.2  # seconds in which Ctrl-C comes
SCRIPT = "import sys\nfrom minorm.cli import main\nif __name__ == '__main__':\n    sys.exit(main())\n"  # as pip does


def start(number: int, folder: Path, *options: str) -> tuple[subprocess.Popen[bytes], Path]:
    """Start a command that takes longer than we wait, in one of three ways; return its process and the file of
    stderr."""
    folder.mkdir()
    (folder / "minorm").write_text(SCRIPT)
    form = [["-m", "minorm"], ["-m", "minorm.cli"], [str(folder / "minorm")]][number % 3]
    command = ["demo" if number % 4 == 3 else "train", "--epochs", "100000", "--out", str(folder / "run")]
    error = folder / "stderr"
    with open(error, "wb") as file:
        process = subprocess.Popen(
            [sys.executable, *options, *form, *command], stdout=subprocess.DEVNULL, stderr=file, env=ENVIRONMENT
        )
    return process, error


def said(error: Path) -> str:
    """Return what the process wrote to stderr, without the times of imports."""
    lines = error.read_text(errors="replace").splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("import time:"))


def end(process: subprocess.Popen[bytes], error: Path) -> None:
    """Press Ctrl-C and wait."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        pytest.fail(f"Ctrl-C was ignored; stderr: {said(error)}")


def check_words(text: str, out: Path) -> None:
    """One line, or two with advice that the disk bears out."""
    lines = text.strip().splitlines()
    assert len(lines) == 1, text
    assert re.match(r"minorm( train| demo)?: stopped", lines[0]), text
    advice = re.search(
        r"(\S+) holds the state after epoch (\d+); continue with: minorm train --resume --out (\S+)", lines[0]
    )
    if advice:
        assert (advice[1], advice[3]) == (str(out / CHECKPOINT), str(out))
        assert load_training(out / CHECKPOINT)["epoch"] == int(advice[2])
    elif "nothing was written" in lines[0]:
        assert not (out / CHECKPOINT).exists()
        assert not (out / BEST).exists()
    if out.exists():
        assert {path.name for path in out.iterdir()} <= {CHECKPOINT, BEST, LOG, LOCK}


def press_once_the_handler_stands(count: int, seed: int, folder: Path) -> None:
    moments = random.Random(seed)
    for number in range(count):
        process, error = start(number, folder / str(number), "-X", "importtime")
        limit = time.monotonic() + 60
        while b"minorm.support.startup" not in error.read_bytes():
            assert process.poll() is None, said(error)
            assert time.monotonic() < limit
            time.sleep(0.001)
        time.sleep(moments.uniform(0, FIRST))
        end(process, error)
        assert process.returncode == 130, said(error)
        check_words(said(error), folder / str(number) / "run")


def press_from_the_first_moment(count: int, seed: int, folder: Path) -> int:
    """Count the processes that end with 130; the others must have ended before our code could see the signal."""
    moments, well = random.Random(seed), 0
    for number in range(count):
        process, error = start(number, folder / str(number))
        time.sleep(moments.uniform(0, FIRST))
        end(process, error)
        text = said(error)
        if process.returncode == 130:
            check_words(text, folder / str(number) / "run")
            well += 1
        else:
            assert process.returncode in (-signal.SIGINT, 1), text
            ours = re.findall(r'File "[^"]*/(minorm\w*/[^"]*|numpy/[^"]*)"', text)
            early = ("__init__", "support/startup", "support/safe_names")
            assert set(ours) <= {f"minorm/{name}.py" for name in early}, text
    return well


def test_ctrl_c_in_the_first_second(tmp_path: Path) -> None:
    press_once_the_handler_stands(20, 1, tmp_path)


def test_ctrl_c_from_the_first_moment(tmp_path: Path) -> None:
    press_from_the_first_moment(6, 2, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_ctrl_c_in_the_first_second_200_times(tmp_path: Path) -> None:
    press_once_the_handler_stands(200, 3, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_ctrl_c_from_the_first_moment_200_times(tmp_path: Path) -> None:
    assert press_from_the_first_moment(200, 4, tmp_path) >= 100
