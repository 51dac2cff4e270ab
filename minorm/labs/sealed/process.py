"""Starts a sealed process for the judge, talks to it, collects what it prints, and ends it.

A thread reads the process's printed output all the time, so that the process never waits, and keeps only the beginning
of the output.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from minorm import config
from minorm.labs.calling import objects
from minorm.labs.calling.wire import Line
from minorm.labs.sealed import counting, entry, folders, walls
from minorm.labs.sealed.counting import Share
from minorm.labs.sealed.victims import Victims

KEPT_OUTPUT = 4000  # bytes of printed output
STARTING = 30.0  # seconds
LONGEST_LINE = 1 << 16
SERVE = "minorm.labs.calling.worker:main"
ATTACK = "minorm.labs.sealed.attack:main"
FULL_SHARE = Share()
ATTACK_SHARE = Share(1 << 20, 64)  # the share of an attack: the same walls, but quicker to fill
COMPILER_OUTPUT = 1 << 18  # bytes that a compiler may say about a file


class NotSealed(RuntimeError):
    """Raised if the process could not be started behind its walls; `answer` says why."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__(f"a process could not be sealed: {answer.get('said', 'no answer')}")
        self.answer = answer


class Process:
    """A running process. line: sends and receives values; printed: how many bytes the process has printed

    user  the user id of the process; None if the process runs as the judge's user
    """

    def __init__(
        self,
        around: walls.Walls,
        memory: int,
        then: str = SERVE,
        task: dict[str, Any] | None = None,
        runs: Sequence[str] = (),
        search: str = "",
        reads: Sequence[str] = (),
        share: Share = FULL_SHARE,
    ) -> None:
        self.walls = around
        self._claim: socket.socket | None = None
        self.user: int | None = None
        if around.user:
            self._claim, self.user = _free_user()
        self.folder = tempfile.mkdtemp(prefix="lab")
        ours, theirs = socket.socketpair()
        self._socket, self.line = ours, Line(ours, objects.SENT, objects.TAKEN_BACK)
        with theirs:
            self.popen = subprocess.Popen(
                [sys.executable, "-I", "-S", "-B", "-X", "utf8", "-c", entry.BEGIN, str(walls.PACKAGE)],
                stdin=theirs.fileno(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd="/",
                env={},
                start_new_session=True,
            )
        self.printed, self.beginning = 0, b""
        self._ending = threading.Event()
        self._threads: list[threading.Thread] = []
        self._in_thread(self._drain)
        try:
            if self.user is not None and not around.mounts:
                os.chown(self.folder, self.user, self.user)
            plan = self._plan(memory, then, list(runs), search, list(reads), share)
            ours.sendall(json.dumps({**plan, "task": task}).encode() + b"\n")
            deadline = time.monotonic() + STARTING
            begun = self._count(share, deadline) if plan["counted"] else b""
            answer = self.read_line(deadline, begun)
        except (OSError, TimeoutError):
            answer = {"said": "it ended before it was sealed"}
        if answer:
            self.end()
            raise NotSealed(answer)

    def _in_thread(self, work: Callable[..., None], *args: Any) -> None:
        self._threads.append(threading.Thread(target=work, args=args, daemon=True))
        self._threads[-1].start()

    def _count(self, share: Share, deadline: float) -> bytes:
        """Receive a descriptor from the process, and count what it writes from then on.

        If the process sends an answer in place of a descriptor, return this answer.
        """
        self._socket.settimeout(max(deadline - time.monotonic(), 0.01))
        data, listeners, _, _ = socket.recv_fds(self._socket, 1, 1)
        for listener in listeners:
            self._in_thread(counting.serve, listener, share, self._ending)
        return b"" if listeners else data

    def _plan(
        self, memory: int, then: str, runs: list[str], search: str, more: list[str], share: Share
    ) -> dict[str, Any]:
        """Return the plan by which the process seals itself.

        runs: programs that the process may start; search: the PATH with these programs
        """
        reads, lists = walls.narrow(walls.readable(), self.walls.hides)
        programs, above = walls.narrow(runs, self.walls.hides) if runs else ([], [])
        return {
            "folder": self.folder,
            "writes": self.walls.writes or not self.walls.stand,
            "share": share,
            "counted": self.walls.counted,
            "memory": memory,
            "user": self.user,
            "mounts": self.walls.mounts,
            "landlock": self.walls.landlock,
            "seccomp": self.walls.seccomp,
            "runs": programs,
            "reads": [*reads, *more],
            "lists": [*lists, *above],
            "hidden": walls.hidden(self.walls.hides),
            "path": walls.import_path(),
            "parent": os.getpid(),
            "environment": {
                "HOME": self.folder,
                "TMPDIR": self.folder,
                "MPLBACKEND": "Agg",
                **({"PATH": search} if search else {}),
                **config.environment(),
            },
            "then": then,
        }

    def read_line(self, deadline: float, begun: bytes = b"") -> dict[str, Any]:
        """Read a line of JSON, with which a process without NumPy answers.

        If the line is missing or invalid, return {"said": why}.
        """
        found = bytearray(begun)
        while not found.endswith(b"\n") and len(found) < LONGEST_LINE:
            byte = self.read(1, deadline)
            if not byte:
                return {"said": "it ended before it was sealed"}
            found += byte
        try:
            answer = json.loads(found)
        except ValueError:
            answer = None
        return answer if isinstance(answer, dict) else {"said": "its answer cannot be read"}

    def read(self, size: int, deadline: float) -> bytes:
        """Read up to `size` bytes; raise TimeoutError after the deadline."""
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)
        return self._socket.recv(size)

    def _drain(self) -> None:
        assert self.popen.stdout is not None
        descriptor = self.popen.stdout.fileno()
        with contextlib.suppress(OSError, ValueError):
            while chunk := os.read(descriptor, 1 << 16):
                self.beginning += chunk[: KEPT_OUTPUT - len(self.beginning)]
                self.printed += len(chunk)

    def ended(self) -> str:
        """Wait up to two seconds for the process to end by itself. Return a text that says how it ended."""
        try:
            code = self.popen.wait(timeout=2)
        except subprocess.TimeoutExpired:
            return "closed its connection to the grader"
        if code >= 0:
            return f"ended its process with exit code {code}"
        name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
        return f"crashed with signal {name}"

    def end(self) -> None:
        """Kill the process, wait until it is gone, and remove its folder."""
        self._ending.set()
        self._socket.close()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()
        for thread in self._threads:
            thread.join(timeout=1)
        if self.popen.stdout is not None and not self._threads[0].is_alive():
            self.popen.stdout.close()
        folders.remove(self.folder)
        if self._claim is not None:
            self._claim.close()


