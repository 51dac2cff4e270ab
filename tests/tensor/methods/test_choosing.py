"""unfold and tensor_split; PyTorch's samples are in tests/pytorch."""

from __future__ import annotations

import numpy as np
import pytest

import minorm as mn


def test_windows_of_an_image_are_its_patches(rng: np.random.Generator) -> None:
    image = rng.normal(size=(2, 3, 7, 6))
    patches = mn.tensor(image).unfold(2, 3, 2).unfold(3, 2, 2).numpy()
    assert patches.shape == (2, 3, 3, 3, 3, 2)
    for i, j in np.ndindex(3, 3):
        np.testing.assert_array_equal(patches[:, :, i, j], image[:, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 2])


def test_the_gradient_counts_the_windows_that_reach_a_place() -> None:
    x = mn.zeros(6, dtype=mn.float16, requires_grad=True)
    x.unfold(0, 3, 1).sum().backward()
    assert x.grad is not None
    assert (x.grad.dtype, x.grad.tolist()) == (mn.float16, [1.0, 2.0, 3.0, 3.0, 2.0, 1.0])


@pytest.mark.parametrize(("size", "step"), [(4, 1), (-1, 1), (2, 0), (2, -1)])
def test_windows_that_do_not_fit(size: int, step: int) -> None:
    with pytest.raises(
        ValueError, match=rf"unfold: size={size}, step={step}; expected a size from 0 to 3, .* x.shape is \(2, 3\)"
    ):
        mn.zeros(2, 3).unfold(1, size, step)


def test_pieces_are_views() -> None:
    x = mn.zeros(5)
    first, second = x.tensor_split(2)
    first.add_(1)
    second[0] = 7
    assert x.tolist() == [1.0, 1.0, 1.0, 7.0, 0.0]


def test_pieces_that_are_not_said() -> None:
    x = mn.zeros(5)
    with pytest.raises(ValueError, match=r"tensor_split: sections is 0; expected at least 1; x.shape is \(5,\)"):
        x.tensor_split(0)
    with pytest.raises(
        TypeError, match="0 of indices_or_sections, indices and sections are given; expected exactly one"
    ):
        x.tensor_split()
    with pytest.raises(TypeError, match="holds something that is not an integer"):
        x.tensor_split((0.5, 2))
    with pytest.raises(IndexError, match="tensor_split: dim=1 is out of range"):
        x.tensor_split(2, dim=1)
