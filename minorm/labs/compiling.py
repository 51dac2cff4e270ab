"""Compiles the student's Cython: pieces of text become one file and a module of this process.

The compilers run in this process's folder, or in a process of the judge's (see sealed/compiler.py).

Compiling needs Cython and the C compiler that Python was built with, with OpenMP. The flags are those of minorm's own
kernels. They do not include -ffast-math, so sums are added in the written order.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import re
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from minorm.labs.sealed import compiler

CHUNK = 16384
HEADER = f"""\
# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, binding=False
from cython.parallel cimport prange
from libc.math cimport sqrt

cdef enum:
    CHUNK = {CHUNK}

"""
COMPILER = compiler.LINK[0]
CompileError = compiler.CompileError
# Functions that compile for this process: given the kind and the text, they return the bytes of a shared library. A
# sealed process can start no compiler, and asks the judge.
elsewhere: list[Callable[[str, str], bytes]] = []


def build(*pieces: str) -> ModuleType:
    """Build a module of the pieces, which may use prange, sqrt, CHUNK and names of earlier pieces.

    All lines of a piece may be indented, as if the text came from the inside of a function. Each text is built once. A
    CompileError quotes the compiler's message and the line in question. ImportError is raised if Cython is not
    installed.
    """
    return _built("cython", HEADER + "\n\n".join(map(textwrap.dedent, pieces)) + "\n")


def build_counted(*pieces: str) -> ModuleType:
    """Build a module that counts what each thread reads and writes (see thread_work.py)."""
    return _built("counted", HEADER + "\n\n".join(map(textwrap.dedent, pieces)) + "\n")


@functools.cache
def _built(kind: str, text: str) -> ModuleType:
    target = shared_library(kind, text)
    named = re.search(rb"PyInit_(\w+)", target.read_bytes())  # by the text that was compiled, which a judge may change
    assert named is not None
    spec = importlib.util.spec_from_file_location(named[1].decode(), target)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shared_library(kind: str, text: str) -> Path:
    """Compile the text to a shared library and return its path; raise CompileError if the compiler refuses the text."""
    if not elsewhere:
        return compiler.COMPILE[kind](text, folder())
    target = folder() / f"{compiler.name_of(kind, text)}.so"
    target.write_bytes(elsewhere[-1](kind, text))
    return target


@functools.cache
def folder() -> Path:
    """Return the folder in which this process compiles. The folder is removed when the process ends."""
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
    """Return a function that does little else than read whole chunks of the float32 array x, as fast as possible."""
    out = np.zeros(max(1, x.size // CHUNK), np.uint64)
    read = build(READER).read
    return lambda: read(x.ctypes.data, x.size, out.ctypes.data, threads)


def quickest(functions: Sequence[Callable[[], Any]], rounds: int = 7) -> list[float]:
    """Call the functions in turn, `rounds` times. Return, for each function, the seconds of its quickest call."""
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(rounds):
        for function, mine in zip(functions, times, strict=True):
            start = time.perf_counter()
            function()
            mine.append(time.perf_counter() - start)
    return [min(mine) for mine in times]
