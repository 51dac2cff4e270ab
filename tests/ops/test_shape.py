"""Moving elements: values against NumPy, gradients against finite differences."""

from __future__ import annotations

import numpy as np
import pytest

import minorm as mn
from minorm.ops import shape
from minorm.testing import gradcheck

MOVES = {
    "reshape": (lambda x: x.reshape(4, -1), lambda x: x.reshape(4, -1)),
    "view": (lambda x: x.view((24,)), np.ravel),
    "flatten": (lambda x: x.flatten(1), lambda x: x.reshape(2, 12)),
    "permute": (lambda x: x.permute(2, 0, 1), lambda x: x.transpose(2, 0, 1)),
    "permute_tuple": (lambda x: x.permute((-1, 0, 1)), lambda x: x.transpose(2, 0, 1)),
    "transpose": (lambda x: x.transpose(0, -1), lambda x: x.swapaxes(0, 2)),
    "T": (lambda x: x.T, np.transpose),
    "mT": (lambda x: x.mT, lambda x: x.swapaxes(1, 2)),
    "unsqueeze": (lambda x: x.unsqueeze(-2), lambda x: x[:, :, None, :]),
    "squeeze": (lambda x: x.unsqueeze(0).squeeze(), lambda x: x),
    "expand": (lambda x: x[:, :1].expand(2, 5, -1), lambda x: np.broadcast_to(x[:, :1], (2, 5, 4))),
    "expand_lead": (lambda x: x.expand(3, 2, 3, 4), lambda x: np.broadcast_to(x, (3, 2, 3, 4))),
    "repeat": (lambda x: x.repeat(2, 1, 1, 3), lambda x: np.tile(x, (2, 1, 1, 3))),
    "flip": (lambda x: x.flip(0, 2), lambda x: x[::-1, :, ::-1]),
    "pad": (lambda x: mn.pad(x, (1, 2, 0, 1), 7.0), lambda x: np.pad(x, ((0, 0), (0, 1), (1, 2)), constant_values=7)),
    "crop": (lambda x: mn.pad(x, (-1, 1)), lambda x: np.pad(x[:, :, 1:], ((0, 0), (0, 0), (0, 1)))),
    "cat": (lambda x: mn.cat([x, x[:1], x], 0), lambda x: np.concatenate([x, x[:1], x])),
    "stack": (lambda x: mn.stack([x, x], -1), lambda x: np.stack([x, x], -1)),
    "split": (lambda x: x.split(3, 2)[1], lambda x: x[:, :, 3:]),
    "split_sizes": (lambda x: x.split([1, 2], 1)[1], lambda x: x[:, 1:]),
    "chunk": (lambda x: x.chunk(2, -1)[0], lambda x: x[:, :, :2]),
    "unbind": (lambda x: x.unbind(1)[2], lambda x: x[:, 2]),
}


@pytest.mark.parametrize("name", MOVES)
def test_values_and_gradients(name, rng) -> None:
    ours, theirs = MOVES[name]
    x = rng.standard_normal((2, 3, 4))
    np.testing.assert_array_equal(ours(mn.tensor(x)).array, theirs(x))
    gradcheck(ours, x)


def test_errors_name_operation_and_shape() -> None:
    x = mn.zeros(2, 3)
    for call, message in [
        (lambda: x.reshape(4), r"reshape: shape \(4,\) does not hold the 6 elements of \(2, 3\)"),
        (lambda: x.reshape(-1, -1), "reshape: shape"),
        (lambda: x.permute(0, 0), r"permute: order \(0, 0\) is no permutation of the 2 axes"),
        (lambda: x.expand(4, 3), r"expand: shape \(2, 3\) cannot be expanded to \(4, 3\)"),
        (lambda: x.split(2, 1)[5], "tuple index"),
        (lambda: x.split([1, 1], 1), r"split: sizes \[1, 1\] sum to 2; axis 1 of \(2, 3\) has length 3"),
        (lambda: x.split(0), "split: split_size=0; expected at least 1"),
        (lambda: x.unsqueeze(4), r"unsqueeze: dim=4 is out of range for shape \(2, 3\)"),
        (lambda: x.flatten(1, 0), "flatten: start_dim=1 lies after end_dim=0"),
        (lambda: mn.cat([x, mn.zeros(2, 3, 1)]), r"cat: tensor 1 is \(2, 3, 1\), tensor 0 is \(2, 3\)"),
        (lambda: mn.cat([]), "cat: no tensors"),
        (lambda: mn.stack([x, mn.zeros(3, 2)]), r"stack: tensor 1 is \(3, 2\)"),
        (lambda: mn.pad(x, (1,)), "pad: pad=\\(1,\\) has 1 numbers"),
        (lambda: mn.pad(x, (-2, -2)), r"pad: \(-2, -2\) cuts more than the 3 elements"),
        (lambda: x.repeat(2), "repeat: 1 counts for shape"),
    ]:
        with pytest.raises((ValueError, IndexError), match=message):
            call()


def test_zero_sized_tensors_pass_through() -> None:
    x = mn.zeros(0, 3, requires_grad=True)
    mn.cat([x.reshape(3, 0).T, mn.ones(2, 3)]).sum().backward()
    assert x.grad.shape == (0, 3)


def test_unbind_of_an_operator_makes_one_gradient_of_those_of_its_slices(rng) -> None:
    x = rng.standard_normal((2, 3, 4))
    for axis in range(3):
        slices = shape.Unbind.apply(mn.tensor(x), axis=axis)
        for i, part in enumerate(slices):
            np.testing.assert_array_equal(part.array, x.take(i, axis))
            assert not np.shares_memory(part.array, x)

        def product(x, axis=axis):
            first, *_, last = shape.Unbind.apply(x, axis=axis)
            return first * last

        gradcheck(product, x)
    numbers = shape.Unbind.apply(mn.tensor([1.0, 2.0]), axis=0)
    assert [(type(y.array), y.shape, y.item()) for y in numbers] == [(np.ndarray, (), 1), (np.ndarray, (), 2)]
    gradcheck(lambda x: shape.Unbind.apply(x, axis=0)[1], rng.standard_normal(3))


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64", "int64"])
def test_rows_of_few_elements_are_joined(dtype) -> None:
    """As words of 2 to 16 bytes, where all rows are alike; else as NumPy does."""
    for n in (1, 2, 3, 4):
        a, b = (np.arange(i, i + 10 * n).reshape(2, 5, n).astype(dtype) for i in (0, 100))
        for parts in ([a, b], [a, b, a], [a, b[..., :1]], [a, b[..., ::-1]]):
            joined = mn.cat([mn.from_numpy(part.copy("K")) if part.flags.c_contiguous else mn.Tensor(part)
                             for part in parts], -1)  # fmt: skip
            want = np.concatenate(parts, -1)
            assert (joined.shape, joined.dtype) == (want.shape, want.dtype)
            np.testing.assert_array_equal(joined.array, want)
