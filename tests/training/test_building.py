"""FILE.py:FUNCTION: run only while it is the same file, and a sentence for every function that is not what it says."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import minorm as mn
from minorm import models, nn
from minorm.training import building

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


def test_a_name_is_one_of_ours() -> None:
    found = building.facts("lenet", 1, 28, 10)
    assert found == {"name": "lenet", "channels": 1, "size": 28, "classes": 10}
    assert building.build(**found).state_dict().keys() == models.lenet().state_dict().keys()


def test_a_function_builds_and_the_file_is_remembered(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(os.path.dirname(file))
    before = list(sys.path)
    found = building.facts("mine.py:build", 3, 8, 4)
    assert found["name"] == f"{file}:build"
    assert len(found["sha256"]) == 64
    model = building.build(**found)
    assert model(mn.randn(2, 3, 8, 8)).shape == (2, 4)
    assert all(module.training for module in model.modules())
    assert sys.path == before


def test_another_file_is_not_run(file: str, tmp_path: Path) -> None:
    found = building.facts(f"{file}:build", 3, 8, 4)
    Path(file).write_text(GOOD + f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(ValueError, match=r"mine\.py is not the file any more .*--model .*mine\.py:build"):
        building.build(**found)
    assert not (tmp_path / "ran").exists()
    assert isinstance(building.build(**found, instead=f"{file}:build"), nn.Module)
    assert (tmp_path / "ran").exists()
    Path(file).unlink()
    with pytest.raises(FileNotFoundError, match=r"mine\.py"):
        building.build(**found)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("absent", r"mine\.py has no function 'absent'; it has build, number"),
        ("number", r"mine\.py:number returned a int; expected a minorm\.nn\.Module"),
        ("picky", r"mine\.py:picky\(3, 8, 4\) raised TypeError"),
        ("narrow", r"makes \(2, 7\) of two images; expected \(2, 4\), one number a class"),
        ("grey", "does not take images of 2 x 3 x 8 x 8"),
    ],
)
def test_what_is_wrong_with_a_function_is_said(file: str, function: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        building.build(**building.facts(f"{file}:{function}", 3, 8, 4))


def test_what_is_wrong_with_a_file_is_said(file: str) -> None:
    with pytest.raises(FileNotFoundError, match=r"no\.py"):
        building.facts("no.py:build", 3, 8, 4)
    for text, said in (("def build(:", "SyntaxError"), ("import nowhere_at_all", "ModuleNotFoundError")):
        Path(file).write_text(text)
        with pytest.raises(ValueError, match=rf"mine\.py cannot be run: {said}"):
            building.build(**building.facts(f"{file}:build", 3, 8, 4))
