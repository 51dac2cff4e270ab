"""Compiles a text to a shared library in a folder. A sealed process can do this, too.

Compilers open the files that a student's text names: `#include`, `.incbin`, Cython's `include`. So for the judge,
compilers run in a sealed process, which may also read compilers and headers, and start programs. The walls hold for
these programs, too. None of the student's Python runs in this process.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

LINK = shlex.split(sysconfig.get_config_var("LDSHARED") or "cc -shared")
CUDA_COMPILERS = "g++", "c++"
CYTHON_FLAGS = ["-O3", "-g0", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-fopenmp"]
# A library uses its own names, not those of another library: both would destroy the same list of threads at the end.
CUDA_LINK = ["-shared"] if sys.platform == "darwin" else ["-shared", "-Wl,-Bsymbolic"]
# The compiler announces each read and write in memory to our functions, in thread_work.h and cuda_work.h; it does so
# for ThreadSanitizer, whose own library is not linked. No code can ask whether it is compiled this way.
ANNOUNCED = ["-fsanitize=thread", "-U__SANITIZE_THREAD__", "-fno-tree-vectorize"]
COUNTED_FLAGS = ["-O1", "-g0", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-fopenmp", *ANNOUNCED]
# Constants such as 0.5 are float as well: no kernel of lab 8 computes in double.
CUDA_FLAGS = ["-std=c++17", "-O1", "-w", "-ffp-contract=off", "-fPIC", "-fsingle-precision-constant", *ANNOUNCED]
FIBERS_FLAGS = ["-std=c++17", "-O2", "-w", "-fPIC"]
SHIM = Path(__file__).parents[1] / "cuda_shim.h"
FIBERS = "fibers.o"  # runs the threads and counts what they do; linked to each kernel
COUNTING = Path(__file__).parents[1] / "counting"
CUDA_HEADERS = (SHIM, COUNTING / "cuda_work.h", COUNTING / "announced.h")
THREAD_WORK = COUNTING / "thread_work.h"
LINE = 300  # characters of a line of a compiler's


class CompileError(ValueError):
    """Raised for a text that is not valid Cython or C."""


def name_of(kind: str, text: str) -> str:
    """Return a name for the compiled text.

    The name depends only on `kind` and `text`, because a Python module contains its name.
    """
    return f"{'kernels' if kind == 'cython' else kind}_{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def cython(text: str, folder: Path) -> Path:
    """Compile Cython to C, and C to an extension module with Python's own C compiler."""
    source = _translated("cython", text, folder)
    target = source.with_suffix(sysconfig.get_config_var("EXT_SUFFIX"))
    _c_compiler(source, *LINK, *CYTHON_FLAGS, _headers(), str(source.with_suffix(".c")), "-o", str(target))
    return target


def counted_cython(text: str, folder: Path) -> Path:
    """Compile a slower module with thread_work.h in it, which counts what each thread reads and writes."""
    source = _translated("counted", text, folder)
    target, compiled = source.with_suffix(sysconfig.get_config_var("EXT_SUFFIX")), str(source.with_suffix(".o"))
    c = str(source.with_suffix(".c"))
    _c_compiler(source, LINK[0], *COUNTED_FLAGS, _headers(), "-c", c, "-o", compiled)
    _c_compiler(source, *LINK, "-O2", "-fPIC", "-fopenmp", compiled, "-x", "c", str(THREAD_WORK), "-o", str(target))
    return target


def cuda(text: str, folder: Path) -> Path:
    """Compile CUDA, with the shim in front, to a shared library with a C++ compiler."""
    shim = _shim(folder)
    compile_ = [_cuda_compiler(), *CUDA_FLAGS, "-I", str(shim), "-c"]
    source = folder / f"{name_of('cuda', text)}.cpp"
    source.write_text(text, encoding="utf-8")
    compiled, target = str(source.with_suffix(".o")), source.with_suffix(".so")
    _require(_run([*compile_, str(source), "-o", compiled]), source, "compiler")
    _require(_run([_cuda_compiler(), *CUDA_LINK, compiled, str(shim / FIBERS), "-o", str(target)]), source, "compiler")
    return target


