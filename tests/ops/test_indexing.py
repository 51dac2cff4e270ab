"""Reading by position: NumPy's results, gradients that land where they were read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minorm as mn
from minorm.ops.indexing import own
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
    with pytest.raises(ValueError, match=r"gather: index is int64 of shape \(2,\); expected integers with 2 axes"):
        mn.zeros(2, 2).gather(0, [0, 1])


def test_the_copy_of_an_expanded_index_is_not_laid_out() -> None:
    index = np.broadcast_to(np.arange(3)[:, None], (3, 1000))
    copy = own((index, slice(None), ...))[0]
    np.testing.assert_array_equal(copy, index)
    assert copy.strides[1] == 0
    assert not np.shares_memory(copy, index)
    assert own(np.broadcast_to(np.arange(0), (3, 0))).shape == (3, 0)


@st.composite
def places(draw: st.DrawFn) -> list[Any]:
    """An index of x (3, 4, 2, 5) in parts that both libraries take: integers, slices, None, arrays, masks."""
    lengths, parts = [3, 4, 2, 5], []
    arrays = draw(st.sampled_from([(2,), (3, 1)]))
    kept = False
    for axis, n in enumerate(lengths[: draw(st.integers(1, 4))]):
        kind = draw(st.sampled_from(["int", "slice", "array", "array", "mask", "tensor of one", "list"]))
        if draw(st.integers(0, 5)) == 0:
            parts.append(None)
        if draw(st.integers(0, 7)) == 0 and not kept:
            kept = True
            parts.append(Ellipsis)
            if axis:
                break
        if kind == "int":
            parts.append(draw(st.integers(-n, n - 1)))
        elif kind == "tensor of one":
            parts.append(np.array(draw(st.integers(-n, n - 1))))
        elif kind == "slice":
            parts.append(slice(draw(st.integers(0, 1)), None, draw(st.integers(1, 2))))
        elif kind == "mask":  # as many as the arrays' last axis has, so that the two broadcast
            mask = np.zeros(n, draw(st.sampled_from([bool, np.uint8])))
            mask[draw(st.permutations(range(n)))[: min(n, arrays[-1])]] = 1
            parts.append(mask)
        else:
            found = np.array(draw(st.lists(st.integers(-n, n - 1), min_size=2, max_size=2)))
            parts.append(found.tolist() if kind == "list" else np.resize(found, arrays))
    return parts


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=120, deadline=None)
@given(places())
def test_indices_are_pytorchs(parts: list[Any]) -> None:
    """Also an integer beside an array that stands apart from it: PyTorch takes the integer first, NumPy does not."""
    torch = pytest.importorskip("torch")
    x = np.arange(120, dtype=np.float64).reshape(3, 4, 2, 5)
    theirs = torch.tensor(x, requires_grad=True)
    ours = mn.tensor(x, requires_grad=True)
    indices = [tuple(f(p) if isinstance(p, np.ndarray) else p for p in parts) for f in (torch.tensor, mn.tensor)]
    try:
        expected = theirs[indices[0]]
    except (IndexError, RuntimeError):
        with pytest.raises((IndexError, ValueError)):
            ours[indices[1]]
        return
    found = ours[indices[1]]
    np.testing.assert_array_equal(found.detach().numpy(), expected.detach().numpy())
    (found * found).sum().backward()
    (expected * expected).sum().backward()
    np.testing.assert_array_equal(ours.grad.numpy(), theirs.grad.numpy())
    value = np.arange(found.numel(), dtype=np.float64).reshape(found.shape)
    repeated = any(not isinstance(p, (int, slice, type(None), type(...))) for p in parts)
    value = np.full_like(value, 7.0) if repeated else value  # of positions that repeat no order is promised
    written, theirs = mn.tensor(x), torch.tensor(x)
    written[indices[1]] = mn.tensor(value)
    theirs[indices[0]] = torch.tensor(value)
    np.testing.assert_array_equal(written.numpy(), theirs.numpy())
    recorded = mn.tensor(x, requires_grad=True)
    changed, given_value = recorded * 1, mn.tensor(value, requires_grad=True)
    changed[indices[1]] = given_value
    changed.sum().backward()
    mask = torch.zeros(x.shape)
    mask[indices[0]] = torch.ones(value.shape)
    np.testing.assert_array_equal(recorded.grad.numpy(), 1 - mask.numpy())


def test_a_mask_of_uint8_says_so() -> None:
    x = mn.arange(5)
    with pytest.warns(UserWarning, match="an index of uint8 is a mask, as in PyTorch"):
        found = x[mn.tensor([1, 0, 1, 1, 0], dtype=mn.uint8)]
    assert found.tolist() == [0, 2, 3]
    with pytest.warns(UserWarning, match="an index of uint8"):
        x[mn.tensor([1, 0, 1, 1, 0], dtype=mn.uint8)] = -1
    assert x.tolist() == [-1, 1, -1, -1, 4]


def test_an_integer_is_taken_before_arrays() -> None:
    a = np.arange(24).reshape(2, 3, 4)
    x, i = mn.tensor(a), mn.tensor([0, 2, 1])
    np.testing.assert_array_equal(x[0, :, i].numpy(), a[0][:, [0, 2, 1]])
    x[1, :, i] = mn.tensor(np.arange(9).reshape(3, 3))
    np.testing.assert_array_equal(x[1].numpy()[:, [0, 2, 1]], np.arange(9).reshape(3, 3))
    with pytest.raises(IndexError, match="out of bounds"):
        x[0, :, mn.tensor([7])]


@pytest.mark.parametrize("step", [0, 1, -1, 3, 5, -7, 12])
@pytest.mark.parametrize("shape", [(5, 2), (1, 2), (0, 2), (2, 5)])
def test_rolled_is_what_numpy_rolls_and_a_tensor_apart(step: int, shape: tuple[int, int]) -> None:
    x = mn.tensor(np.arange(float(np.prod(shape))).reshape(shape))
    y = x.roll(step, 0)
    np.testing.assert_array_equal(y.array, np.roll(x.array, step, 0))
    assert not np.shares_memory(x.array, y.array)


@pytest.mark.parametrize("in_graph", [False, True])
def test_of_several_at_one_place_the_last_one_row_by_row_stays(in_graph: bool) -> None:
    """NumPy goes through arrays in the order of their memory, if index and values lie column by column."""
    places, values = np.random.default_rng(0).integers(0, 3, (4, 5)), np.arange(20.0).reshape(4, 5)
    expected = np.zeros(3)
    for place, value in zip(places.ravel(), values.ravel(), strict=True):
        expected[place] = value
    x = mn.zeros(3, dtype=mn.float64, requires_grad=in_graph) * 1
    x[mn.tensor(places.T.copy()).T] = mn.tensor(values.T.copy()).T
    np.testing.assert_array_equal(x.detach().numpy(), expected)
