"""Compiles students' texts for the judge: each in a separate sealed process, and each text once."""

from __future__ import annotations

import atexit
import functools
import glob
import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minorm.labs.sealed import compiler, process, walls
from minorm.labs.sealed.process import Process, read_exactly

MEMORY = 4 << 30
LARGEST = 32 << 20  # bytes of a library
LONGEST = 1 << 20  # characters of a text
KNOWN = {name for names in compiler.PROGRAMS.values() for name in names}
TOOLS = ("/bin", *walls.LIBRARIES, "/etc/alternatives", "/dev/null", "/dev/urandom")
PLACES = ("/usr", "/usr/local")  # where compilers usually are
PARTS = ("bin", "include", "lib*", "*-linux-*")  # a compiler's folders in such a place; other programs keep more there

_DONE: dict[tuple[str, str], bytes] = {}
_REFUSED: dict[tuple[str, str], str] = {}  # what the compiler said of a text


def compiled(around: walls.Walls, kind: str, text: str, deadline: float) -> bytes:
    """Compile the text before the deadline (of time.monotonic), and return the bytes of the shared library.

    CompileError quotes the compiler's message.
    """
    if kind not in compiler.COMPILE or not isinstance(text, str) or len(text) > LONGEST:
        raise compiler.CompileError("the source to compile is not text")
    if (kind, text) in _DONE:
        return _DONE[kind, text]
    if (kind, text) in _REFUSED:
        raise compiler.CompileError(_REFUSED[kind, text])
    task = {"kind": kind, "text": text, "shim": str(_shim()) if kind == "cuda" else ""}
    tools = [path for path in (*_tools(compiler.PROGRAMS[kind]), task["shim"]) if path]
    running = Process(around, MEMORY, "minorm.labs.sealed.compiler:main", task, tools, _search())
    try:
        answer = running.read_line(deadline)
        if "refusal" in answer:
            said = _REFUSED[kind, text] = str(answer["refusal"])[:2000]
            raise compiler.CompileError(said)
        size = answer.get("size", 0)
        if not isinstance(size, int) or not 0 < size <= LARGEST:
            raise compiler.CompileError(str(answer.get("said", "the compiler wrote no library")))
        data = _DONE[kind, text] = read_exactly(running, size, deadline)
    except (TimeoutError, EOFError, OSError):
        raise compiler.CompileError("the compiler did not end within its time limit") from None
    finally:
        running.end()
    return data


def attack(around: walls.Walls, programs: Sequence[str]) -> dict[str, Any]:
    """Attack the walls from a process that may start a compiler: the first of `programs` that this machine has."""
    here = [name for name in programs if shutil.which(name, path=_search())][:1]
    return process.attack(around, here, _tools(programs), _search())


@functools.cache
def _shim() -> Path:
    """Compile the code that all kernels of lab 8 share, into a folder that every user can read. Return this folder."""
    folder = Path(tempfile.mkdtemp(prefix="shim"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o755)
    compiler.precompile(folder)
    return folder


def _search() -> str:
    """Return the PATH of a process that compiles."""
    return os.pathsep.join([os.path.dirname(sys.executable), *os.get_exec_path()])


def _tools(programs: Sequence[str]) -> list[str]:
    """Return the paths that these compilers need: programs, libraries and headers, including those of Python."""
    found = [os.path.realpath(path) for name in programs if (path := shutil.which(name, path=_search()))]
    homes = {os.path.dirname(os.path.dirname(path)) for path in found} | set(PLACES)
    parts = [part for home in sorted(homes) for name in PARTS for part in glob.glob(os.path.join(home, name))]
    return [*TOOLS, *parts, *(sysconfig.get_path(name) for name in ("include", "platinclude"))]
