"""Tries to get through the walls with other programs, because a process that compiles may start some.

A compiler reads the files that a text names. A child process can write to files and to the descriptors of its parent.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import resource
import signal
import subprocess
from collections.abc import Callable, Mapping
from typing import Any

from minorm.labs.sealed import process_limits, syscalls

OWN = "own.h"
FORMS = {  # how a text names a file, and options with which a compiler only reads it
    "include": ('#include "{}"\n', ("-E",)),
    "assemble": ('__asm__(".incbin \\"{}\\"");\n', ("-pipe", "-c", "-o", "own.o")),
}
PIECE = bytes(1 << 16)
NAMESPACES, BESIDE = 0x10000000, 0x00008000  # CLONE_NEWUSER, CLONE_PARENT


class NotTried(RuntimeError):
    """Raised for a compiler that cannot even read allowed files.

    That it cannot read hidden files then proves nothing.
    """


def attempts(plan: Mapping[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return a dict from names to attempts with compilers and child processes.

    An attempt raises OSError if the walls hold, and NotTried if a compiler does not run.
    """
    tries: dict[str, Callable[[], Any]] = {}
    for compiler in plan["task"]["programs"]:
        for form in FORMS:
            for path in plan["task"]["files"]:
                tries[f"have {compiler} {form} {path}"] = functools.partial(_read_by, compiler, form, path)
        tries[f"stop {compiler} from working"] = functools.partial(_works, compiler)
    tries["exchange the line for a file"] = functools.partial(_exchange, process_limits.OPEN_FILES)
    tries["start a process in its own namespaces"] = functools.partial(_cloned, NAMESPACES)
    tries["start a process beside this one"] = functools.partial(_cloned, BESIDE)
    tries["open more files"] = lambda: _limit_files(process_limits.OPEN_FILES + 1)
    return tries


def filling(plan: Mapping[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return attempts that use up the space that all processes share.

    They come last, because no file can be made after them.
    """
    size = 2 * plan["share"][0]
    return {
        "write without end into what is printed": functools.partial(_exchange, 1, size),
        "write without end in another process": lambda: _in_a_child(lambda: _write(_own_file(), size)),
    }


def _read_by(compiler: str, form: str, path: str) -> None:
    """Let the compiler read the file at `path`. If the compiler fails, raise OSError with its message."""
    text, options = FORMS[form]
    command = [compiler, "-x", "c", *options, "-I.", "-"]
    text = text.format(path)
    done = subprocess.run(command, input=text, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise OSError(done.stderr)


def _works(compiler: str) -> None:
    """Let the compiler read an allowed file in every form.

    If it can, raise OSError, as if a wall had held; otherwise raise NotTried.
    """
    if not os.path.exists(OWN):
        os.close(os.open(OWN, os.O_CREAT | os.O_WRONLY, 0o600))
    try:
        for form in FORMS:
            _read_by(compiler, form, OWN)
    except OSError as error:
        raise NotTried(f"{compiler} does not run behind the walls: {str(error).strip()[-200:]}") from None
    raise OSError(f"{compiler} works")


def _cloned(flags: int) -> None:
    """Start a child process with the system call `clone`. Python has no function that takes these flags."""
    number = syscalls.numbers()["clone"]
    child = ctypes.CDLL(None, use_errno=True).syscall(*map(ctypes.c_long, (number, flags | signal.SIGCHLD, 0, 0, 0, 0)))
    if child == 0:
        os._exit(0)
    if child < 0:
        raise OSError(ctypes.get_errno(), "clone")


def _limit_files(number: int) -> None:
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (number, number))
    except ValueError as error:  # Python turns the refusal into this
        raise OSError(errno.EPERM, str(error)) from None


def _exchange(descriptor: int, size: int = 0) -> None:
    """Put a file in place of `descriptor` and write `size` bytes into it. Then restore the descriptor."""
    file = _own_file()
    kept = os.dup(descriptor)
    try:
        os.dup2(file, descriptor)
        _write(descriptor, size)
    finally:
        os.dup2(kept, descriptor)
        os.close(kept)
        os.close(file)


def _own_file() -> int:
    """Open the file "filled" for writing.

    The file is created only if it is missing, because the limit of new files may be reached.
    """
    return os.open("filled", os.O_WRONLY | (0 if os.path.exists("filled") else os.O_CREAT), 0o600)


def _write(file: int, size: int) -> None:
    for _ in range(size // len(PIECE)):
        os.write(file, PIECE)


def _in_a_child(attempt: Callable[[], None]) -> None:
    """Run the attempt in a child process; raise OSError if it fails there."""
    child = os.fork()
    if child == 0:
        try:
            attempt()
        except OSError:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status:
        raise OSError("a child process could not")
