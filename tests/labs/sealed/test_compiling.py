"""Compilers behind walls: a library comes back, and no file of others gets into it."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from minorm.labs.sealed import compiling, finding
from minorm.labs.sealed.compiler import CompileError

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
KERNEL = '#include "cuda_shim.h"\n__global__ void f(float* x) {{}}\n{}\n'


def compiled(text: str, without: tuple[str, ...] = (), seconds: float = 60.0) -> bytes:
    return compiling.compiled(finding.find(without), "cuda", KERNEL.format(text), time.monotonic() + seconds)


def test_a_library_and_each_text_once() -> None:
    data = compiled("")
    assert data.startswith(b"\x7fELF")
    assert compiled("") is data


@pytest.mark.parametrize("without", [(), ("mounts", "user")])
@pytest.mark.parametrize("text", ['#include "{}"', 'asm(".incbin \\"{}\\"");'])
def test_files_of_others_stay_out(text: str, without: tuple[str, ...], tmp_path: Path) -> None:
    if not finding.find(without).writes:
        pytest.skip("nothing says which files a compiler may read")
    secret = tmp_path / "secret.py"
    secret.write_text("int secret;\n")
    tmp_path.chmod(0o755)
    with pytest.raises(CompileError, match=r"secret\.py"):
        compiled(text.format(secret), without)


def test_what_is_no_text_and_what_takes_too_long() -> None:
    with pytest.raises(CompileError, match="no text"):
        compiling.compiled(finding.find(), "cuda", 3, time.monotonic() + 9)  # type: ignore[arg-type]
    with pytest.raises(CompileError, match="no text"):
        compiling.compiled(finding.find(), "fortran", "", time.monotonic() + 9)
    endless = "template <int n> struct T { T<n + 1> next; static const int v = T<n + 1>::v + T<n + 2>::v; };"
    with pytest.raises(CompileError):
        compiled(f"{endless} int x = T<0>::v;", seconds=3.0)
