"""scatter and scatter_nd against a loop over positions, PyTorch's gradients, and finite differences."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm.functional import scatter as F
from minorm.testing import gradcheck

COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "none": lambda a, b: b,
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "min": min,
    "max": max,
}


def by_loop(x: Any, dim: int, index: Any, src: Any, reduction: str) -> Any:
    y = x.copy()
    for at in np.ndindex(index.shape):
        where = list(at)
        where[dim] = index[at]
        y[tuple(where)] = COMBINE[reduction](y[tuple(where)], src[at])
    return y


def by_loop_nd(x: Any, index: Any, src: Any, reduction: str) -> Any:
    y = x.copy()
    for at in np.ndindex(index.shape[:-1]):
        here = y[tuple(index[at])]
        if reduction == "none":
            y[tuple(index[at])] = src[at]
        else:
            y[tuple(index[at])] = np.vectorize(COMBINE[reduction], otypes=[x.dtype])(here, src[at])
    return y


@pytest.mark.parametrize("reduction", COMBINE)
@pytest.mark.parametrize(
    ("shape", "indices", "dim"), [((5,), (4,), 0), ((3, 6, 2), (2, 4, 2), 1), ((2, 7), (2, 3), -1)]
)
def test_scatter(rng: np.random.Generator, reduction: str, shape: Any, indices: Any, dim: int) -> None:
    x, src = rng.normal(size=shape), rng.normal(size=indices)
    n = shape[dim]
    index = rng.integers(-n, n, indices)
    if reduction == "none":  # no place twice
        index = (
            np.argsort(rng.normal(size=shape), axis=dim)[tuple(map(slice, indices))] - rng.integers(0, 2, indices) * n
        )
    y = F.scatter(mn.tensor(x), dim, mn.tensor(index), mn.tensor(src), reduction)
    np.testing.assert_allclose(y.array, by_loop(x, dim, index, src, reduction), rtol=1e-14)
    gradcheck(lambda x, src: F.scatter(x, dim, mn.tensor(index), src, reduction), x, src)


@pytest.mark.parametrize("reduction", COMBINE)
@pytest.mark.parametrize(
    ("shape", "indices"), [((5,), (4, 1)), ((3, 4, 2), (2, 3, 2)), ((3, 4, 2), (5, 1)), ((3, 2), (4, 2))]
)
def test_scatter_nd(rng: np.random.Generator, reduction: str, shape: Any, indices: Any) -> None:
    x, count = rng.normal(size=shape), indices[-1]
    src = rng.normal(size=(*indices[:-1], *shape[count:]))
    index = np.stack([rng.integers(-n, n, indices[:-1]) for n in shape[:count]], -1)
    if reduction == "none":
        places = rng.permutation(np.prod(shape[:count]))[: np.prod(indices[:-1])].reshape(-1)
        if len(places) < np.prod(indices[:-1]):
            return  # more updates than places
        index = np.stack(np.unravel_index(places, shape[:count]), -1).reshape(indices)
    y = F.scatter_nd(mn.tensor(x), mn.tensor(index), mn.tensor(src), reduction)
    np.testing.assert_allclose(y.array, by_loop_nd(x, index, src, reduction), rtol=1e-14)
    gradcheck(lambda x, src: F.scatter_nd(x, mn.tensor(index), src, reduction), x, src)


@pytest.mark.parametrize(("reduction", "theirs"), [("mul", "prod"), ("min", "amin"), ("max", "amax"), ("add", "sum")])
def test_ties_and_zeros_as_pytorch(rng: np.random.Generator, reduction: str, theirs: str) -> None:
    """Small whole numbers: several are the largest, several factors are 0."""
    torch = pytest.importorskip("torch")
    x, src = rng.integers(-1, 2, (4, 5)).astype(np.float64), rng.integers(-1, 2, (9, 5)).astype(np.float64)
    index, weights = rng.integers(0, 4, (9, 5)), rng.normal(size=(4, 5))
    tx, ts = torch.tensor(x, requires_grad=True), torch.tensor(src, requires_grad=True)
    want = torch.scatter_reduce(tx, 0, torch.tensor(index), ts, theirs)
    (want * torch.tensor(weights)).sum().backward()
    ours = mn.Tensor(x, True), mn.Tensor(src, True)
    y = F.scatter(ours[0], 0, mn.tensor(index), ours[1], reduction)
    (y * mn.tensor(weights)).sum().backward()
    np.testing.assert_array_equal(y.array, want.detach().numpy())
    for a, b in zip(ours, (tx, ts), strict=True):
        np.testing.assert_allclose(a.grad.array, b.grad.numpy(), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("reduction", COMBINE)
@pytest.mark.parametrize("dtype", [mn.int32, mn.uint8, mn.float16, mn.bfloat16], ids=str)
def test_types(reduction: str, dtype: Any) -> None:
    x, src = (np.arange(1, n + 1).astype(dtype) for n in (3, 2))
    y = F.scatter(mn.tensor(x), 0, mn.tensor([2, 0]), mn.tensor(src), reduction)
    assert y.dtype == dtype
    want = by_loop(x.astype(np.float64), 0, np.array([2, 0]), src.astype(np.float64), reduction)
    np.testing.assert_array_equal(y.array.astype(np.float64), want)


def test_16_bit_floats_are_added_up_in_float32() -> None:
    src = mn.tensor(np.full(4096, 1, np.float16))
    y = F.scatter(mn.tensor(np.zeros(1, np.float16)), 0, mn.tensor(np.zeros(4096, np.int64)), src, "add")
    assert y.item() == 4096  # adding one by one in float16 stops at 2048


def test_no_updates() -> None:
    x = mn.Tensor(np.ones((2, 3)), True)
    y = F.scatter_nd(x, mn.tensor(np.zeros((0, 1), np.int64)), mn.tensor(np.zeros((0, 3))), "max")
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.array, np.ones((2, 3)))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x, i, s: F.scatter(x, 0, i, s, "sum"), ValueError, "scatter: reduction is 'sum'; expected one"),
        (lambda x, i, s: F.scatter(x, 0, i.float(), s), TypeError, "scatter: index is float32; expected integers"),
        (lambda x, i, s: F.scatter(x, 0, i, s.float()), TypeError, "scatter: x is float64, src is float32; expected"),
        (lambda x, i, s: F.scatter(x, 0, i, s[:1]), ValueError, "scatter: index has shape (2, 3), src (1, 3);"),
        (lambda x, i, s: F.scatter(x[:, :2], 0, i, s), ValueError, "scatter: index has shape (2, 3), x (4, 2);"),
        (lambda x, i, s: F.scatter(x, 0, i + 3, s), ValueError, "scatter: index holds 4; expected -4 to 3"),
        (lambda x, i, s: F.scatter(x, 5, i, s), IndexError, "scatter: dim=5 is out of range for shape (4, 3)"),
        (F.scatter_nd, ValueError, "scatter_nd: index has shape (2, 3); expected 1 to 2 coordinates in its last axis"),
        (lambda x, i, s: F.scatter_nd(x, i[:, :1], s[:1]), ValueError, "scatter_nd: src has shape (1, 3);"),
        (lambda x, i, s: F.scatter_nd(x, i[:, :1] - 9, s), ValueError, "scatter_nd: index holds -9; expected -4 to 3"),
    ],
)  # fmt: skip
def test_mistakes(call: Any, error: Any, message: str) -> None:
    x, src = mn.tensor(np.zeros((4, 3))), mn.tensor(np.ones((2, 3)))
    index = mn.tensor(np.array([[0, 1, 1], [1, 0, 0]]))
    with pytest.raises(error, match=re.escape(message)):
        call(x, index, src)
