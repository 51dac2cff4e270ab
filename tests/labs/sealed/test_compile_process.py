"""Compilers behind walls: a library comes back, and no file of others gets into it."""

from __future__ import annotations

import functools
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from minorm.labs.sealed import compile_process, finding, process
from minorm.labs.sealed.compiler import CompileError
from minorm.labs.sealed.counting import Share

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
WITHOUT = [(), ("mounts", "user")]
KERNEL = '#include "cuda_shim.h"\n__global__ void f(float* x) {{}}\n{}\n'


@pytest.fixture(autouse=True)
def forgotten() -> None:
    """Another test's walls may have refused a text."""
    compile_process._REFUSED.clear()


def compiled(text: str, without: tuple[str, ...] = (), seconds: float = 60.0) -> bytes:
    return compile_process.compiled(finding.find(without), "cuda", KERNEL.format(text), time.monotonic() + seconds)


def test_a_library_and_each_text_once() -> None:
    data = compiled("")
    assert data.startswith(b"\x7fELF")
    assert compiled("") is data


def test_a_text_that_is_refused_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CompileError, match="nothing_of_the_kind") as first:
        compiled("int x = nothing_of_the_kind;")
    monkeypatch.setattr(compile_process, "Process", None)
    with pytest.raises(CompileError) as second:
        compiled("int x = nothing_of_the_kind;")
    assert str(first.value) == str(second.value)


def require_writes(without: tuple[str, ...]) -> None:
    if not finding.find(without).writes:
        pytest.skip("nothing says which files a compiler may read")


READING = [
    '#include "{}"', "#include <{}>", '#import "{}"', '#include_next "{}"', '#pragma GCC dependency "{}"',
    'asm(".incbin \\"{}\\"");', 'asm(".include \\"{}\\"");',
]  # fmt: skip


@pytest.mark.parametrize("without", WITHOUT)
@pytest.mark.parametrize("text", READING)
def test_files_of_others_stay_out(text: str, without: tuple[str, ...], tmp_path: Path) -> None:
    require_writes(without)
    secret = tmp_path / "secret.py"
    secret.write_text("int secret;\n")
    tmp_path.chmod(0o755)
    with pytest.raises(CompileError, match=r"secret\.py"):
        compiled(text.format(secret), without)


def test_with_mounts_a_text_cannot_ask_whether_a_file_is_there(tmp_path: Path) -> None:
    """Without them it can, and gets an error for it: docs/labs.md."""
    if not finding.find().mounts:
        pytest.skip("no mounts here")
    tmp_path.chmod(0o755)
    (tmp_path / "there.h").write_text("")
    assert compiled(f'#if __has_include("{tmp_path}/there.h")\n#error it is\n#endif')


@pytest.mark.parametrize("without", WITHOUT)
@pytest.mark.parametrize(
    "text",
    ['include "{}"\n', 'cdef extern from "{}":\n    int secret\n', "# distutils: extra_compile_args = -include {}\n"],
)
def test_files_of_others_stay_out_of_cython(text: str, without: tuple[str, ...], tmp_path: Path) -> None:
    """A header for distutils is for another tool, and changes nothing here."""
    pytest.importorskip("Cython")
    require_writes(without)
    secret = tmp_path / "secret.h"
    secret.write_text("int secret = 1;\n" if "extern" in text else "a_text_that_stands_there = 1\n")
    tmp_path.chmod(0o755)
    build = functools.partial(compile_process.compiled, finding.find(without), "cython", text.format(secret))
    if text.startswith("#"):
        assert b"a_text_that_stands_there" not in build(time.monotonic() + 60)
    else:
        with pytest.raises(CompileError, match=r"secret\.h"):
            build(time.monotonic() + 60)


@pytest.mark.parametrize("without", WITHOUT)
def test_what_is_hidden_beside_headers_stays_hidden(
    without: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As checks are whose Python lies where compilers do, under /usr/local or in a folder of conda's."""
    require_writes(without)
    headers = tmp_path / "include"
    headers.mkdir()
    tmp_path.chmod(0o755)
    for name in ("open.h", "secret.h"):
        (headers / name).write_text("int known;\n")
    monkeypatch.setattr(compile_process, "PLACES", (*compile_process.PLACES, str(tmp_path)))
    around = replace(finding.find(without), secret=(str(headers / "secret.h"),))
    deadline = time.monotonic() + 60
    text = KERNEL.format(f'#include "{headers / "open.h"}"')
    assert compile_process.compiled(around, "cuda", text, deadline).startswith(b"\x7fELF")
    # with mounts an empty file lies there, so only what it should declare is missing
    text = KERNEL.format(f'#include "{headers / "secret.h"}"\nint other() {{ return known; }}')
    with pytest.raises(CompileError, match=r"secret\.h|known"):
        compile_process.compiled(around, "cuda", text, deadline)


@pytest.mark.parametrize("without", WITHOUT)
def test_what_compilers_write_is_bounded(without: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """In all processes together, and while they write, not some moments later."""
    require_writes(without)
    monkeypatch.setattr(compile_process, "Process", functools.partial(process.Process, share=Share(6 << 20, 100)))
    numbers = "int numbers[{} << 18] = {{1}};"
    compile_process._DONE.clear()
    assert len(compiled(numbers.format(1), without)) > 1 << 20
    with pytest.raises(CompileError, match=r"(?i)no space|wrote more than is allowed"):
        compiled(numbers.format(8), without)


def test_what_is_no_text_and_what_takes_too_long() -> None:
    with pytest.raises(CompileError, match="the source to compile is not text"):
        compile_process.compiled(finding.find(), "cuda", 3, time.monotonic() + 9)  # type: ignore[arg-type]
    with pytest.raises(CompileError, match="the source to compile is not text"):
        compile_process.compiled(finding.find(), "fortran", "", time.monotonic() + 9)
    endless = "template <int n> struct T { T<n + 1> next; static const int v = T<n + 1>::v + T<n + 2>::v; };"
    with pytest.raises(CompileError):
        compiled(f"{endless} int x = T<0>::v;", seconds=3.0)
