"""Cython of the student's: some pieces of text, one file, translated and compiled into a module of this process.

Needs Cython and the C compiler that Python was built with, with OpenMP. The flags are those of minorm's own kernels;
no -ffast-math, so sums are added in the order in which they are written.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import importlib
import importlib.util
import io
import re
import shlex
import subprocess
import sys
import sysconfig
import tempfile
import textwrap
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

CHUNK = 16384
HEADER = f"""\
# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, binding=False
from cython.parallel cimport prange
from libc.math cimport sqrt

cdef enum:
    CHUNK = {CHUNK}

"""
LINK = shlex.split(sysconfig.get_config_var("LDSHARED") or "cc -shared")
COMPILER = LINK[0]
FLAGS = ["-O3", "-g0", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-fopenmp"]


class CompileError(ValueError):
    """The text is no Cython, or what became of it no C."""


def build(*pieces: str) -> ModuleType:
    """A module of the pieces, which may use prange, sqrt, CHUNK and what stands in pieces before them.

    A piece may be indented as a whole, as text inside a function is. Each text is built once. CompileError says what
    the compilers say, with the line they mean; ImportError where Cython is not installed.
    """
    return _built(HEADER + "\n\n".join(map(textwrap.dedent, pieces)) + "\n")


@functools.cache
def _built(text: str) -> ModuleType:
    name = "kernels_" + hashlib.sha256(text.encode()).hexdigest()[:16]
    source = folder() / f"{name}.pyx"
    source.write_text(text, encoding="utf-8")
    _translate(source)
    target = source.with_suffix(sysconfig.get_config_var("EXT_SUFFIX"))
    include = "-I" + sysconfig.get_path("include")
    command = [*LINK, *FLAGS, include, str(source.with_suffix(".c")), "-o", str(target)]
    try:
        result = subprocess.run(command, check=False, capture_output=True, text=True, errors="replace")
    except FileNotFoundError:
        raise CompileError(f"there is no C compiler {COMPILER!r} on this machine") from None
    if result.returncode:
        said = result.stderr.replace(f"{source.parent}/", "").splitlines()
        errors = [line for line in said if "error" in line] or said
        raise CompileError("the C compiler says: " + "\n".join(errors[:5]))
    spec = importlib.util.spec_from_file_location(name, target)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _translate(source: Path) -> None:
    """Cython to C, in this process: starting another takes longer than the translation."""
    try:
        main: Any = importlib.import_module("Cython.Compiler.Main")
    except ImportError as error:
        raise ImportError("building Cython needs Cython: pip install Cython") from error
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        result = main.compile_single(str(source), main.CompilationOptions(main.default_options), source.stem)
    if result.num_errors:
        raise CompileError("\n".join(_errors(said.getvalue(), source)))


def _errors(said: str, source: Path) -> list[str]:
    """Each of Cython's errors with the line it is about."""
    lines = source.read_text(encoding="utf-8").splitlines()
    found = []
    for match in re.finditer(rf"{re.escape(source.name)}:(\d+):\d+: (.*)", said):
        text = lines[int(match[1]) - 1].strip() if int(match[1]) <= len(lines) else ""
        found.append(f"{match[2]}, in: {text}")
    return found[:5] or [said[-400:]]


@functools.cache
def folder() -> Path:
    """Where this process compiles; gone with it."""
    folder = tempfile.TemporaryDirectory(prefix="kernels", ignore_cleanup_errors=True)
    atexit.register(folder.cleanup)
    sys.path_importer_cache.pop(folder.name, None)
    return Path(folder.name)


READER = """
cdef unsigned long long words_of(const unsigned long long* x, Py_ssize_t n) noexcept nogil:
    cdef unsigned long long[16] seen
    cdef unsigned long long found = 0
    cdef Py_ssize_t i = 0, j
    for j in range(16):
        seen[j] = 0
    while i < n:
        for j in range(16):
            seen[j] |= x[i + j]
        i += 16
    for j in range(16):
        found |= seen[j]
    return found

def read(size_t address, Py_ssize_t n, size_t out, int threads):
    cdef const float* x = <const float*>address
    cdef unsigned long long* seen = <unsigned long long*>out
    cdef Py_ssize_t chunk
    for chunk in prange(n // CHUNK, nogil=True, schedule="static", num_threads=threads):
        seen[chunk] = words_of(<const unsigned long long*>(x + chunk * CHUNK), CHUNK // 2)
"""


def reader(x: Any, threads: int) -> Any:
    """A function that reads the float32 array x, whole chunks, and does next to nothing with it: as fast as it goes."""
    out = np.zeros(max(1, x.size // CHUNK), np.uint64)
    read = build(READER).read
    return lambda: read(x.ctypes.data, x.size, out.ctypes.data, threads)


def quickest(functions: Sequence[Callable[[], Any]], rounds: int = 7) -> list[float]:
    """Seconds of the quickest call of each, called in turn: what the machine can do when nobody disturbs it."""
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(rounds):
        for function, mine in zip(functions, times, strict=True):
            start = time.perf_counter()
            function()
            mine.append(time.perf_counter() - start)
    return [min(mine) for mine in times]
