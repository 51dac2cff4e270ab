"""Copies of hidden files are found by their contents; files that only look like their neighbours are not copies."""

from __future__ import annotations

import json
import os
import py_compile
import shutil
import sys
import zipfile
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from minorm.labs.sealed import copies, walls

REAL = walls.PACKAGE


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small minorm in a folder of packages, with the course's checks and two modules that may be read."""
    package = tmp_path / "site-packages" / "minorm"
    for path in ("labs/checks", "labs/beside"):
        shutil.copytree(REAL / path, package / path, ignore=shutil.ignore_patterns("__pycache__"))
    for path in ("labs/wrong_kernels.py", "labs/cuda.py", "labs/judge/mistakes.md", "labs/calling/worker.py"):
        (package / path).parent.mkdir(exist_ok=True)
        shutil.copy(REAL / path, package / path)
    monkeypatch.setattr(walls, "PACKAGE", package)
    monkeypatch.setattr(walls, "HIDDEN", (package / "labs" / "checks", package / "labs" / "wrong_kernels.py"))
    monkeypatch.setattr(walls, "import_path", lambda: [str(package.parent)])
    return package


def found(package: Path) -> list[str]:
    root = package.parent
    return [os.path.relpath(path, root) for path in copies.found() if path.startswith(str(root))]


def compiled(source: Path, target: Path) -> Path:
    py_compile.compile(str(source), str(target), doraise=True)
    return target


def test_what_may_be_read_is_no_copy(package: Path) -> None:
    for name in ("cuda", "calling/worker"):
        source = package / "labs" / f"{name}.py"
        compiled(source, Path(cache_from_source(str(source))))
    assert found(package) == []


def test_compiled_files_of_hidden_sources(package: Path) -> None:
    labs = package / "labs"
    cache = labs / "__pycache__"
    hidden, open_ = labs / "wrong_kernels.py", labs / "cuda.py"
    wanted = [
        compiled(hidden, cache / "wrong_kernels.cpython-399.pyc"),
        compiled(hidden, cache / "harmless.cpython-311.pyc"),  # no source of this name
        compiled(hidden, cache / "cuda.opt-9.pyc"),  # a name that Python does not give
        compiled(hidden, Path(cache_from_source(str(open_)))),  # another source's name
        compiled(hidden, labs / "wrong_kernels.pyc"),
        compiled(labs / "checks" / "lab08_cuda.py", package / "notes.pyc"),
    ]
    assert found(package) == sorted(os.path.relpath(path, package.parent) for path in wanted)


def test_texts_that_share_lines(package: Path) -> None:
    labs = package / "labs"
    text = (labs / "wrong_kernels.py").read_text()
    lines = text.splitlines()
    (labs / "wrong_kernels.py~").write_text(text)
    (labs / "old.txt").write_text("\r\n".join(line.replace("block_sum", "block_sum") for line in lines[40:]))
    (labs / ".wrong_kernels.py.swp").write_bytes(b"b0VIM 9.0\0\0" + "\0".join(reversed(lines)).encode())
    cells = [{"cell_type": "code", "source": [line + "\n" for line in lines]}]
    (package / "draft.ipynb").write_text(json.dumps({"cells": cells}, indent=1))
    (labs / "one-line.json").write_text(json.dumps({"cells": [text]}))
    with zipfile.ZipFile(labs / "backup.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("deep/inside.txt", text)
    (labs / "few.txt").write_text("\n".join(lines[:8]))  # nothing but how it begins
    names = [".wrong_kernels.py.swp", "backup.zip", "old.txt", "one-line.json", "wrong_kernels.py~"]
    assert found(package) == ["minorm/draft.ipynb", *[f"minorm/labs/{name}" for name in names]]


def test_another_minorm_and_wheels_of_it(package: Path) -> None:
    site = package.parent
    egg = site / "minorm_nn-0.0.9.egg" / "minorm"
    shutil.copytree(package, egg)
    with zipfile.ZipFile(site / "minorm_nn-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("minorm/labs/wrong_kernels.py", "")
    (site / "minorm_nn.pth").write_text("/elsewhere\n")
    folder = "minorm_nn-0.0.9.egg/minorm/labs"
    wanted = [f"{folder}/checks", f"{folder}/wrong_kernels.py", "minorm_nn-1.0-py3-none-any.whl"]
    assert found(package) == sorted(wanted)


def test_compiled_names_are_hidden_before_they_are_there() -> None:
    """Another command may import the module while a student's code runs."""
    expected = cache_from_source(str(walls.HIDDEN[1]))
    assert expected in walls.hidden()
    reads, _ = walls.narrow(walls.readable())
    folders = [str(folder) for folder in Path(expected).parents]
    assert not set(folders) & set(reads)
    assert not any(path.startswith(str(walls.HIDDEN[0])) for path in reads)


def test_compiled_files_that_python_keeps_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PYTHONPYCACHEPREFIX may name a folder inside of what is read."""
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    for source in (walls.HIDDEN[1], walls.HIDDEN[0] / "lab00_axes.py", walls.LABS / "cuda.py"):
        compiled(source, Path(cache_from_source(str(source))))
    reads, _ = walls.narrow([str(tmp_path)])
    there = {path.name.split(".")[0] for one in reads for path in [Path(one), *Path(one).rglob("*.pyc")]}
    assert "cuda" in there
    assert not there & {"wrong_kernels", "lab00_axes"}


def test_a_link_opens_no_way_to_what_is_hidden(package: Path) -> None:
    """lib64 leads to lib in many environments; both names are narrowed."""
    root = package.parent.parent
    (root / "lib64").symlink_to(root)
    (root / "other").symlink_to(package / "labs" / "checks")
    real = [str(root / "site-packages"), str(root / "lib64" / "site-packages"), str(root)]
    reads, _ = walls.narrow(real)
    hidden = {os.path.realpath(path) for path in walls.hidden()}
    resolved = {os.path.realpath(path) for path in reads}
    assert not any(os.path.commonpath([one, path]) == path for one in hidden for path in resolved)
    assert str(root / "lib64" / "site-packages" / "minorm" / "labs" / "cuda.py") in reads
    assert str(root / "other") not in reads


def test_no_module_of_minorm_shares_so_many_lines_with_the_checks() -> None:
    """Else it would be hidden from students' code, which imports it."""
    modules = [path for path in copies.found() if path.startswith(f"{REAL}/") and path.endswith((".py", ".md", ".h"))]
    assert modules == []
