"""When a disk fills up, each file is the old one or the new one, and the error names it.

A limit on the size of files (RLIMIT_FSIZE) stands for the full disk wherever the tests run. The slow test has real
ones, of 70 sizes each, where this process may mount them.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn

for package in ("rich", "matplotlib", "sklearn", "onnx"):
    pytest.importorskip(package)

import minorm.onnx as mo  # noqa: E402  after importorskip
from minorm import plots  # noqa: E402
from minorm.cli import demo, labs  # noqa: E402
from minorm.cli.views import run_report  # noqa: E402
from minorm.labs import catalogue  # noqa: E402
from minorm.labs.judge import grading  # noqa: E402
from minorm.labs.sealed import finding  # noqa: E402
from minorm.onnx.operators import table  # noqa: E402
from minorm.training import Run, Settings  # noqa: E402

Writer = Callable[[Path, int], Any]  # into a folder, the files of version 0 or 1
SIZES = 70


def net(version: int) -> nn.Module:
    mn.manual_seed(version)
    return nn.Sequential(nn.Linear(40, 30 + version), nn.ReLU(), nn.Linear(30 + version, 20))


@pytest.fixture(scope="module")
def writers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Writer]:
    """Return, by name, every call of the library and of the command line that writes a user's file."""
    from rich.console import Console

    there = tmp_path_factory.mktemp("sources")
    x = mn.ones(2, 40)
    sources = [there / f"{version}.onnx" for version in range(2)]
    for version, source in enumerate(sources):
        mo.export(net(version), x, source)
    trained = [demo._train(Console(quiet=True), seed, 1, "cpu") for seed in range(2)]
    page = f"{table.BEGIN}\n{table.END}\n"

    def train(folder: Path, version: int) -> None:
        run = Run(Settings(epochs=1, seed=version))
        run.history = [{**trained[version].run.history[0]}]
        run.save(str(folder))

    def grades(folder: Path, version: int) -> None:
        (there / "handed in").mkdir(exist_ok=True)
        (there / "handed in" / "ada.txt").write_bytes(b"")  # no code to run: a row all the same
        lab = catalogue.find(0)
        list(grading.grade(lab, there / "handed in", folder / "g.csv", grading.Options(finding.find(), version)))

    def operators(folder: Path, version: int) -> None:
        if version == 0:
            (folder / "page.md").write_text(page)
        else:
            table.main(str(folder / "page.md"))

    def picture(folder: Path, version: int) -> None:
        from matplotlib.figure import Figure

        small = Figure((3, 2))  # the demo's own takes seconds to draw; how it gets to the disk is the same
        small.text(0.1, 0.1, f"version {version}")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(plots, "training_picture", lambda *_: small)
            demo._drawn(trained[version], str(folder / "training.png"))

    def report(folder: Path, version: int) -> None:
        from matplotlib.figure import Figure

        small = Figure((3, 2))
        small.text(0.1, 0.1, f"version {version}")
        run = trained[version].run
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(plots, "curves", lambda *_: small)
            patch.setattr(plots, "confusion", lambda *_: small)
            run_report.write(run, str(folder), 1.0)

    def start(folder: Path, version: int) -> None:
        if version == 1:
            labs._start(argparse.Namespace(lab=0, out=str(folder), lab_dir=None))

    return {
        "save": lambda folder, v: mn.save({"a": np.full(3000 + v, v)}, folder / "m.safetensors"),
        "save_training": lambda folder, v: mn.checkpoint.save_training(folder / "t.safetensors", model=net(v), epoch=v),
        "export": lambda folder, v: mo.export(net(v), x, folder / "m.onnx"),
        "external data": lambda folder, v: mo.export(net(v), x, folder / "m.onnx", external_data=True),
        "convert": lambda folder, v: mo.convert(sources[v], folder / "m.onnx", opset_version=17),
        "train": train,
        "demo: checkpoint": lambda folder, v: demo._save_and_check(trained[v].run, str(folder / "model.safetensors")),
        "demo: picture": picture,
        "report": report,
        "grades": grades,
        "table": operators,
        "labs start": start,
    }


NAMES = [
    "save", "save_training", "export", "external data", "convert", "train", "demo: checkpoint", "demo: picture",
    "report", "grades", "table", "labs start",
]  # fmt: skip
SEVERAL = ("train", "report", "labs start")  # files one after the other: the first may be new when the second fails


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in os.listdir(folder)}


def both(write: Writer, folder: Path) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Return the files of version 0, and the same files after version 1, written with enough room."""
    write(folder, 0)
    old = contents(folder)
    write(folder, 1)
    return old, contents(folder)


def check(name: str, write: Writer, folder: Path, old: dict[str, bytes], new: dict[str, bytes]) -> bool:
    """Write version 1 over version 0; return whether there was room."""
    said = ""
    try:
        write(folder, 1)
    except OSError as error:
        said = str(error)
    found = contents(folder)
    if not said:
        assert found == new
        return True
    assert str(folder) in said
    assert said.endswith((": No space left on device", ": File too large"))
    assert "[Errno" not in said
    assert found.keys() >= old.keys()
    assert all(found[key] in (old.get(key), new.get(key)) for key in found)
    if name not in SEVERAL:
        assert found == old
    return False


@contextmanager
def largest_file(nbytes: int) -> Iterator[None]:
    """Limit the size of files; Python ignores the signal, so a write fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("unnamed", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_a_limit_on_files(
    name: str, unnamed: bool, writers: dict[str, Writer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not unnamed:
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    write = writers[name]
    (tmp_path / "roomy").mkdir()
    old, new = both(write, tmp_path / "roomy")
    assert new != old or name == "grades"
    largest = max(len(content) for content in new.values())
    for i, limit in enumerate((0, 100, largest // 2, largest - 1, largest)):
        (folder := tmp_path / str(i)).mkdir()
        write(folder, 0)
        with largest_file(limit):
            done = check(name, write, folder, old, new)
        assert done == (limit == largest)


@contextmanager
def disk(folder: Path) -> Iterator[Callable[[int], None]]:
    """Mount a disk in memory; yield a function that sets its size."""
    if shutil.which("mount") is None or os.geteuid() != 0:
        pytest.skip("only root mounts a disk")
    folder.mkdir()

    def mount(*options: str) -> int:
        return subprocess.run(["mount", *options, str(folder)], capture_output=True, check=False).returncode

    if mount("-t", "tmpfs", "-o", "size=64m", "tmpfs"):
        pytest.skip("the system does not let this process mount a disk")
    try:
        yield lambda nbytes: mount("-o", f"remount,size={nbytes}") and pytest.fail("the disk cannot be resized")
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_70_sizes_of_disk(
    name: str, writers: dict[str, Writer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = writers[name]
    (tmp_path / "roomy").mkdir()
    old, new = both(write, tmp_path / "roomy")
    page = resource.getpagesize()
    pages = {key: -(-len(content) // page) for key, content in {**old, **new}.items()}
    most = sum(pages[key] for key in new) + 4  # of further room, with which all succeeds
    done = 0
    with disk(tmp_path / "disk") as resize:
        folder = tmp_path / "disk"
        for i in range(SIZES):
            resize(64 << 20)
            for path in folder.iterdir():
                path.unlink()
            write(folder, 0)
            used = sum(pages[key] for key in old)
            resize((used + most * i // (SIZES - 1)) * page or page)
            with monkeypatch.context() as patch:
                if i % 2:
                    patch.delattr(os, "O_TMPFILE", raising=False)
                done += check(name, write, folder, old, new)
    assert 0 < done < SIZES
