"""The judge tries its own walls: what a student's code might do first, done from within.

Whatever succeeds here is a hole, and then nobody is graded behind these walls.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import socket
import sys
from collections.abc import Callable
from typing import Any

from minorm.labs.sealed import entry

SHMGET = {"x86_64": 29, "aarch64": 194}


def main(line: int, plan: dict[str, Any]) -> None:
    """Say which attempts have succeeded."""
    import decimal  # noqa: F401  a module that is not there yet: may this user read Python at all?

    if entry.closes_files(plan):
        entry.close_files()
    succeeded = []
    for name, attempt in _attempts(plan["task"]).items():
        with contextlib.suppress(OSError):
            attempt()
            succeeded.append(name)
    os.write(line, json.dumps({"succeeded": succeeded}).encode() + b"\n")
    os._exit(0)


def _attempts(target: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Each raises OSError where the walls hold. `target` names files to read, a folder to write in, the judge."""
    judge, folder = target["judge"], target["folder"]
    tries: dict[str, Callable[[], Any]] = {f"read {path}": functools.partial(_read, path) for path in target["files"]}
    return tries | {
        "read the judge's environment": lambda: _read(f"/proc/{judge}/environ"),
        "list the processes": lambda: os.listdir("/proc"),
        "start a process": _fork,
        "run a program": _run,
        "signal the judge": lambda: os.kill(judge, 0),
        "trace the judge": lambda: _called("ptrace", 16, judge, 0, 0),
        "open a socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
        "open a socket of its own machine": lambda: socket.socket(socket.AF_UNIX),
        "write a file elsewhere": lambda: _write(os.path.join(folder, "left-behind")),
        "share memory": lambda: _called("shmget", 4711, 4096, 0o1600),
        "have memory of a file": lambda: os.memfd_create("shared"),
        "make a file readable": lambda: os.chmod(folder, 0o777),
    }


def _read(path: str) -> None:
    with open(path, "rb") as file:
        file.read(1)


def _write(path: str) -> None:
    with open(path, "wb") as file:
        file.write(b"x")
    os.unlink(path)


def _fork() -> None:
    if os.fork() == 0:
        os._exit(0)


def _run() -> None:
    """A program in place of this one: it would answer nothing, and the judge takes silence for a hole."""
    os.execv(sys.executable, [sys.executable, "-c", ""])


def _called(name: str, *arguments: int) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), name)
