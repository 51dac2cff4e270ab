"""The benchmark of recipes: its sets are folders of pictures, the same each time, and its recipes are settings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("PIL")

from benchmarks.recipes.__main__ import RECIPES
from benchmarks.recipes.network import build
from benchmarks.recipes.sets import SETS, write
from minorm.data import load_folder
from minorm.tensor.creation import zeros
from minorm.training import Settings


def test_a_set_is_a_folder_of_pictures_and_the_same_each_time(tmp_path: Path) -> None:
    name = "4 patterns, 40 images"
    for copy in ("a", "b"):
        write(name, tmp_path / copy)
    train, val = load_folder(str(tmp_path / "a"), 32)
    assert train.dataset.classes == ["bars", "checks", "rings", "rows"]
    assert np.bincount(train.dataset.labels).tolist() == [10] * 4
    assert np.bincount(val.dataset.labels).tolist() == [50] * 4
    files = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*.png"))
    assert all((tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes() for file in files)


def test_recipes_are_settings() -> None:
    assert len(SETS) == 5
    for given in RECIPES.values():
        Settings(data="folder", **given)
    assert build(3, 32, 5)(zeros(2, 3, 32, 32)).shape == (2, 5)
