"""Compilers: text to a shared library, in a folder; and the same in a sealed process.

What students write in C is read by programs that open files when they are told to: `#include`, `.incbin`, Cython's
`include`. So for the judge they run in a sealed process, which may also read compilers and headers, and start programs;
the walls hold for those too. Nothing of the student's Python runs there.
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
# Its own names and not those of another library in the process: both would destroy one list of threads at the end.
CUDA_LINK = ["-shared"] if sys.platform == "darwin" else ["-shared", "-Wl,-Bsymbolic"]
# The compiler announces each read and write in memory to our functions, in thread_work.h and cuda_work.h; it does
# so for ThreadSanitizer, whose own library is not linked. No code can ask whether it is compiled so.
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
    """The text is no Cython, or what became of it no C."""


def name_of(kind: str, text: str) -> str:
    """A name for what becomes of the text; that of a Python module is part of it, so it is the same everywhere."""
    return f"{'kernels' if kind == 'cython' else kind}_{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def cython(text: str, folder: Path) -> Path:
    """Cython to C to an extension module, with Python's own C compiler."""
    source = _translated("cython", text, folder)
    target = source.with_suffix(sysconfig.get_config_var("EXT_SUFFIX"))
    _c_compiler(source, *LINK, *CYTHON_FLAGS, _headers(), str(source.with_suffix(".c")), "-o", str(target))
    return target


def counted_cython(text: str, folder: Path) -> Path:
    """The same, slower, with thread_work.h in it, which counts what each thread reads and writes."""
    source = _translated("counted", text, folder)
    target, compiled = source.with_suffix(sysconfig.get_config_var("EXT_SUFFIX")), str(source.with_suffix(".o"))
    c = str(source.with_suffix(".c"))
    _c_compiler(source, LINK[0], *COUNTED_FLAGS, _headers(), "-c", c, "-o", compiled)
    _c_compiler(source, *LINK, "-O2", "-fPIC", "-fopenmp", compiled, "-x", "c", str(THREAD_WORK), "-o", str(target))
    return target


def cuda(text: str, folder: Path) -> Path:
    """CUDA, with the shim in front, to a shared library, with a C++ compiler."""
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
    """In a sealed process: one text, and back the library's bytes behind a line of JSON, or what is wrong."""
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
    """Compile what all kernels share, so that each takes a quarter of the time.

    That is the shim's first half, as a precompiled header where the compiler has such, and fibers.o.
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
    """Where the precompiled shim and fibers.o lie; made once for a folder."""
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
    """The .pyx file of the text, with the C of it beside."""
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


def _require(result: subprocess.CompletedProcess[str], source: Path, who: str) -> None:
    """CompileError with what the compiler says."""
    if result.returncode:
        said = result.stderr.replace(f"{source.parent}/", "").splitlines()
        # collect2 says only that the linker has said something
        errors = [line for line in said if "error" in line and not line.startswith("collect2:")] or said
        if not said:  # its words are written to a pipe, and count like what is written to a file
            raise CompileError(f"the {who} fails without a word, as when it has written more than it may")
        cut = "" if result.stderr.endswith("\n") else " (cut off, as when it has written more than it may)"
        raise CompileError(f"the {who} says: " + "\n".join(line[:LINE] for line in errors[:5]) + cut)


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=False, capture_output=True, text=True, errors="replace")
