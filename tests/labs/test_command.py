"""While a submission is judged, no command line shows the seed; the judge uses the given seed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from minorm.cli import main
from minorm.labs import catalogue

SECRET = "471100815"


def command_lines(pid: int) -> str:
    """Return the command lines of a process and of all its descendants."""
    parents, lines = {}, {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            parents[int(name)] = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
            lines[int(name)] = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
    family = {pid}
    for _ in range(5):
        family |= {child for child, parent in parents.items() if parent in family}
    return "\n".join(lines[each] for each in family if each in lines)


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="no /proc")
@pytest.mark.parametrize(
    "seed",
    [
        ["--seed", SECRET],
        pytest.param([f"--seed={SECRET}"], marks=pytest.mark.slow),
        pytest.param(["--seed", "-"], marks=pytest.mark.slow),
    ],
)
def test_the_seed_is_in_no_command_line(seed: list[str], tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("import time\ntime.sleep(3)\n" + catalogue.notebook(catalogue.find(0)))
    command = [sys.executable, "-m", "minorm", "labs", "check", "0", str(file), *seed, "--json"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    if seed[-1] == "-":
        process.stdin.write(SECRET + "\n")
    process.stdin.close()
    deadline, found = time.monotonic() + 20, ""
    while "minorm.labs.sealed" not in found and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.2)
        found = command_lines(process.pid)
    assert "minorm.labs.sealed" in found
    assert SECRET not in found
    assert process.stdout is not None
    assert '"max_score": 18' in process.stdout.read()
    assert process.wait() == 1


def test_a_seed_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("")
    command = [sys.executable, "-m", "minorm", "labs", "check", "0", str(tmp_path / "mine.py"), "--seed", "-"]
    done = subprocess.run(command, input="no number\n", capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "seed" in done.stderr


def test_one_task_alone_is_checked(capsys: pytest.CaptureFixture[str]) -> None:
    solution = str(catalogue.CHECKOUT / "solutions" / "lab00_axes.py")
    assert main(["labs", "check", "0", solution, "--task", "0.2"]) == 0
    out = capsys.readouterr().out
    assert "0.2   a mask of axes" in out
    assert "0.1" not in out
    assert main(["labs", "check", "0", solution, "--task", "0.9"]) == 1
    assert "lab 0 has no task '0.9'; expected one of 0.1, 0.2" in capsys.readouterr().err
