"""scatter_reduce, index_put and masked_scatter; PyTorch's samples are in tests/pytorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm.testing import gradcheck, gradgradcheck

REDUCES = ("sum", "prod", "mean", "amax", "amin")


def by_loops(x: Any, index: Any, src: Any, reduce: str, include_self: bool) -> Any:
    """The definition, along the last axis of matrices."""
    y = x.copy()
    for i, j in np.ndindex(x.shape):
        come = [src[i, k] for k in range(index.shape[1]) if index[i, k] == j]
        if come:
            all_ = [*([x[i, j]] if include_self else []), *come]
            y[i, j] = {"sum": sum, "prod": np.prod, "mean": np.mean, "amax": max, "amin": min}[reduce](all_)
    return y


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", REDUCES)
def test_scatter_reduce_is_its_definition(reduce: str, include_self: bool, rng: np.random.Generator) -> None:
    x, src, index = rng.normal(size=(2, 3)), rng.normal(size=(2, 4)), rng.integers(0, 3, (2, 4))
    expected = by_loops(x, index, src, reduce, include_self)

    def combined(x: Any, src: Any) -> Any:
        return x.scatter_reduce(1, mn.tensor(index), src, reduce, include_self=include_self)

    np.testing.assert_allclose(combined(mn.tensor(x), mn.tensor(src)).numpy(), expected, rtol=1e-12)
    changed = mn.tensor(x)
    assert changed.scatter_reduce_(1, mn.tensor(index), mn.tensor(src), reduce, include_self=include_self) is changed
    np.testing.assert_allclose(changed.numpy(), expected, rtol=1e-12)
    assert gradcheck(combined, x, src) < 1e-6
    assert gradgradcheck(combined, x, src) < 1e-6


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_means_of_many_16_bit_numbers(dtype: str) -> None:
    """bfloat16 counts to 256, and float16 adds up to 65504."""
    kind = getattr(mn, dtype)
    many = mn.full((3000,), 40.0, dtype=kind)
    y = mn.zeros(1, dtype=kind).scatter_reduce(0, mn.zeros(3000).long(), many, "mean", include_self=False)
    assert (y.dtype, y.tolist()) == (kind, [40.0])


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool"])
def test_scatter_reduce_of_integers_and_bools(dtype: str) -> None:
    kind = getattr(mn, dtype)
    x, src, index = mn.tensor([1, 0, 1]).to(kind), mn.tensor([1, 1, 0, 0]).to(kind), mn.tensor([0, 0, 1, 1])
    expected = {"sum": [3, 0, 1], "prod": [1, 0, 1], "amax": [1, 0, 1], "amin": [1, 0, 1], "mean": [1, 0, 1]}
    for reduce in REDUCES:
        if dtype == "bool" and reduce == "mean":
            with pytest.raises(TypeError, match="scatter_reduce: x is bool, src is bool; expected one type of numbers"):
                x.scatter_reduce(0, index, src, reduce)
            continue
        y = x.scatter_reduce(0, index, src, reduce)
        assert y.dtype == kind
        assert y.long().tolist() == [min(n, 1) if dtype == "bool" else n for n in expected[reduce]]
    assert mn.tensor([7, 7]).scatter_reduce(0, mn.tensor([0, 0]), mn.tensor([-3, -4]), "mean").tolist() == [0, 7]


def test_scatter_reduce_refuses() -> None:
    x, index = mn.zeros(3), mn.tensor([0, 3])
    with pytest.raises(
        ValueError, match="scatter_reduce: reduce is 'max'; expected one of sum, mean, prod, amax, amin"
    ):
        x.scatter_reduce(0, index, mn.ones(2), "max")
    with pytest.raises(ValueError, match=r"scatter_reduce: index holds 3; expected -3 to 2; x has shape \(3,\)"):
        x.scatter_reduce_(0, index, mn.ones(2), "sum")
    with pytest.raises(
        ValueError, match=r"scatter_reduce: index has shape \(2, 1\), x \(3,\); expected as many axes as x"
    ):
        x.scatter_reduce(0, index.reshape(2, 1), mn.ones(2, 1), "amin", include_self=False)
    with pytest.raises(TypeError, match="scatter_reduce: x is float32, src is float64; expected one type"):
        x.scatter_reduce(0, index, mn.ones(2).double(), "sum")
    assert not x.any()


INDICES: dict[str, tuple[Any, ...]] = {
    "rows": ([2, 0],),
    "rows from the end": ([-1, 0],),
    "pairs": ([2, 0, 1], [0, -1, 1]),
    "pairs that broadcast": ([[2], [0]], [0, 1]),
    "columns": (None, [1, 0]),
    "the last axis": (None, None, [4, 0]),
    "apart": ([1, 0], None, [2, 3]),
    "a mask": ([True, False, True],),
    "a mask of two axes": ([[True, False], [True, True], [False, False]],),
    "a mask and places": (None, [False, True], [3]),
    "nothing": ([],),
    "one place": (1,),
    "whole": (None,),
}


@pytest.mark.parametrize("name", INDICES)
def test_index_put_is_numpys_assignment(name: str, rng: np.random.Generator) -> None:
    parts = [None if i is None else np.array(i, np.int64 if i == [] else None) for i in INDICES[name]]
    places = tuple(slice(None) if i is None else i for i in parts)
    x = rng.normal(size=(3, 2, 5))
    values = rng.normal(size=np.shape(x[places]))
    expected, added = x.copy(), x.copy()
    expected[places] = values
    np.add.at(added, places, values)
    indices = [None if i is None else mn.tensor(i) for i in parts]
    y = mn.tensor(x)
    np.testing.assert_array_equal(y.index_put(indices, mn.tensor(values)).numpy(), expected)
    np.testing.assert_allclose(y.index_put(indices, mn.tensor(values), accumulate=True).numpy(), added, rtol=1e-12)
    assert y.index_put_(tuple(indices), mn.tensor(values[..., :1])) is y
    for accumulate in (False, True):
        assert gradcheck(lambda x, v, a=accumulate: x.index_put(indices, v, a), x, values) < 1e-6


def test_index_put_adds_what_comes_twice(rng: np.random.Generator) -> None:
    x, values, rows = rng.normal(size=(3, 2)), rng.normal(size=(4, 2)), np.array([0, 2, 0, 0])
    expected = x.copy()
    np.add.at(expected, rows, values)

    def added(x: Any, values: Any) -> Any:
        return x.index_put((mn.tensor(rows),), values * values, accumulate=True)

    found = mn.tensor(x).index_put((mn.tensor(rows),), mn.tensor(values), accumulate=True)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)
    assert gradgradcheck(added, x, values) < 1e-6
    last = mn.zeros(2).index_put((mn.tensor([1, 1]),), mn.tensor([5.0, 6.0]))
    assert last.tolist() == [0.0, 6.0]
    flags = mn.tensor([True, False]).index_put((mn.tensor([1]),), mn.tensor([True]), accumulate=True)
    assert flags.tolist() == [True, True]


def test_index_put_refuses() -> None:
    x, zero = mn.zeros(3, 2), mn.tensor([0])
    for indices, values, error, message in (
        (
            (mn.tensor([3]),),
            mn.ones(2),
            IndexError,
            r"index holds 3; expected -3 to 2; x has shape \(3, 2\)",
        ),
        ((mn.tensor([0.5]),), mn.ones(2), TypeError, "index_put: an index is float32; expected integers or bools"),
        ((zero,), mn.ones(5), ValueError, r"values has shape \(5,\), x\[indices\] has shape \(1, 2\)"),
        ((zero,), mn.ones(2).double(), TypeError, "x is float32, values is float64; expected a Tensor of"),
        ((zero,), 1.0, TypeError, "x is float32, values is float; expected a Tensor of x's type"),
        (([0],), mn.ones(2), TypeError, "an index is list; expected a Tensor, or None for a whole axis"),
        ((None,), mn.ones(5), ValueError, r"values has shape \(5,\), x\[indices\] has shape \(3, 2\)"),
        ((zero,) * 3, mn.ones(1), IndexError, "indices are for 3 axes or more; expected indices for at most 2 axes"),
        (
            (mn.tensor([0, 1]), mn.tensor([0, 1, 1])),
            mn.ones(1),
            IndexError,
            r"shapes \(2,\) and \(3,\) do not broadcast",
        ),
        (
            (mn.tensor([True, False]),),
            mn.ones(1),
            IndexError,
            r"a mask has shape \(2,\); expected the lengths of x along",
        ),
    ):
        with pytest.raises(error, match=message):
            x.index_put_(indices, values)
    assert not x.any()


def test_masked_scatter(rng: np.random.Generator) -> None:
    x, source, mask = rng.normal(size=(3, 4)), rng.normal(size=(2, 7)), rng.uniform(size=(3, 4)) > 0.5
    expected = x.copy()
    expected[mask] = source.reshape(-1)[: mask.sum()]

    def put(x: Any, source: Any) -> Any:
        return x.masked_scatter(mn.tensor(mask), source)

    np.testing.assert_array_equal(put(mn.tensor(x), mn.tensor(source)).numpy(), expected)
    changed = mn.tensor(x)
    assert changed.masked_scatter_(mn.tensor(mask), mn.tensor(source)) is changed
    np.testing.assert_array_equal(changed.numpy(), expected)
    assert gradcheck(put, x, source) < 1e-6
    rows = mn.zeros(2, 1).masked_scatter(mn.tensor([True, False, True]), mn.arange(4.0))
    assert rows.tolist() == [[0.0, 0.0, 1.0], [2.0, 0.0, 3.0]]
    assert mn.ones(2).masked_scatter(mn.tensor([False, False]), mn.zeros(0)).tolist() == [1.0, 1.0]


def test_masked_scatter_refuses() -> None:
    x, mask = mn.zeros(3), mn.tensor([True, True, False])
    with pytest.raises(
        ValueError, match=r"masked_scatter: source has 1 elements, the mask 2 places; expected at least one element"
    ):
        x.masked_scatter_(mask, mn.ones(1))
    with pytest.raises(ValueError, match=r"masked_scatter: shapes \(3,\) and \(2,\) do not broadcast"):
        x.masked_scatter(mask[:2], mn.ones(2))
    with pytest.raises(TypeError, match="masked_scatter: mask is int64, source float32, x float32; expected a mask of"):
        x.masked_scatter_(mask.long(), mn.ones(2))
    assert not x.any()
