"""Runs programs that may crash or hang in a separate process, reads their progress, and describes how they ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any

LAST = 500  # bytes of a program's output to look at


def run(
    command: Sequence[str],
    errors: str,
    seconds: float,
    progress: str = "",
    first: float = 0.0,
    environment: Mapping[str, str] | None = None,
) -> int | None:
    """Run a program that gets no input and writes its standard error to the file `errors`; return its exit status.

    Return None if the program took longer than `seconds` and was stopped. If `progress` names a file, `seconds` limits
    the time between two changes of the file's size, and `first` limits the time before the first change. `environment`
    has additional variables.
    """
    null = subprocess.DEVNULL
    with open(errors, "wb") as stderr:
        process = subprocess.Popen(
            command, stdin=null, stdout=null, stderr=stderr, env={**os.environ, **(environment or {})}
        )
    try:
        if not progress:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(timeout=seconds)
            return None
        size, since = 0, time.monotonic()
        while time.monotonic() - since <= (seconds if size else max(seconds, first)):
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(timeout=0.2)
            now = os.path.getsize(progress) if os.path.exists(progress) else 0
            if now != size:
                size, since = now, time.monotonic()
        return None
    finally:
        process.kill()
        process.wait()


def crash(status: int) -> str:
    """Describe an exit status below 0 in words, such as `crashed (SIGSEGV)`."""
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"crashed ({name})"


def last_words(errors: str) -> str:
    """Return the last line of a program's standard error; "" if it printed nothing."""
    with open(errors, "rb") as stderr:
        said = stderr.read()[-LAST:].decode("utf-8", "replace").strip().splitlines()
    return said[-1] if said else ""


def written(progress: str) -> list[dict[str, Any]]:
    """Return the JSON lines that a program wrote, up to the first unfinished line."""
    found: list[dict[str, Any]] = []
    with contextlib.suppress(OSError, ValueError), open(progress, encoding="utf-8") as file:
        found.extend(json.loads(line) for line in file if line.endswith("\n"))
    return found
