"""Lets the judge attack its own walls from inside, as a student's code might.

If an attempt succeeds, the walls have a hole, and no submission is graded behind them. Most attempts do what a student
would do. Some system calls have many forms; they are tried with invalid arguments. If the error is then about these
arguments and is not a refusal, the call got through the walls.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import json
import mmap
import os
import socket
import sys
from collections.abc import Callable, Mapping
from typing import Any

from minorm.labs.sealed import entry, programs, syscalls

Attempts = dict[str, Callable[[], Any]]
REFUSALS = (errno.EPERM, errno.EACCES, errno.EROFS, errno.ENOSYS)
MOST_NAMED = 20  # attempts that have succeeded, in an answer of one line
CALLS = 512  # numbers that are tried: more than any kernel has
UNSEEN = {335, 336}  # uretprobe and uprobe: newer kernels show them to no filter, and end a process that makes them
COMMANDS = {  # of fcntl: F_SETLK, F_SETOWN, F_SETLEASE, F_NOTIFY, F_SETPIPE_SZ
    "lock a file": 6,
    "have signals sent": 8,
    "lease a file": 1024,
    "watch a folder": 1026,
    "widen a pipe": 1031,  # 256 of them would hold 128 MB
}


def main(line: int, plan: dict[str, Any]) -> None:
    """Make all attempts, and tell the judge which of them succeeded."""
    import decimal  # noqa: F401  a module that is not there yet: may this user read Python at all?

    if entry.closes_files(plan):
        entry.close_files()
    succeeded = []
    try:
        for name, attempt in _attempts(plan).items():
            with contextlib.suppress(OSError):
                attempt()
                succeeded.append(name)
    except programs.NotTried as error:
        answer: dict[str, Any] = {"said": str(error)}
    else:
        answer = {"succeeded": succeeded[:MOST_NAMED]}
    os.write(line, json.dumps(answer).encode() + b"\n")
    os._exit(0)


def _attempts(plan: Mapping[str, Any]) -> Attempts:
    """Return a dict from names to attempts. Each attempt raises OSError if the walls hold.

    The task in the plan names files to read or change, and the judge's process.
    """
    task = plan["task"]
    tries: Attempts = {f"read {path}": functools.partial(_read, path) for path in task["files"]}
    for path in task["victims"]:
        tries |= {f"{name} {path}": attempt for name, attempt in _changes(path).items()}
    starts = bool(plan["runs"])
    tries |= _beside(task["folder"]) | _talk(task["judge"]) | _calls(starts)
    if starts:
        return tries | programs.attempts(plan) | _shares(plan) | programs.filling(plan)
    return tries | {"start a process": _fork, "run a program": _run} | _shares(plan)


def _changes(path: str) -> Attempts:
    """Return attempts to change the file at `path`, which belongs to another user."""
    names = {os.O_WRONLY: "write to", os.O_RDWR: "edit", os.O_WRONLY | os.O_APPEND: "add to"}
    names |= {os.O_TRUNC: "empty, opening it to read,", 3 | os.O_TRUNC: "empty, opening it for nothing,"}
    tries: Attempts = {name: functools.partial(_open, path, flags) for flags, name in names.items()}
    return tries | {
        "shorten": lambda: _called("truncate", path.encode(), 0),
        "make readable": lambda: os.chmod(path, 0o666),
        "give away": lambda: os.chown(path, os.getuid(), os.getgid()),
        "date": lambda: os.utime(path, (0, 0)),
        "mark": lambda: os.setxattr(path, "user.mark", b"x") if hasattr(os, "setxattr") else _refuse(),
        "link": lambda: os.link(path, "linked"),
        "link beside": lambda: os.link(path, path + ".linked"),
        "take": lambda: os.rename(path, "taken"),
        "rename": lambda: os.rename(path, path + ".renamed"),
        "remove": lambda: os.unlink(path),
    }


def _beside(folder: str) -> Attempts:
    """Return attempts to leave something behind in `folder`, which is not the process's own folder."""
    place = os.path.join(folder, "left-behind")
    return {
        "write a file elsewhere": lambda: _open(place, os.O_CREAT | os.O_WRONLY),
        "write a file without a name elsewhere": lambda: _open(folder, getattr(os, "O_TMPFILE", 0) | os.O_RDWR),
        "make a folder elsewhere": lambda: os.mkdir(place),
        "make a pipe elsewhere": lambda: os.mkfifo(place),
        "make a link elsewhere": lambda: os.symlink("/", place),
        "make a folder readable": lambda: os.chmod(folder, 0o777),
        "remove a folder": lambda: os.rmdir(folder),
    }


