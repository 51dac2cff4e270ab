"""The fixture `mpiexec`: runs a job on several processes, with the MPI that pip has installed beside mpi4py."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 60


class Ended(NamedTuple):
    """How a job ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Return the lines of JSON on stdout, sorted by rank."""
        found = [json.loads(line) for line in self.out.splitlines() if line.startswith("{")]
        return sorted(found, key=lambda line: line["rank"])


class Launcher:
    """mpiexec and what it needs in the environment."""

    def __init__(self, program: str, library: str | None) -> None:
        self.program = program
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        if library:
            self.environment["MPI4PY_LIBMPI"] = library

    def command(self, processes: int, *words: str) -> list[str]:
        return [self.program, "-n", str(processes), sys.executable, *words]

    def __call__(self, processes: int, *words: str, code: int | None = 0, **environment: str) -> Ended:
        """Run `python WORDS` on so many processes, within a minute; `code` is what must come out."""
        done = subprocess.run(
            self.command(processes, *words), capture_output=True, text=True, timeout=SECONDS, check=False,
            env={**self.environment, **environment}, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        ended = Ended(done.returncode, done.stdout, done.stderr)
        assert code is None or ended.code == code, f"code {ended.code}, expected {code}\n{ended.out}\n{ended.err}"
        return ended

    def job(self, processes: int, name: str, *words: str, **options: Any) -> Ended:
        """Run a function of job.py."""
        return self(processes, str(Path(__file__).with_name("job.py")), name, *words, **options)


def installed(name: str) -> str | None:
    """Return the path of a file of the package mpich; None if it is not installed."""
    try:
        files = importlib.metadata.files("mpich") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    return next((str(Path(str(file.locate())).resolve()) for file in files if file.name == name), None)


@pytest.fixture(scope="session")
def mpiexec() -> Callable[..., Any]:
    pytest.importorskip("mpi4py")
    program = installed("mpiexec")
    if program is not None:
        return Launcher(program, installed("libmpi.so.12"))
    if found := shutil.which("mpiexec"):
        return Launcher(found, None)
    pytest.skip("there is no mpiexec: pip install mpich")
