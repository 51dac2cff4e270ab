"""Reading by position: NumPy's results, gradients that land where they were read."""

from __future__ import annotations

import numpy as np
import pytest

import minorm as mn
from minorm.testing import gradcheck

INDICES = {
    "int": 1,
    "negative": -1,
    "slice": slice(1, None),
    "reversed": slice(None, None, -1),
    "strided": (slice(None), slice(0, 4, 2)),
    "ellipsis": (..., 0),
    "newaxis": (None, slice(None), 1),
    "list": [0, 0, 2],
    "pairs": ([0, 1, 1], [3, 2, 2]),
    "mask": np.array([True, False, True]),
    "mixed": (slice(None), [0, 0, 3]),
}


@pytest.mark.parametrize("name", INDICES)
def test_values_and_gradients(name, rng) -> None:
    index, x = INDICES[name], rng.standard_normal((3, 4))
    np.testing.assert_array_equal(mn.tensor(x)[index].array, x[index])
    gradcheck(lambda t: t[index], x)


def test_tensors_index_too(rng) -> None:
    x = mn.tensor(rng.standard_normal((3, 4)))
    np.testing.assert_array_equal(x[mn.tensor([2, 0])].array, x.array[[2, 0]])
    np.testing.assert_array_equal(x[x > 0].array, x.array[x.array > 0])


def test_a_position_read_twice_gets_both_gradients() -> None:
    x = mn.tensor([1.0, 2.0], requires_grad=True)
    x[[0, 0, 1]].sum().backward()
    assert x.grad.tolist() == [2, 1]


def test_out_of_range_names_the_shape() -> None:
    with pytest.raises(IndexError, match=r"index: .* x.shape is \(2, 3\)"):
        mn.zeros(2, 3)[5]


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather_is_torchs(axis, rng) -> None:
    torch = pytest.importorskip("torch")
    x, index = rng.standard_normal((3, 4)), rng.integers(0, 3, (2, 3))
    np.testing.assert_array_equal(
        mn.tensor(x).gather(axis, index).array, torch.tensor(x).gather(axis, torch.tensor(index)).numpy()
    )
    gradcheck(lambda t: t.gather(axis, index), x)


def test_gather_wants_integers_of_the_same_rank() -> None:
    with pytest.raises(ValueError, match=r"gather: index is float32 of shape \(2, 2\)"):
        mn.zeros(2, 2).gather(0, mn.zeros(2, 2))
    with pytest.raises(ValueError, match=r"gather: index is int64 of shape \(2,\); expected integers with the 2 axes"):
        mn.zeros(2, 2).gather(0, [0, 1])


@pytest.mark.parametrize("step", [0, 1, -1, 3, 5, -7, 12])
@pytest.mark.parametrize("shape", [(5, 2), (1, 2), (0, 2), (2, 5)])
def test_rolled_is_what_numpy_rolls_and_a_tensor_apart(step: int, shape: tuple[int, int]) -> None:
    x = mn.tensor(np.arange(float(np.prod(shape))).reshape(shape))
    y = x.roll(step, 0)
    np.testing.assert_array_equal(y.array, np.roll(x.array, step, 0))
    assert not np.shares_memory(x.array, y.array)
