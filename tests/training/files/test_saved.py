"""A damaged checkpoint is told by the part that is wrong, before anything is built from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minorm.checkpoint import load_training, save_training
from minorm.data import ArrayDataset
from minorm.training import Run, Settings
from minorm.training.files import saved
from minorm.training.run import CHECKPOINT

SETS = tuple(ArrayDataset(np.zeros((20, 1, 8, 8), np.float32), np.arange(20) % 10) for _ in range(2))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("run")
    Run(Settings(epochs=1, batch_size=10, ema=0.9), str(out), sets=SETS).fit()
    return load_training(out / CHECKPOINT)


def refused(folder: Path, parts: dict[str, Any]) -> str:
    """Return the message of a failed resume; it must name the file."""
    save_training(folder / CHECKPOINT, **parts)
    with pytest.raises(ValueError) as caught:
        Run.resume(str(folder), sets=SETS)
    assert str(folder / CHECKPOINT) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("part", saved.RUN)
def test_a_part_that_is_not_there(whole: dict[str, Any], tmp_path: Path, part: str) -> None:
    assert "was not written by a Run; it holds" in refused(tmp_path, {k: v for k, v in whole.items() if k != part})


@pytest.mark.parametrize("part", ["scheduler", "average"])
def test_a_part_that_the_settings_ask_for(whole: dict[str, Any], tmp_path: Path, part: str) -> None:
    said = refused(tmp_path, {k: v for k, v in whole.items() if k != part})
    assert f"has no part {part}, which its settings need" in said


@pytest.mark.parametrize("part", [*saved.RUN, "scheduler", "average", "preprocessing", "images"])
@pytest.mark.parametrize("value", [None, 7.5, "text", [1], {"a": 1}, np.zeros(2)], ids=repr)
def test_a_part_of_another_type(whole: dict[str, Any], tmp_path: Path, part: str, value: Any) -> None:
    said = refused(tmp_path, {**whole, part: value})
    words = {"model_facts": "the facts of its model"}.get(part, part)
    assert words in said or (part == "settings" and "it has a setting 'a'" in said), said


@pytest.mark.parametrize(
    ("part", "changed", "said"),
    [
        ("settings", {"epochs": "3"}, "its setting epochs is '3'; expected a whole number"),
        ("settings", {"lr": None}, "its setting lr is None; expected a number"),
        ("settings", {"model": 3}, "its setting model is 3; expected a text"),
        ("settings", {"model": "mine.py:build"}, "its setting model is 'mine.py:build'; expected 'digits'"),
        ("settings", {"model": "lenet"}, "its setting model is 'lenet'; expected 'digits', as in its model_facts"),
        ("settings", {"image_size": 8193}, "its setting image_size is 8193; expected at most 8192"),
        ("settings", {"momentum": 0.9}, "it has a setting 'momentum'; expected data, model"),
        ("preprocessing", {"classes": ["a"]}, "classes of its preprocessing is ['a']; expected 10 names"),
        ("preprocessing", {"mean": [1]}, "mean of its preprocessing is [1]; expected 1 floats"),
        ("preprocessing", {"size": np.ones((2, 2))}, "size of its preprocessing is array("),
        ("preprocessing", {"std": [0.0]}, "its preprocessing: "),
        ("images", {"train": {"number": -1}}, "its entry 'images' is"),
    ],
)
def test_a_value_in_a_part(whole: dict[str, Any], tmp_path: Path, part: str, changed: Any, said: str) -> None:
    assert said in refused(tmp_path, {**whole, part: {**whole[part], **changed}})


@pytest.mark.parametrize(
    ("epoch", "change", "said"),
    [
        (-1, {}, "its epoch is -1; expected a whole number of at least 0"),
        (True, {}, "its epoch is True"),
        (2, {}, "its history has 1 rows; expected 2, one for each finished epoch"),
        (1, {"epoch": 2}, "row 1 of its history is"),
        (1, {"epoch": np.ones((2, 2))}, "row 1 of its history is"),
        (1, {"val_loss": None}, "val_loss of row 1 of its history is None; expected a number"),
        (1, {"val_loss": float("nan")}, "val_loss of row 1 of its history is nan"),
    ],
)
def test_a_history_that_cannot_be(whole: dict[str, Any], tmp_path: Path, epoch: Any, change: Any, said: str) -> None:
    history = [{**whole["history"][0], **change}]
    assert said in refused(tmp_path, {**whole, "epoch": epoch, "history": history})


def test_errors_of_an_object_name_file_and_part() -> None:
    def take() -> None:
        raise KeyError("exp_avg")

    with pytest.raises(ValueError, match=r"run\.safetensors: the part 'optimizer' does not fit: KeyError: 'exp_avg'"):
        saved.restore_part("run.safetensors", "optimizer", take)
