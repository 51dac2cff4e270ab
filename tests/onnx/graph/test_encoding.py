"""Bytes to ModelProto and back: what that takes of memory, and what is said where there is too little."""

from __future__ import annotations

import ast
import itertools
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn

onnx = pytest.importorskip("onnx")
pytest.importorskip("resource")

import minorm.onnx as mo  # noqa: E402
from minorm.onnx.graph import encoding  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of address space are Linux's")

LIMITED = """
    import os, resource, sys

    def limit(room):
        with open("/proc/self/statm") as file:
            taken = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + room, resource.RLIM_INFINITY))
"""


def limited(program: str, *arguments: Any) -> str:
    """Returns the output of a program, which may set limits to itself."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LIMITED) + textwrap.dedent(program), *map(str, arguments)],
        cwd=ROOT, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@LINUX
@pytest.mark.parametrize("max_bytes", [2 << 30, 32 << 30, 1 << 60, 1 << 70])
@pytest.mark.parametrize("widths", [(2048, 3072), (1024, 2048, 1024, 2048)])
def test_24_mb_load_within_150_mb(tmp_path: Path, max_bytes: int, widths: tuple[int, ...]) -> None:
    """The room is counted from what the process has when everything is imported."""
    path = tmp_path / "m.onnx"
    layers = [nn.Linear(*pair, bias=False) for pair in itertools.pairwise(widths)]
    mo.export(nn.Sequential(*layers), mn.ones(1, widths[0]), path)
    assert path.stat().st_size > 24 << 20
    program = """
        import minorm.onnx
        limit(150 << 20)
        model = minorm.onnx.load(sys.argv[1], max_bytes=int(sys.argv[2]))
        print(sum(p.array.size for p in model.parameters()))
    """
    assert int(limited(program, path, max_bytes)) == 6 << 20


EXPORTS = """
    import re
    import minorm as mn, minorm.onnx
    from minorm import nn

    folder, count, most, verify = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "verified"
    mn.set_num_threads(1)
    wide = nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 1024), nn.ReLU(), nn.Linear(1024, 2048))
    deep = nn.Sequential(*[nn.Linear(32, 32) for _ in range(200)])
    path = os.path.join(folder, "m.onnx")
    for i in range(count):
        model, x = (deep, mn.ones(2, 32)) if i % 3 == 2 else (wide, mn.ones(2, 1024))
        with open(path, "wb") as file:
            file.write(b"old")
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            limit(most * i // count)
            try:
                minorm.onnx.export(model, x, path, verify=verify)
                said = "written"
            except BaseException as error:
                said = f"{type(error).__name__}: {error}"
            os.write(write, said.encode())
            os._exit(0)
        os.close(write)
        with open(read, "rb") as file:
            said = file.read().decode()
        os.waitpid(child, 0)
        whole = os.listdir(folder) == ["m.onnx"] and (said == "written") == (os.path.getsize(path) > 3)
        print(re.sub("[0-9]+", "N", said.splitlines()[0]) if said else "died", "" if whole else "AND LEFT A MESS")
"""


@LINUX
@pytest.mark.parametrize("limits", [13, pytest.param(130, marks=pytest.mark.slow)])
def test_export_short_of_memory(tmp_path: Path, limits: int) -> None:
    """At every limit either the file is written or there is a MemoryError that says for what; the old file is there."""
    said = Counter(map(str.strip, limited(EXPORTS, tmp_path, limits, 130 << 20, "").splitlines()))
    assert said.total() == limits
    assert said["written"] > limits // 5, said
    assert said.total() - said["written"] > limits // 5, said
    assert all(text == "written" or text.startswith("MemoryError: export: ") for text in said), said


COMMAND = """
    import contextlib, io
    from minorm import cli
    import minorm as mn, minorm.onnx

    mn.set_num_threads(1)
    for room in range(0, 120 << 20, (120 << 20) // int(sys.argv[1])):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.dup2(write, 2)
            with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
                limit(room)
                code = cli.main(["convert", sys.argv[2], "--opset", "17", "-o", sys.argv[3], "--no-verify"])
                sys.stderr.flush()
                os._exit(code)
        os.close(write)
        with open(read) as file:
            said = file.read()
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), repr(said))
"""


@LINUX
def test_the_command_line_says_it_in_one_line(tmp_path: Path) -> None:
    mo.export(nn.Sequential(nn.Linear(1024, 2048), nn.Linear(2048, 1024)), mn.ones(2, 1024), tmp_path / "m.onnx")
    lines = limited(COMMAND, 8, tmp_path / "m.onnx", tmp_path / "n.onnx").splitlines()
    codes = [int(line.split()[0]) for line in lines]
    assert set(codes) == {0, 1}, lines
    for code, line in zip(codes, lines, strict=True):
        said = ast.literal_eval(line.partition(" ")[2])
        assert said == "" if code == 0 else said.startswith("minorm convert: ") and said.count("\n") == 1, said


def test_damage_is_not_taken_for_want_of_memory() -> None:
    with pytest.raises(mo.LoadError, match=r"^x is no ONNX model, or a damaged one"):
        encoding.parse(b"\xff" * 100, "x")


def test_protobufs_words_for_want_of_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    proto = mo.export(nn.Linear(40, 40), mn.ones(1, 40))

    class Starved:
        graph = proto.graph

        def SerializeToString(self) -> bytes:
            raise ValueError("Failed to serialize proto")  # of which EncodeError is one

    with pytest.raises(mo.ExportError, match="protobuf cannot write the model, of about 6560 bytes: Failed"):
        encoding.encode(Starved())  # there was memory: something else is wrong
    empty = np.empty
    monkeypatch.setattr(np, "empty", lambda *_: empty(1 << 62, np.uint8))
    with pytest.raises(MemoryError, match="export: there is not enough memory to write a model of 6560 bytes"):
        encoding.encode(Starved())
    with pytest.raises(MemoryError, match="export: the graph takes 7 bytes; there is not so much memory"):
        encoding.reserve(7, "export: the graph")


def test_a_model_of_more_than_one_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "LARGEST", 1000)
    with pytest.raises(mo.ExportError, match=r"the model takes [0-9]+ bytes; one ONNX file holds less than 2147483648"):
        encoding.encode(mo.export(nn.Linear(40, 40), mn.ones(1, 40)))


def test_arrays_lie_in_the_file_as_the_onnx_package_puts_them() -> None:
    for array in (np.arange(6.0, dtype=np.float32).reshape(2, 3).T, np.array(3, np.int64), np.array([True, False])):
        tensor = onnx.numpy_helper.from_array(np.zeros_like(array), "t")
        encoding.fill([(tensor, array)])
        assert tensor.raw_data == onnx.numpy_helper.from_array(np.ascontiguousarray(array), "t").raw_data
