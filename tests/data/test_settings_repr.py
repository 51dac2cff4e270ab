"""The repr of loaders, datasets, samplers and transforms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minorm.data import (
    ArrayDataset,
    BatchSampler,
    Compose,
    ConcatDataset,
    DataLoader,
    Dataset,
    RandomCrop,
    SequentialSampler,
    Subset,
    TensorDataset,
    default_collate,
)
from minorm.data.settings_repr import brief
from minorm.tensor.tensor import Tensor

IMAGES = ArrayDataset(np.zeros((9, 1, 4, 4), np.uint8), np.zeros(9, np.int64), scale=255)


class Mine(Dataset[Any]):
    def __init__(self, folder: str, transform: Any = None, size: int = 3) -> None:
        self.folder, self.transform = folder, transform


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (IMAGES, "ArrayDataset(uint8 (9, 1, 4, 4), int64 (9,), scale=255)"),
        (TensorDataset(Tensor(np.ones((2, 3)))), "TensorDataset(float64 (2, 3))"),
        (Subset([1, 2, 3], [0, 2]), "Subset(dataset=[1, 2, 3], indices=[0, 2])"),
        (ConcatDataset([[1], [2]]), "ConcatDataset(datasets=[[1], [2]])"),
        (Mine("pictures"), "Mine(folder='pictures')"),
        (SequentialSampler(range(3)), "SequentialSampler(data_source=range(0, 3))"),
        (DataLoader([1, 2]), "DataLoader([1, 2], batch_size=1)"),
        (DataLoader([1, 2], 2, True, seed=7), "DataLoader([1, 2], batch_size=2, shuffle=True, seed=7)"),
        (
            DataLoader([1, 2], 2, sampler=[1, 0], drop_last=True, collate_fn=default_collate),
            "DataLoader([1, 2], batch_size=2, sampler=[1, 0], drop_last=True, collate_fn=default_collate)",
        ),
        (
            DataLoader([1, 2], batch_sampler=BatchSampler([0, 1], 2), shard=(0, 2)),
            (
                "DataLoader(\n    [1, 2],\n"
                "    batch_sampler=BatchSampler(sampler=[0, 1], batch_size=2, drop_last=False),\n"
                "    shard=(0, 2),\n)"
            ),
        ),
        (
            DataLoader(IMAGES, 2, transform=Compose([RandomCrop(4)]), seed=1),
            (
                "DataLoader(\n    ArrayDataset(uint8 (9, 1, 4, 4), int64 (9,), scale=255),\n    batch_size=2,\n"
                "    transform=Compose(\n"
                "        RandomCrop(size=(4, 4), padding=(0, 0), fill=0, padding_mode='constant')\n"
                "    ),\n    seed=1,\n)"
            ),
        ),
    ],
)
def test_what_is_shown(value: Any, expected: str) -> None:
    assert repr(value) == expected


def test_long_values_are_named() -> None:
    assert brief(list(range(1000))) == "<list of 1000>"
    assert brief(object()) == "<object>"
    assert brief(np.zeros((3, 4))) == "float64 (3, 4)"
    assert brief(np.array([1, 2])) == "[1, 2]"
