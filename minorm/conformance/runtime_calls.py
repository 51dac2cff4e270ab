"""Run cases on a runtime in another process, so that a crash or a hang costs only one case, not the command.

    outcomes = ask(RUNTIMES["onnxruntime"], range(len(all_cases())))
    outcomes[0].kind, outcomes[0].arrays

A case is named by its index in a list. The list is `all_cases()`, which is the same in every process, or a list that we
pass to the process.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from minorm.conformance import case_files
from minorm.conformance.case import Case
from minorm.conformance.runtimes import Runtime
from minorm.serialization import safetensors_file
from minorm.support import subprocesses

SECONDS = 30.0  # for a case; cases are tiny
BEGIN_SECONDS = 120.0  # for importing a runtime on a busy machine
CRASHES = 10  # after this many crashes, we stop asking the runtime
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = (
    "import json, os, sys; sys.path[:] = json.loads(sys.argv[1]); os.environ.update(json.loads(sys.argv[3])); "
    "from minorm.conformance.runtime_process import main; main(*json.loads(sys.argv[2]))"
)


@dataclass(frozen=True)
class Outcome:
    """Holds the outcome of a case on a runtime.

    kind        "answered", "refused" (`text` is the message), "died" (`text` says how), or "absent" (the runtime did
                not run)
    overwrote   the indices of inputs whose arrays the runtime changed
    """

    kind: str
    text: str = ""
    arrays: tuple[Any, ...] = ()
    overwrote: tuple[int, ...] = ()


class CannotRun(RuntimeError):
    """The runtime is installed, but its process ended before it could run a case."""


def installed(runtime: Runtime) -> bool:
    """Return whether the runtime's packages can be found."""
    return not missing(runtime)


def missing(runtime: Runtime) -> str:
    """Return a text that names the missing package; "" if all packages are found."""
    absent = [package for package in runtime.packages if importlib.util.find_spec(package) is None]
    return f"{absent[0]} is not installed" if absent else ""


def ask(
    runtime: Runtime, places: Sequence[int], seconds: float = SECONDS, cases: Sequence[Case] | None = None
) -> dict[int, Outcome]:
    """Map the index of each case to its outcome; raise CannotRun if the runtime fails before the first case.

    cases   the list to which the indices belong; None for `all_cases()`, which the other process makes itself
    """
    absent = missing(runtime)
    if absent:
        return dict.fromkeys(places, Outcome("absent", absent))
    found: dict[int, Outcome] = {}
    left, crashes = list(places), 0
    while left:
        with tempfile.TemporaryDirectory(prefix="minorm-") as folder:
            if cases is not None:
                case_files.write(cases, folder)
            how = _run(folder, runtime, left, seconds)
            lines = subprocesses.written(os.path.join(folder, "progress"))
            found.update(_outcomes(folder, lines))
        if not any("ready" in line for line in lines):
            raise CannotRun(how or "ended without a message")
        begun = next((line["begin"] for line in reversed(lines) if "begin" in line), None)
        if begun is not None and begun not in found:
            found[begun] = Outcome("died", how or "ended the process")
            crashes += 1
        left = [place for place in left if place not in found]
        if crashes >= CRASHES:
            return found | dict.fromkeys(
                left, Outcome("absent", f"not run, because the runtime crashed or hung {crashes} times before")
            )
    return found


def _run(folder: str, runtime: Runtime, places: Sequence[int], seconds: float) -> str:
    """Run the cases in a worker; return "" if the worker ended by itself, else a text that says how it was stopped."""
    path = json.dumps([ROOT, *(os.path.abspath(entry) for entry in sys.path)])
    request = json.dumps([folder, runtime.functions, list(places), runtime.packages[0]])
    errors, progress = os.path.join(folder, "errors"), os.path.join(folder, "progress")
    command = [sys.executable, "-c", PROGRAM, path, request, json.dumps(dict(runtime.environment))]
    code = subprocesses.run(command, errors, seconds, progress, BEGIN_SECONDS)
    if code is None:
        return f"gave no answer in {seconds:g} seconds"
    if code < 0:
        return subprocesses.crash(code)
    if code == 0:
        return ""
    return subprocesses.last_words(errors) or f"ended the process (exit status {code})"


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
