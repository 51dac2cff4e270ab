"""A process for strangers' code: own session, empty folder, hardly any environment, and an end that is one.

What it prints is read all the time, so that it never waits, and only the beginning is kept. Ending it ends its children
too: those in its process group, and those that left it but carry its mark in their environment.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from minorm import config
from minorm.labs.wire import Line

KEPT = 4000  # characters of what is printed
PATH = os.pathsep.join([os.path.dirname(sys.executable), *os.get_exec_path()])  # compilers are there
ROOT = Path(__file__).resolve().parents[2]
PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from minorm.labs.worker import main; main(int(sys.argv[2]), int(sys.argv[3]))"
)


class Process:
    """A running worker. line: the way to talk to it; printed: how many bytes it wrote."""

    def __init__(self, memory: int) -> None:
        ours, theirs = socket.socketpair()
        self.line = Line(ours)
        self.mark = secrets.token_hex(16)
        self.folder = tempfile.TemporaryDirectory(prefix="lab", ignore_cleanup_errors=True)
        path = json.dumps([str(ROOT), *(os.path.abspath(entry) for entry in sys.path)])
        with theirs:
            self.popen = subprocess.Popen(
                [sys.executable, "-I", "-c", PROGRAM, path, str(theirs.fileno()), str(memory)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(theirs.fileno(),),
                cwd=self.folder.name,
                env={
                    "PATH": PATH,
                    "HOME": self.folder.name,
                    "TMPDIR": self.folder.name,
                    "LANG": "C.UTF-8",
                    "MPLBACKEND": "Agg",
                    "LAB_MARK": self.mark,
                    **config.environment(),
                },
                start_new_session=True,
            )
        self.printed, self.beginning = 0, b""
        self._reader = threading.Thread(target=self._drain, daemon=True)
        self._reader.start()

    def _drain(self) -> None:
        assert self.popen.stdout is not None
        descriptor = self.popen.stdout.fileno()
        with contextlib.suppress(OSError, ValueError):
            while chunk := os.read(descriptor, 1 << 16):
                self.beginning += chunk[: KEPT - len(self.beginning)]
                self.printed += len(chunk)

    def ended(self) -> str:
        """How the process ended by itself, in words; waits a moment for it."""
        try:
            code = self.popen.wait(timeout=2)
        except subprocess.TimeoutExpired:
            return "closed its line to the grader"
        if code >= 0:
            return f"ended its process with exit code {code}"
        name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
        return f"crashed with signal {name}"

    def end(self) -> None:
        """Kill it and its children, and forget its folder."""
        self.line.connection.close()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()
        for _ in range(3):  # a child may fork while we look
            if not _kill_marked(self.mark):
                break
        self._reader.join(timeout=1)
        if self.popen.stdout is not None and not self._reader.is_alive():
            self.popen.stdout.close()
        self.folder.cleanup()


def _kill_marked(mark: str) -> int:
    """Kill every process that was started with the mark in its environment; how many there were."""
    wanted, count = f"LAB_MARK={mark}".encode(), 0
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (folder / "environ").read_bytes():
                os.kill(int(folder.name), signal.SIGKILL)
                count += 1
    return count
