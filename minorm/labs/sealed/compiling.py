"""The judge has a text compiled: each in a sealed process of its own, and each text once."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

from minorm.labs.sealed import compiler, walls
from minorm.labs.sealed.process import Process, read_exactly

MEMORY = 4 << 30
LARGEST = 32 << 20  # bytes of a library
LONGEST = 1 << 20  # characters of a text
TOOLS = ("/usr", "/bin", "/sbin", *walls.LIBRARIES, "/etc/alternatives", "/dev/null", "/dev/urandom")


_DONE: dict[tuple[str, str], bytes] = {}


def compiled(around: walls.Walls, kind: str, text: str, deadline: float) -> bytes:
    """The bytes of a shared library, by the deadline (of time.monotonic); CompileError says what the compiler says."""
    if kind not in compiler.COMPILE or not isinstance(text, str) or len(text) > LONGEST:
        raise compiler.CompileError("what should be compiled is no text")
    if (kind, text) in _DONE:
        return _DONE[kind, text]
    search = os.pathsep.join([os.path.dirname(sys.executable), *os.get_exec_path()])
    task = {"kind": kind, "text": text, "shim": str(_shim()) if kind == "cuda" else ""}
    tools = [path for path in (*TOOLS, *_compiler_homes(kind), task["shim"]) if path]
    process = Process(around, MEMORY, "minorm.labs.sealed.compiler:main", task, tools, search)
    try:
        answer = process.read_line(deadline)
        if "refusal" in answer:
            raise compiler.CompileError(str(answer["refusal"])[:2000])
        size = answer.get("size", 0)
        if not isinstance(size, int) or not 0 < size <= LARGEST:
            raise compiler.CompileError(str(answer.get("said", "the compiler gives no library")))
        data = _DONE[kind, text] = read_exactly(process, size, deadline)
    except (TimeoutError, EOFError, OSError):
        raise compiler.CompileError("the compiler has not come to an end in its time") from None
    finally:
        process.end()
    return data


@functools.cache
def _shim() -> Path:
    """The precompiled header of lab 8, made by the judge once and readable for every user."""
    folder = Path(tempfile.mkdtemp(prefix="shim"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o755)
    compiler.precompile(folder)
    return folder


def _compiler_homes(kind: str) -> list[str]:
    """What compilers need besides: Python's headers, and where one outside of /usr has what belongs to it."""
    if kind == "cython":
        return [*_homes(compiler.LINK[:1]), *{sysconfig.get_path(name) for name in ("include", "platinclude")}]
    return _homes(compiler.CUDA_COMPILERS)


def _homes(names: Sequence[str]) -> list[str]:
    found = [os.path.realpath(path) for path in map(shutil.which, names) if path]
    return [str(Path(path).parent.parent) for path in found if not path.startswith(("/usr/", "/bin/"))]
