"""Runs the judges' processes: one for each submission, asked through a pipe; Ctrl-C ends them all.

Seed and questions reach a judge through its standard input, because other users can read command lines and
environments. A judge answers when all of the student's processes have ended. If a judge does not answer, or dies, `ask`
returns the problem in words.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from minorm.labs import catalogue
from minorm.labs.judge import first_look, judging
from minorm.labs.scores import Outcome, Report
from minorm.labs.sealed import process_limits, walls

MEMORY = 16 << 30  # bytes of address space of a judge
ROOT = Path(__file__).resolve().parents[3]
JUDGE = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from minorm.labs.judge.judges import answer; answer()"


class Judges:
    """The judges that are running. `end` ends all of them, and afterwards no judge can start."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock, self._ended = threading.Lock(), False

    def ask(self, question: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Start a judge and ask it to grade.

        Return its answer, {"report": ..., "seen": ...}, or {"problem": ...} if it does not answer.
        """
        judge = self._begun()
        if judge is None:
            return {"problem": "stopped"}
        try:
            said, _ = judge.communicate(json.dumps(question).encode(), seconds)
        except subprocess.TimeoutExpired:
            return {"problem": f"no report within {seconds:.0f} s"}
        finally:
            with self._lock:
                self._running.discard(judge)
            _kill(judge)
            judge.wait()
        if judge.returncode != 0:
            return {"problem": f"the grader's process was ended with code {judge.returncode}"}
        try:
            result: dict[str, Any] = json.loads(said)
        except ValueError:
            return {"problem": "no report"}
        return result

    def end(self) -> None:
        """End all judges, each with the processes that it has started."""
        with self._lock:
            self._ended = True
            for judge in self._running:
                _kill(judge)

    def _begun(self) -> subprocess.Popen[bytes] | None:
        """Start the process of a judge, which then waits for a question on its standard input.

        Return None if `end` was called.
        """
        path_list = json.dumps([str(ROOT), *(os.path.abspath(entry) for entry in sys.path)])
        with self._lock:
            if self._ended:
                return None
            judge = subprocess.Popen(
                [sys.executable, "-I", "-c", JUDGE, path_list],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            self._running.add(judge)
        return judge


def _kill(judge: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(judge.pid, signal.SIGKILL)


def answer() -> None:
    """Run the judge's process: read a question from standard input, write a report to standard output."""
    process_limits.hide()
    process_limits.set_limits(MEMORY, file_size=MEMORY, files=4096)
    question = json.load(sys.stdin)
    tempfile.tempdir = question["scratch"]
    around = walls.Walls.of(question["walls"])
    lab, paths = catalogue.find(question["lab"], question["lab_dir"]), [Path(path) for path in question["paths"]]
    try:
        path, seen = first_look.chosen(paths, lab)
        lab, remark = first_look.asked(lab, seen["variant"], question["variant"])
        report = replace(judging.judge(lab, path, **question["options"], around=around), remark=remark)
        result: dict[str, Any] = {"report": as_message(report), "seen": seen}
    except (ValueError, OSError, ImportError, RuntimeError, MemoryError) as error:
        result = {"problem": str(error) or type(error).__name__}
    with os.fdopen(os.dup(1), "w") as file:
        json.dump(result, file)


def as_message(report: Report) -> dict[str, Any]:
    """Return a report in a form that JSON can hold; exceptions are left out."""
    rows = [{**asdict(row.but(cause=None)), "cause": None} for row in report.outcomes]
    named = {field.name: getattr(report, field.name) for field in fields(report)}
    return {**named, "outcomes": rows, "notes": list(report.notes)}


def from_message(message: dict[str, Any]) -> Report:
    """Return the report that `as_message` turned into this message."""
    return Report(**{**message, "outcomes": [Outcome(**row) for row in message["outcomes"]]})