def _talk(judge: int) -> Attempts:
    """Return attempts to reach other processes, such as the process of the judge."""
    return {
        "read the judge's environment": lambda: _read(f"/proc/{judge}/environ"),
        "read the judge's memory": lambda: _read(f"/proc/{judge}/mem"),
        "list the processes": lambda: os.listdir("/proc"),
        "signal the judge": lambda: os.kill(judge, 0),
        "signal a thread of the judge's": lambda: _called("tgkill", judge, judge, 0),
        "trace the judge": lambda: _called("ptrace", 16, judge, 0, 0),
        "limit the judge": lambda: _called("prlimit", judge, 7, None, None),
        "slow the judge": lambda: os.sched_setaffinity(judge, {0}),
        "outlive the judge": lambda: _reached("prctl", 1, 0, 0, 0, 0),
        "open a socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
        "open a local socket": lambda: socket.socket(socket.AF_UNIX),
        "have memory of a file": lambda: os.memfd_create("shared"),
        "drop what is in memory of a file": lambda: _reached("madvise", 0, 1 << 12, 21),
    } | {name: functools.partial(_command, number) for name, number in COMMANDS.items()}


def _calls(starts: bool = False) -> Attempts:
    """Return an attempt for each system call that is not allowed.

    Numbers that only future kernels may use are tried too.
    """
    started = syscalls.starting() if starts else {}
    names = {number: name for name, number in syscalls.never().items() if name not in started}
    allowed = (set(syscalls.numbers().values()) | set(started.values())) - names.keys()
    numbers = [number for number in range(CALLS) if number not in allowed | UNSEEN]
    tries = {number: functools.partial(_reached, "syscall", number) for number in numbers}
    return {f"make system call {names.get(number, number)}": attempt for number, attempt in tries.items()}


def _shares(plan: Mapping[str, Any]) -> Attempts:
    """Return attempts to fill the disk, or to fill memory that does not count towards the process's limit."""
    size, files = plan["share"]
    if not plan["writes"]:
        return {"write a file": lambda: _open("many0", os.O_CREAT)}
    tries: Attempts = {
        "make files without end": lambda: _each(files + 8, lambda i: _open(f"many{i}", os.O_CREAT)),
        "make folders without end": lambda: _each(files + 8, lambda i: os.mkdir(f"folder{i}")),
    }
    if plan["counted"]:
        tries["fill a file with holes"] = lambda: _map(2 * size)
    if plan["counted"] and not plan["runs"]:
        tries["exchange what is printed for a file"] = lambda: os.dup2(os.open("many1", os.O_RDWR), 1)
    tries["write without end into files without a name"] = lambda: _fill(size, files)
    return {name: functools.partial(_at_all, attempt) for name, attempt in tries.items()}


def _at_all(attempt: Callable[[], Any]) -> None:
    """Make an attempt.

    Ignore FileNotFoundError and FileExistsError, because these errors do not show that a wall held.
    """
    with contextlib.suppress(FileNotFoundError, FileExistsError):
        attempt()


def _each(times: int, attempt: Callable[[int], None]) -> None:
    for number in range(times):
        attempt(number)


def _fill(size: int, files: int) -> None:
    """Write more than `size` bytes into files. Each file is removed before it is filled, but stays open or mapped."""
    piece, kept = bytes(1 << 16), []
    pieces = 2 * size // len(piece)
    each = max(8, 2 * pieces // files)
    for number in range(pieces):
        if number % each == 0:
            name = f"many{number // each}"
            file = os.open(name, os.O_RDWR)
            os.unlink(name)
            kept.append(mmap.mmap(file, 0, mmap.MAP_PRIVATE) if os.write(file, piece) and number // each % 2 else file)
        os.write(file, piece)


def _map(size: int) -> None:
    file = os.open("many0", os.O_RDWR)
    os.ftruncate(file, size)
    mmap.mmap(file, size)


def _read(path: str) -> None:
    with open(path, "rb") as file:
        file.read(1)


def _open(path: str, flags: int) -> None:
    os.close(os.open(path, flags, 0o600))


def _fork() -> None:
    if os.fork() == 0:
        os._exit(0)


def _run() -> None:
    """Replace this process by another program. If that works, the judge gets no answer, and takes this as a hole."""
    os.execv(sys.executable, [sys.executable, "-c", ""])


def _refuse() -> None:
    raise OSError(errno.ENOSYS, "not on this system")


def _command(number: int) -> None:
    """Call fcntl with this command number on a descriptor of a pipe."""
    ends = os.pipe()
    try:
        _reached("fcntl", ends[0], number, 1 << 20)
    finally:
        for end in ends:
            os.close(end)


def _reached(name: str, *arguments: int) -> None:
    """Call this function of the C library, with -1 for missing arguments.

    Raise OSError if the walls refused the call.
    """
    given = [ctypes.c_long(value) for value in (*arguments, *[-1] * (7 - len(arguments)))]
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*given) < 0 and ctypes.get_errno() in REFUSALS:
        raise OSError(ctypes.get_errno(), name)


def _called(name: str, *arguments: int | bytes | None) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), name)
