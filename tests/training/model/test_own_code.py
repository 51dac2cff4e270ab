"""FILE.py:FUNCTION runs the code that was read, and explains why it refuses a wrong function or file."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

import pytest

import minorm as mn
from minorm.training.model.own_code import Code

GOOD = """
from minorm import nn
from beside import WIDTH

def build(channels, size, classes):
    return nn.Sequential(nn.Conv2d(channels, WIDTH, 3), nn.BatchNorm2d(WIDTH), nn.Flatten(),
                         nn.Linear(WIDTH * (size - 2) ** 2, classes))

def number(channels, size, classes):
    return 5

def picky(channels, size):
    return nn.Identity()

def narrow(channels, size, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * size**2, 7))

def grey(channels, size, classes):
    return nn.Conv2d(1, classes, 3)
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "beside.py").write_text("WIDTH = 5")
    (tmp_path / "mine.py").write_text(GOOD)
    return str(tmp_path / "mine.py")


def test_what_was_read_is_what_is_run(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(os.path.dirname(file))
    before = list(sys.path)
    code = Code.read("mine.py:build")
    assert (code.path, code.function, code.file, code.name) == ("mine.py", "build", "mine.py", "mine.py:build")
    assert code.sha256 == hashlib.sha256(GOOD.encode()).hexdigest()
    Path(file).write_text("raise SystemExit")
    model = code.build(3, 8, 4)
    assert model(mn.randn(2, 3, 8, 8)).shape == (2, 4)
    assert all(module.training for module in model.modules())
    assert sys.path == before


def test_reading_runs_nothing_and_follows_no_link_where_asked(file: str, tmp_path: Path) -> None:
    Path(file).write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    Code.read(f"{file}:build")
    assert not (tmp_path / "ran").exists()
    (tmp_path / "link.py").symlink_to(file)
    assert Code.read(f"{tmp_path}/link.py:build").contents == Path(file).read_bytes()
    with pytest.raises(OSError, match="is a link; expected a regular file"):
        Code.read(f"{tmp_path}/link.py:build", copied=True)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("absent", r"mine\.py has no function 'absent'; it has build, number"),
        ("number", r"mine\.py:number returned a int; expected a minorm\.nn\.Module"),
        ("picky", r"mine\.py:picky\(3, 8, 4\) raised TypeError"),
        ("narrow", r"is \(2, 7\); expected shape \(2, 4\), one number for each class"),
        ("grey", "does not take images of 2 x 3 x 8 x 8"),
    ],
)
def test_what_is_wrong_with_a_function_is_said(file: str, function: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Code.read(f"{file}:{function}").build(3, 8, 4)


def test_what_is_wrong_with_a_file_is_said(file: str) -> None:
    with pytest.raises(FileNotFoundError, match=r"no\.py"):
        Code.read("no.py:build")
    for text, said in (("def build(:", "SyntaxError"), ("import nowhere_at_all", "ModuleNotFoundError")):
        Path(file).write_text(text)
        with pytest.raises(ValueError, match=rf"mine\.py cannot be run: {said}"):
            Code.read(f"{file}:build").build(3, 8, 4)


def test_a_copy_imports_nothing_that_lies_beside_it(tmp_path: Path) -> None:
    """Not in place of the standard library's modules either."""
    (tmp_path / "mine.py").write_text("import colorsys\ndef build(*sizes): return colorsys.PLANTED")
    (tmp_path / "colorsys.py").write_text("PLANTED = 1")
    before = sys.modules.pop("colorsys", None)
    with pytest.raises(ValueError, match=r"AttributeError: module 'colorsys' has no attribute 'PLANTED'"):
        Code.read(f"{tmp_path}/mine.py:build", copied=True).build(1, 8, 2)
    if before is not None:
        sys.modules["colorsys"] = before
    (tmp_path / "mine.py").write_text("import helper_of_mine")
    (tmp_path / "helper_of_mine.py").write_text("")
    with pytest.raises(
        ValueError,
        match=r"No module named 'helper_of_mine'; a run keeps a copy of this file only, so "
        r"pass",
    ):
        Code.read(f"{tmp_path}/mine.py:build", copied=True).build(1, 8, 2)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with open(tmp_path / "large.py", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ValueError, match=r"large\.py' has more than 16,777,216 bytes; expected a file of Python"):
        Code.read(f"{tmp_path}/large.py:build")
