"""A checkpoint's model is one of ours, or built by code that the user names; a checkpoint alone never runs code."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import minorm as mn
from minorm import models, nn
from minorm.training import UntrustedCode
from minorm.training.model import model_building
from minorm.training.model.own_code import Code

MODEL = """
open({mark!r}, "w").close()
from minorm import nn
def build(channels, size, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * size**2, classes))
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A model's file that leaves a mark where it runs."""
    (tmp_path / "mine.py").write_text(MODEL.format(mark=str(tmp_path / "ran")))
    return str(tmp_path / "mine.py")


@pytest.fixture
def weights(tmp_path: Path) -> str:
    """A file of 4,000 bytes and a little more."""
    mn.save({"w": mn.zeros(1000)}, tmp_path / "weights.safetensors")
    return str(tmp_path / "weights.safetensors")


def test_a_name_is_one_of_ours() -> None:
    found = model_building.facts("lenet", 1, 28, 10)
    assert found == {"name": "lenet", "channels": 1, "size": 28, "classes": 10}
    assert model_building.build(**found).state_dict().keys() == models.lenet().state_dict().keys()


def test_facts_alone_run_nothing(file: str, tmp_path: Path) -> None:
    found = model_building.facts(f"{file}:build", 3, 8, 4)
    assert found["name"] == "mine.py:build", "no folder of this machine"
    with pytest.raises(ValueError, match=r"the model 'mine\.py:build' is code .* pass code=Code\.read"):
        model_building.build(**found)
    assert not (tmp_path / "ran").exists()
    assert isinstance(model_building.build(**found, code=Code.read(f"{file}:build")), nn.Module)
    assert (tmp_path / "ran").exists()


def test_the_copy_beside_the_checkpoint_needs_trust(file: str, weights: str, tmp_path: Path) -> None:
    found = model_building.facts(f"{file}:build", 3, 8, 4)
    with pytest.raises(UntrustedCode, match=r"'build' in '.*mine\.py', SHA-256 .*trust=True, or model='FILE.py:build'"):
        model_building.trusted(found, weights)
    code = model_building.trusted(found, weights, trust=True)
    assert code == Code.read(f"{file}:build", copied=True)
    assert model_building.trusted(model_building.facts("lenet", 1, 28, 10), weights) is None
    assert not (tmp_path / "ran").exists()


def test_what_is_no_copy_is_not_trusted(file: str, weights: str, tmp_path: Path) -> None:
    found, folder = model_building.facts(f"{file}:build", 3, 8, 4), tmp_path / "stranger"
    (folder / "sub").mkdir(parents=True)
    shutil.copy(weights, folder)
    shutil.copy(file, folder / "sub")
    (folder / "link.py").symlink_to(file)
    (folder / "changed.py").write_text("# another file")
    there = str(folder / "weights.safetensors")
    for name in (
        file,
        "../mine.py",
        "sub/mine.py",
        "link.py",
        "changed.py",
        "absent.py",
        "\0.py",
        ".py",
        "sub\\mine.py",
    ):
        with pytest.raises(UntrustedCode, match="code that is not in the same folder; nothing was run"):
            model_building.trusted({**found, "name": f"{name}:build"}, there, trust=True)
    assert model_building.trusted({**found, "name": "absent.py:build"}, there, f"{file}:build") == Code.read(
        f"{file}:build"
    )
    assert not (tmp_path / "ran").exists()


HEX = "0" * 64


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"name": "vgg"}, "its model is 'vgg'; expected one of digits"),
        ({"name": ["digits"]}, r"its model is \['digits'\]"),
        ({"name": "a.py:b", "sha256": None}, "the SHA-256 of its model's file is None"),
        ({"name": "a.py:b", "sha256": HEX[1:]}, "expected 64 hexadecimal digits"),
        ({"name": "a.py:b c", "sha256": HEX}, "with the name of a function"),
        ({"name": "a.py:b", "sha256": HEX, "size": 8192, "channels": 4}, "expected at most 201,326,592 numbers"),
        ({"size": 8193}, "size of its model is 8193; expected a whole number from 1 to 8192"),
        ({"size": 10**9}, "size of its model is 1000000000; expected a whole number from 1 to 8192"),
        ({"size": True}, "size of its model is True"),
        ({"classes": 10**9}, "classes of its model is 1000000000"),
        ({"classes": "2"}, "classes of its model is '2'"),
        ({"channels": 10**30}, "channels of its model is 10+;"),
        ({"channels": ["touch", "PWNED"]}, r"channels of its model is \['touch', 'PWNED'\]"),
        (
            {"name": "resnet20"},
            r"resnet20 with channels=1, size=8 and classes=2, of 271,666 parameters; a file of 4,072",
        ),
        ({"name": "digits", "size": 8192}, "of 536,.* parameters"),
        ({"name": "norms", "size": 8192}, "of 536,.* parameters"),
        ({"name": "lenet", "size": 4}, "lenet needs images of at least 12 x 12"),
        ({"more": 1}, "the facts of its model are .*'more'.*; expected name, channels, size, classes"),
    ],
)
def test_facts_that_no_file_of_this_size_can_have(weights: str, changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        model_building.checked({"name": "digits", "channels": 1, "size": 8, "classes": 2, **changed}, weights)
    for nothing in (None, [], {}, "digits"):
        with pytest.raises(ValueError, match="the facts of its model are"):
            model_building.checked(nothing, weights)