def attack(
    around: walls.Walls, programs: Sequence[str] = (), runs: Sequence[str] = (), search: str = ""
) -> dict[str, Any]:
    """Attack these walls from inside. Return {"succeeded": [...]}, or the reason why the walls could not be built.

    programs  compilers to attack with, if the process may start some; runs and search: as for a Process
    """
    with Victims() as victims:
        files = [victims.neighbour, str(walls.HIDDEN[0] / "__init__.py"), "/etc/passwd"]
        files += [path for one in (str(walls.HIDDEN[1]), *around.hides) for path in _first_files(one)]
        target = {
            "judge": os.getpid(),
            "folder": victims.folder,
            "files": files,
            "victims": [victims.neighbour, victims.shelf],
            "programs": list(programs),
        }
        try:
            share = ATTACK_SHARE
            if programs:  # an error message is written too, and counted
                share = Share(ATTACK_SHARE.size + len(files) * COMPILER_OUTPUT, ATTACK_SHARE.files + len(files))
            process = Process(around, 0, ATTACK, target, runs, search, [victims.shelf], share)
        except NotSealed as refused:
            return refused.answer
        try:
            answer = process.read_line(time.monotonic() + STARTING)
        except (OSError, TimeoutError):
            return {"said": "no answer"}
        finally:
            process.end()
        return {"succeeded": [*answer["succeeded"], *victims.changed]} if "succeeded" in answer else answer


def _first_files(hidden: str) -> list[str]:
    """Return the path of a hidden file for an attack to read.

    If `hidden` is a folder, this is one Python file in it, if there is one.
    """
    path = Path(hidden)
    return [hidden] if path.is_file() else [str(one) for one in itertools.islice(path.rglob("*.py"), 1)]


def read_exactly(process: Process, size: int, deadline: float) -> bytes:
    """Read exactly `size` bytes; raise EOFError if there are fewer."""
    found = bytearray()
    while len(found) < size:
        piece = process.read(min(size - len(found), 1 << 20), deadline)
        if not piece:
            raise EOFError
        found += piece
    return bytes(found)


def _free_user() -> tuple[socket.socket, int]:
    """Return an unused user id, and a socket that reserves this id. Only one socket can have a name with the id."""
    taken = _users()
    for _ in range(200):
        user = walls.FIRST_USER + secrets.randbelow(walls.LAST_USER - walls.FIRST_USER + 1)
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with contextlib.suppress(OSError):
            if user not in taken:
                claim.bind(f"\0minorm-labs-{user}")
                return claim, user
        claim.close()
    raise RuntimeError("no free user id for a student's process")


def _users() -> set[int]:
    """Return the ids of users that run something."""
    found = set()
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                if name.isdigit():
                    found.add(os.stat(f"/proc/{name}").st_uid)
    return found
