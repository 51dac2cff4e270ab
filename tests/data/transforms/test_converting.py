"""From pictures to Tensors, and from one type to another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm.data.transforms import ToDtype, ToImage, ToTensor

PICTURE = np.random.default_rng(0).integers(0, 256, (5, 4, 3), dtype=np.uint8)


def test_a_picture_becomes_a_tensor() -> None:
    found = ToTensor()(PICTURE)
    assert isinstance(found, mn.Tensor)
    assert found.dtype == mn.float32
    assert np.array_equal(found.numpy(), PICTURE.transpose(2, 0, 1) / np.float32(255))
    assert ToTensor()(PICTURE[..., 0]).shape == (1, 5, 4)
    assert np.array_equal(ToImage()(PICTURE).numpy(), PICTURE.transpose(2, 0, 1))
    floats = PICTURE / 7.0
    assert np.array_equal(ToTensor()(floats).numpy(), floats.transpose(2, 0, 1))


def test_a_batch_stays_one() -> None:
    batch = PICTURE.transpose(2, 0, 1)[None]
    found = ToTensor()(batch, np.random.default_rng(0))
    assert isinstance(found, np.ndarray)
    assert np.array_equal(found, batch / np.float32(255))
    assert ToImage()(batch) is batch


def test_a_picture_of_another_library() -> None:
    class Picture:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return PICTURE

    assert ToTensor()(Picture()).shape == (3, 5, 4)
    with pytest.raises(ValueError, match=r"ToImage: the picture has shape \(4,\); expected \(H, W\) or \(H, W, C\)"):
        ToImage()(np.zeros(4))


@pytest.mark.parametrize(
    ("given", "to", "expected"),
    [
        (np.array([0, 51, 255], np.uint8), np.float32, np.array([0, 0.2, 1], np.float32)),
        (np.array([0.0, 0.5, 1.0]), np.uint8, np.array([0, 127, 255], np.uint8)),
        (np.array([0, 3, 255], np.uint8), np.int32, np.array([0, 3 << 23, 255 << 23], np.int32)),
        (np.array([0, 1 << 30], np.int32), np.uint8, np.array([0, 128], np.uint8)),
        (np.array([0.1, 0.9]), np.float32, np.array([0.1, 0.9], np.float32)),
    ],
)
def test_types_are_filled(given: Any, to: Any, expected: Any) -> None:
    found = ToDtype(to, scale=True)(given)
    assert found.dtype == expected.dtype
    assert np.array_equal(found, expected)
    assert np.array_equal(ToDtype(to)(given), given.astype(to))
    assert ToDtype(to)(mn.tensor(given)).dtype == to
