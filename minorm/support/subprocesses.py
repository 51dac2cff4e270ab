"""Programs in another process, which may crash or hang: run one, read what it wrote down, and say how it ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any

LAST = 500  # bytes of what it printed


def run(
    command: Sequence[str],
    errors: str,
    seconds: float,
    progress: str = "",
    first: float = 0.0,
    environment: Mapping[str, str] | None = None,
) -> int | None:
    """Run a program without input, what it prints as errors to the file `errors`; its exit status.

    None where it took longer than `seconds` and was stopped; with `progress`, longer from one change of that file's
    size to the next, or than `first` to the first change. environment: variables beside those of this process.
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
    """An exit status below 0 in words: `crashed (SIGSEGV)`."""
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"crashed ({name})"


def last_words(errors: str) -> str:
    """The last line that a program printed as an error; "" where it printed nothing."""
    with open(errors, "rb") as stderr:
        said = stderr.read()[-LAST:].decode("utf-8", "replace").strip().splitlines()
    return said[-1] if said else ""


def written(progress: str) -> list[dict[str, Any]]:
    """The lines of JSON that a program wrote down, up to one that it did not finish."""
    found: list[dict[str, Any]] = []
    with contextlib.suppress(OSError, ValueError), open(progress, encoding="utf-8") as file:
        found.extend(json.loads(line) for line in file if line.endswith("\n"))
    return found
