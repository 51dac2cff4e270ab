"""The trial's attempts by way of other programs, where a process may start some because it compiles.

A compiler reads what the text tells it to; a child, and a descriptor that it has from its parent, write like any other.
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
FORMS = {  # how a text names a file, and what a compiler is to do with it: no more than read it
    "include": ('#include "{}"\n', ("-E",)),
    "assemble": ('__asm__(".incbin \\"{}\\"");\n', ("-pipe", "-c", "-o", "own.o")),
}
PIECE = bytes(1 << 16)
NAMESPACES, BESIDE = 0x10000000, 0x00008000  # CLONE_NEWUSER, CLONE_PARENT


class NotTried(RuntimeError):
    """A compiler that reads nothing at all: then it proves nothing that it has not read what is hidden."""


def attempts(plan: Mapping[str, Any]) -> dict[str, Callable[[], Any]]:
    """Each raises OSError where the walls hold; NotTried after all that compile if they could not."""
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
    """Attempts that use up what the processes may write together: nothing that makes a file can be tried after them."""
    size = 2 * plan["share"][0]
    return {
        "write without end into what is printed": functools.partial(_exchange, 1, size),
        "write without end in another process": lambda: _in_a_child(lambda: _write(_own_file(), size)),
    }


def _read_by(compiler: str, form: str, path: str) -> None:
    """OSError with what the compiler says if it does not take the text."""
    text, options = FORMS[form]
    command = [compiler, "-x", "c", *options, "-I.", "-"]
    text = text.format(path)
    done = subprocess.run(command, input=text, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise OSError(done.stderr)


def _works(compiler: str) -> None:
    """NotTried unless it reads a file that it may read, in every form; then OSError, as nothing has stopped it."""
    if not os.path.exists(OWN):
        os.close(os.open(OWN, os.O_CREAT | os.O_WRONLY, 0o600))
    try:
        for form in FORMS:
            _read_by(compiler, form, OWN)
    except OSError as error:
        raise NotTried(f"{compiler} does not run behind the walls: {str(error).strip()[-200:]}") from None
    raise OSError(f"{compiler} works")


def _cloned(flags: int) -> None:
    """A child by the system call itself, as no function of Python starts one like it."""
    number = syscalls.numbers()["clone"]
    child = ctypes.CDLL(None, use_errno=True).syscall(*map(ctypes.c_long, (number, flags | signal.SIGCHLD, 0, 0, 0, 0)))
    if child == 0:
        os._exit(0)
    if child < 0:
        raise OSError(ctypes.get_errno(), "clone")


def _limit_files(number: int) -> None:
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (number, number))
    except ValueError as error:  # what Python makes of the refusal
        raise OSError(errno.EPERM, str(error)) from None


def _exchange(descriptor: int, size: int = 0) -> None:
    """A file in place of it, for a moment, and so many bytes into that."""
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
    """A file that may be written to. One that is there is not made again: there may be no more files left to make."""
    return os.open("filled", os.O_WRONLY | (0 if os.path.exists("filled") else os.O_CREAT), 0o600)


def _write(file: int, size: int) -> None:
    for _ in range(size // len(PIECE)):
        os.write(file, PIECE)


def _in_a_child(attempt: Callable[[], None]) -> None:
    """OSError where it fails there."""
    child = os.fork()
    if child == 0:
        try:
            attempt()
        except OSError:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status:
        raise OSError("a child could not")