COMPILE: dict[str, Callable[[str, Path], Path]] = {"cython": cython, "counted": counted_cython, "cuda": cuda}
PROGRAMS: dict[str, Sequence[str]] = {
    "cython": LINK[:1],
    "counted": LINK[:1],
    "cuda": CUDA_COMPILERS,
}  # names, any of which will do


def main(line: int, plan: dict[str, Any]) -> None:
    """Compile one text in a sealed process; send a line of JSON and the library's bytes, or the error."""
    task = plan["task"]
    if task["shim"]:
        _SHIMS[plan["folder"]] = Path(task["shim"])
    data, answer = b"", {}
    try:
        data = COMPILE[task["kind"]](task["text"], Path(plan["folder"])).read_bytes()
    except CompileError as error:
        answer = {"refusal": str(error)}
    with os.fdopen(line, "wb") as file:
        file.write(json.dumps({**answer, "size": len(data)}).encode() + b"\n" + data)
    os._exit(0)


def precompile(folder: Path) -> None:
    """Compile the code that all kernels share, so that compiling a kernel takes a quarter of the time.

    This code is the first half of the shim, as a precompiled header if the compiler supports this, and fibers.o.
    """
    shim, fibers = folder / SHIM.name, (folder / FIBERS).with_suffix(".cpp")
    *seen, announced = (path.read_text(encoding="utf-8") for path in CUDA_HEADERS)
    shim.write_text("\n".join(["#define SHIM_APART", *seen]), encoding="utf-8")
    _run([_cuda_compiler(), *CUDA_FLAGS, "-x", "c++-header", str(shim), "-o", f"{shim}.gch"])
    fibers.write_text("\n".join([*seen, announced]), encoding="utf-8")
    made = _run([_cuda_compiler(), *FIBERS_FLAGS, "-c", str(fibers), "-o", str(folder / FIBERS)])
    _require(made, fibers, "compiler")


_SHIMS: dict[str, Path] = {}


def _shim(folder: Path) -> Path:
    """Return the folder with the precompiled shim and fibers.o. They are compiled at the first call for this folder."""
    if str(folder) not in _SHIMS:
        precompile(folder)
        _SHIMS[str(folder)] = folder
    return _SHIMS[str(folder)]


@functools.cache
def _cuda_compiler() -> str:
    compiler = next(filter(None, map(shutil.which, CUDA_COMPILERS)), None)
    if compiler is None:
        raise CompileError("there is no C++ compiler (g++) on this machine")
    return compiler


def _translated(kind: str, text: str, folder: Path) -> Path:
    """Translate the text to C. Return the path of the .pyx file; the C file is beside it."""
    source = folder / f"{name_of(kind, text)}.pyx"
    source.write_text(text, encoding="utf-8")
    _translate(source)
    return source


def _headers() -> str:
    return "-I" + sysconfig.get_path("include")


def _c_compiler(source: Path, *command: str) -> None:
    try:
        result = _run(list(command))
    except FileNotFoundError:
        raise CompileError(f"there is no C compiler {LINK[0]!r} on this machine") from None
    _require(result, source, "C compiler")


def _translate(source: Path) -> None:
    """Translate Cython to C in this process: starting another process takes longer than the translation."""
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
    """Return Cython's errors, each with its line."""
    lines = source.read_text(encoding="utf-8").splitlines()
    found = []
    for match in re.finditer(rf"{re.escape(source.name)}:(\d+):\d+: (.*)", said):
        text = lines[int(match[1]) - 1].strip() if int(match[1]) <= len(lines) else ""
        found.append(f"{match[2]}, in: {text}")
    return found[:5] or [said[-400:]]


def _require(result: subprocess.CompletedProcess[str], source: Path, who: str) -> None:
    """Raise CompileError with the compiler's message if the compiler failed."""
    if result.returncode:
        said = result.stderr.replace(f"{source.parent}/", "").splitlines()
        # collect2 says only that the linker has said something
        errors = [line for line in said if "error" in line and not line.startswith("collect2:")] or said
        if not said:  # its messages go to a pipe, and count like writes to a file
            raise CompileError(f"the {who} failed without a message, perhaps because it wrote more than is allowed")
        cut = "" if result.stderr.endswith("\n") else " (cut off, perhaps because it wrote more than is allowed)"
        raise CompileError(f"the {who} says: " + "\n".join(line[:LINE] for line in errors[:5]) + cut)


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=False, capture_output=True, text=True, errors="replace")
