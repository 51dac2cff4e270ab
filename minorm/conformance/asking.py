"""Every case to a runtime in a process of its own; one that crashes or hangs loses that case, and not the command.

    outcomes = ask(RUNTIMES["onnxruntime"], range(len(all_cases())))
    outcomes[0].kind, outcomes[0].arrays

A case is named by its place in `all_cases()`, which is the same list in every process.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from minorm.conformance.runtimes import Runtime
from minorm.serialization import safetensors_file

SECONDS = 30.0  # a case may take; they are tiny
BEGIN_SECONDS = 120.0  # importing a runtime may take, on a busy machine
CRASHES = 10  # after so many it is not asked any more
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from minorm.conformance.runtime_process import main; main(*json.loads(sys.argv[2]))"
)


@dataclass(frozen=True)
class Outcome:
    """What became of a case.

    kind        "answered", "refused" (text: its message), "died" (text: how), or "absent": nobody could be asked
    overwrote   places of the inputs whose arrays it changed
    """

    kind: str
    text: str = ""
    arrays: tuple[Any, ...] = ()
    overwrote: tuple[int, ...] = ()


class CannotRun(RuntimeError):
    """The runtime is installed, but its process ends before it has answered anything."""


def installed(runtime: Runtime) -> bool:
    """Whether its packages can be found."""
    return all(importlib.util.find_spec(package) is not None for package in runtime.packages)


def ask(runtime: Runtime, places: Sequence[int], seconds: float = SECONDS) -> dict[int, Outcome]:
    """The outcome of each case. CannotRun where the runtime fails before the first."""
    if not installed(runtime):
        return dict.fromkeys(places, Outcome("absent", f"{runtime.packages[0]} is not installed"))
    found: dict[int, Outcome] = {}
    left, crashes = list(places), 0
    while left:
        with tempfile.TemporaryDirectory(prefix="minorm-") as folder:
            how = _run(folder, runtime, left, seconds)
            lines = _lines(os.path.join(folder, "progress"))
            found.update(_outcomes(folder, lines))
        if not any("ready" in line for line in lines):
            raise CannotRun(how or "ended without a word")
        begun = next((line["begin"] for line in reversed(lines) if "begin" in line), None)
        if begun is not None and begun not in found:
            found[begun] = Outcome("died", how or "ended the process")
            crashes += 1
        left = [place for place in left if place not in found]
        if crashes >= CRASHES:
            return found | dict.fromkeys(left, Outcome("absent", f"not asked: it died {crashes} times before"))
    return found


def _run(folder: str, runtime: Runtime, places: Sequence[int], seconds: float) -> str:
    """Let a worker go through the cases; how it ended, "" where it did so by itself."""
    path = json.dumps([ROOT, *(os.path.abspath(entry) for entry in sys.path)])
    request = json.dumps([folder, runtime.answer, list(places), runtime.packages[0]])
    errors = os.path.join(folder, "errors")
    with open(errors, "wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, path, request],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        )
        try:
            code = _wait(process, os.path.join(folder, "progress"), seconds)
        finally:
            process.kill()
            process.wait()
    if code is None:
        return f"gave no answer in {seconds:g} seconds"
    if code < 0:
        return f"crashed ({_signal(-code)})"
    if code == 0:
        return ""
    with open(errors, "rb") as stderr:
        said = stderr.read()[-500:].decode("utf-8", "replace").strip().splitlines()
    return said[-1] if said else f"ended the process (exit status {code})"


def _wait(process: subprocess.Popen[bytes], progress: str, seconds: float) -> int | None:
    """The exit status, or None where the file of progress has not grown for too long."""
    size, since = 0, time.monotonic()
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(timeout=0.2)
        now = os.path.getsize(progress) if os.path.exists(progress) else 0
        if now != size:
            size, since = now, time.monotonic()
        if time.monotonic() - since > (seconds if size else max(seconds, BEGIN_SECONDS)):
            return None


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _lines(path: str) -> list[dict[str, Any]]:
    """What the worker wrote down; a last line that it did not finish is none."""
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.endswith("\n")]


def _outcomes(folder: str, lines: Sequence[dict[str, Any]]) -> dict[int, Outcome]:
    found = {}
    for line in lines:
        if "refused" in line:
            found[line["refused"]] = Outcome("refused", line["why"])
        elif "answered" in line:
            arrays = safetensors_file.read(os.path.join(folder, f"{line['answered']}.safetensors"))[0]
            ordered = tuple(arrays[str(i)] for i in range(len(arrays)))
            found[line["answered"]] = Outcome("answered", "", ordered, tuple(line["overwrote"]))
    return found
