"""Followed arrays do what NumPy's do, in the same bits, and let no numbers out."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from minorm.labs.beside import Beside
from minorm.labs.calling.student import Failure, Here
from minorm.labs.following.follower import Follower

X = (np.random.default_rng(0).standard_normal((5, 4)) + 2).astype(np.float32)
SAME: dict[str, Callable[[Any], Any]] = {
    "operators": lambda x: (x + 1) * 2 - x / 3 + 1 / x - (-x) ** 2,
    "in place": lambda x: _in_place(x.copy()),
    "reductions": lambda x: (x.sum(0), np.mean(x, axis=1), np.add.reduce(x), x.max(), np.maximum.accumulate(x)),
    "indices": lambda x: (x[0], x[1:3, ::2], x[..., None], x[[0, 2]], x[x > 2], x[2, 3]),
    "loops": lambda x: sum(v * v for row in x for v in row),
    "shapes": lambda x: (x.reshape(2, -1), x.T, x.ravel(), np.moveaxis(x, 0, 1), np.split(x, [2]), np.stack([x, x])),
    "new arrays": lambda x: _into(x, np.zeros(x.shape, x.dtype)),
    "from lists": lambda x: (np.array([x[0], x[1]]), np.asarray(list(x[:, 0]), np.float64)),
    "out": lambda x: np.add(x, 1, out=np.empty(x.shape, x.dtype)),
    "two results": lambda x: np.ldexp(*np.frexp(x)),
    "NumPy's numbers": lambda x: (np.float32(3) * x, x * np.float64(3), np.int64(2) + x, np.arange(4) * x),
    "products": lambda x: (x @ x.T, np.einsum("ij,ij->i", x, x), np.dot(x[0], x[0]), np.linalg.norm(x, axis=0)),
    "bits": lambda x: (x.view(np.uint32) >> 16 & 1, ~(x > 0), x.view(np.int32) ^ 5),
    "types": lambda x: (x.astype(np.float16), x.astype("float64"), x.astype(np.int64)),
    "facts": lambda x: np.array([x.ndim, x.size, len(x), x.itemsize, np.ndim(x), *np.shape(x)]),
    "where": lambda x: (np.where(x > 2, x, 0), np.clip(x, 1, 2)),
}  # fmt: skip


def _in_place(x: Any) -> Any:
    x += 1
    x[0] *= 2
    x[:, 1] -= x[:, 0]
    return x


def _into(x: Any, out: Any) -> Any:
    for i in range(len(x)):
        out[i] = x[i] + 1
    out[...] += 1
    return out


def answer(function: Callable[[Any], Any], x: Any, follow: Follower | None = None) -> Any:
    student = Here(SimpleNamespace(f=function), Beside(""))
    follow = follow or Follower(decisions=100)
    return follow.call(student, "f", follow.array(x, rows=True))


def flat(value: Any) -> list[Any]:
    return [leaf for item in value for leaf in flat(item)] if isinstance(value, (tuple, list)) else [value]


@pytest.mark.parametrize("name", SAME)
def test_the_same_bits_and_types(name: str) -> None:
    for got, expected in zip(flat(answer(SAME[name], X)), flat(SAME[name](X.copy())), strict=True):
        assert np.asarray(got).dtype == np.asarray(expected).dtype
        assert np.array_equal(got, expected)


OUT: dict[str, Callable[[Any], Any]] = {
    "float": lambda x: float(x[0, 0]),
    "np.float64": lambda x: np.float64(x) + 1,
    "tolist": lambda x: [x.tolist()],
    "list in an array": lambda x: np.fromiter((v for v in x[0]), float),
    "memoryview": lambda x: memoryview(x).tobytes(),
    "base": lambda x: x.base,
    "tofile": lambda x: x.tofile("/tmp/x"),
    "ctypes": lambda x: x.ctypes.data,
    "vectorize": lambda x: np.vectorize(abs)(x[0]),
    "apply_along_axis": lambda x: np.apply_along_axis(lambda v: v.var(), 0, x),
    "frompyfunc": lambda x: np.frompyfunc(abs, 1, 1)(x[0]),
    "save": lambda x: np.save("/tmp/x.npy", x),
    "a large result": lambda x: np.zeros((1 << 12, 1 << 12)) + x[0, 0],
    "a large product": lambda x: np.tile(x, 1 << 20),
    "an object": lambda x: x.astype(object),
    "long text": lambda x: x.astype("U100000"),
}


@pytest.mark.parametrize("name", OUT)
def test_numbers_stay_with_the_judge(name: str) -> None:
    with pytest.raises(Failure) as raised:
        answer(OUT[name], X)
    assert raised.value.status == "not tried"


def test_a_few_numbers_may_be_decided_by() -> None:
    def exponents(x: Any) -> Any:
        return [np.ldexp(row, -int(np.frexp(row.max())[1])) for row in x]

    assert len(answer(exponents, X, Follower(plain=5))) == 5
    with pytest.raises(Failure, match=r"int\(\) .* which turns a int32"):
        answer(exponents, X, Follower(plain=4))
    with pytest.raises(Failure, match="`if` or `while` for so many single numbers"):
        answer(lambda x: [1 for v in x.ravel() if v > 0], X, Follower(decisions=3))


def test_numpy_is_itself_again() -> None:
    functions = np.zeros, np.array, np.asarray
    with pytest.raises(Failure):
        answer(lambda x: 1 / 0, X)
    assert functions == (np.zeros, np.array, np.asarray)
