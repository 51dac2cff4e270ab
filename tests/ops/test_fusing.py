"""Fused Functions give the bits of one after the other, and Functions that cannot be fused stay as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minorm.devices import dtypes
from minorm.normalization.call import NormCall
from minorm.normalization.equation import Equation
from minorm.normalization.normalize import NormalizeWith
from minorm.ops import activation, elementwise, special
from minorm.ops.applications import Application, Chained
from minorm.ops.convolution import Convolution
from minorm.ops.fusing import fused
from minorm.ops.indexing import GetItem
from minorm.ops.matmul import MatMul
from minorm.ops.shape import Cat, Expand, Permute, Reshape

CONV: dict[str, Any] = {"stride": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 1}


def norm(given: dict[int, Any], compute_dtype: Any = None) -> dict[str, Any]:
    """The options of BatchNorm behind that convolution."""
    x, w = given[1], given[2]
    y = np.empty((len(x), len(w), *x.shape[2:]), x.dtype)
    return {"call": NormCall(y, Equation(1e-3), (0, 2, 3), (1,), compute_dtype=compute_dtype)}


Steps = list[tuple[Any, tuple[int, ...], dict[str, Any]]]


def ran(applications: Any, given: dict[int, Any], count: int) -> list[Any]:
    registers = [given.get(i) for i in range(count)]
    for application in applications:
        application.run(registers)
    return registers


def both(steps: Steps, given: dict[int, Any], ends: tuple[int, ...] = ()) -> tuple[list[str], list[Any], list[Any]]:
    """The names of what is fused, and the ends' arrays of one after the other and of that. The last is an end."""
    first = max(given) + 1
    applications = [Application(*step, (first + i,)) for i, step in enumerate(steps)]
    count = first + len(steps)
    ends = (*ends, count - 1)
    before = ran(applications, given, count)
    known = {i: (None, None) if a is None else (a.shape, a.dtype) for i, a in enumerate(before)}
    found = fused(applications, known, ends)
    after = ran(found, given, count)
    return [repr(a) for a in found], [before[end] for end in ends], [after[end] for end in ends]


def fused_kinds(steps: Steps, given: dict[int, Any]) -> list[type[Application]]:
    """The kinds of applications that `fused` makes of these steps."""
    first = max(given) + 1
    applications = [Application(*step, (first + i,)) for i, step in enumerate(steps)]
    arrays = ran(applications, given, first + len(steps))
    known = {i: (None, None) if a is None else (a.shape, a.dtype) for i, a in enumerate(arrays)}
    return [type(a) for a in fused(applications, known, (first + len(steps) - 1,))]


def same(before: list[Any], after: list[Any]) -> None:
    for want, got in zip(before, after, strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        nan = np.isnan(want)
        np.testing.assert_array_equal(np.isnan(got), nan)
        assert np.where(nan, 0, got).tobytes() == np.where(nan, 0, want).tobytes()


def convolution(dtype: Any = np.float32, size: int = 9, channels: int = 6) -> dict[int, Any]:
    """Registers 1 to 7: x, w, b, mean, var, scale, bias."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, channels, size, size)), rng.standard_normal((5, channels, 3, 3))
    x[1, 0, 0, 0] = np.nan
    vectors = [*rng.standard_normal((2, 5)), rng.uniform(0.5, 2, 5), *rng.standard_normal((2, 5))]
    return dict(enumerate([a.astype(dtype) for a in (x, w, *vectors)], 1))


BOUNDS: list[Any] = [
    (activation.Relu, {}),
    (activation.Relu6, {}),
    (elementwise.Clip, {"low": -0.5, "high": 0.25}),
    (elementwise.Clip, {"low": -0.1, "high": 1 / 3}),
    (elementwise.Clip, {"low": 0.0, "high": 6.0}),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, dtypes.bfloat16], ids=str)
@pytest.mark.parametrize("size", [1, 2, 9])
@pytest.mark.parametrize(("kind", "options"), BOUNDS)
def test_a_convolution_takes_what_follows_it(kind: Any, options: dict[str, Any], size: int, dtype: Any) -> None:
    given = convolution(dtype, size)
    steps: Steps = [
        (Convolution, (1, 2, 0), CONV),
        (NormalizeWith, (8, 4, 5, 6, 7, 0), norm(given)),
        (kind, (9,), options),
    ]
    names, before, after = both(steps, given)
    assert names == [f"Convolution + NormalizeWith + {kind.__name__}"]
    same(before, after)
    names, before, after = both([(Convolution, (1, 2, 3), CONV), (kind, (8,), options)], given)
    assert names == [f"Convolution + {kind.__name__}"]
    same(before, after)


def test_without_scale_and_bias() -> None:
    steps: Steps = [(Convolution, (1, 2, 3), CONV), (NormalizeWith, (8, 4, 5, 0, 0, 0), norm(convolution()))]
    names, before, after = both(steps, convolution())
    assert names == ["Convolution + NormalizeWith"]
    same(before, after)


def test_statistics_that_change_are_seen() -> None:
    """In place too, where no counter tells: bytes are compared."""
    given = convolution()
    applications = [
        Application(Convolution, (1, 2, 0), CONV, (8,)),
        Application(NormalizeWith, (8, 4, 5, 6, 7), norm(given), (9,)),
    ]
    known = {i: (None, None) if a is None else (a.shape, a.dtype) for i, a in enumerate(ran(applications, given, 10))}
    found = fused(applications, known, (9,))
    for register in (4, 5, 6, 7):
        given[register][2] += 0.5
        same([ran(applications, given, 10)[9]], [ran(found, given, 10)[9]])


@pytest.mark.parametrize(
    ("steps", "ends"),
    [
        (
            [(Convolution, (1, 2, 0), CONV), (NormalizeWith, (8, 4, 5, 6, 7), norm(convolution()))],
            (8,),
        ),  # the sums are a result, too
        ([(Convolution, (1, 2, 0), CONV), (NormalizeWith, (8, 4, 5, 6, 7), norm(convolution(), dtypes.float64))], ()),
        ([(Convolution, (1, 2, 0), CONV), (elementwise.Clip, (8,), {"low": 0.0, "high": None})], ()),
        ([(Convolution, (1, 2, 0), CONV), (elementwise.Clip, (8,), {"low": 1.0, "high": 0.0})], ()),
    ],
)
def test_what_a_convolution_leaves(steps: Steps, ends: tuple[int, ...]) -> None:
    names, before, after = both(steps, convolution(), ends)
    assert names == [kind.__name__ for kind, *_ in steps]
    same(before, after)


def maps(shape: tuple[int, ...] = (3, 4, 50), dtype: Any = np.float32) -> dict[int, Any]:
    """Registers 1 to 4: x, a row, 2, another whole operand."""
    rng = np.random.default_rng(0)
    return {
        1: rng.standard_normal(shape).astype(dtype), 2: rng.standard_normal(shape[-1:]).astype(dtype),
        3: np.asarray(2, dtype), 4: rng.standard_normal(shape).astype(dtype),
    }  # fmt: skip


GELU: Steps = [
    (elementwise.Add, (2, 1), {}), (elementwise.Div, (5, 3), {}), (special.Erf, (6,), {}),
    (elementwise.Add, (7, 3), {}), (elementwise.Mul, (5, 8), {}), (elementwise.Mul, (9, 3), {}),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, dtypes.bfloat16], ids=str)
def test_maps_become_one_pass(dtype: Any) -> None:
    names, before, after = both(GELU, maps(dtype=dtype))
    assert names == ["Add + Div + Erf + Add + Mul + Mul"]
    same(before, after)


def test_every_map() -> None:
    kinds: Any = [
        elementwise.Sub, elementwise.Exp, activation.LeakyRelu, activation.Sigmoid, activation.Tanh, activation.Silu,
        activation.Hardswish, activation.Gelu, activation.Relu, activation.Relu6, elementwise.Mul,
    ]  # fmt: skip
    options = {activation.LeakyRelu: {"slope": 0.3}, activation.Gelu: {"approximate": "tanh"}}
    binary = (elementwise.Sub, elementwise.Mul)
    steps = [
        (kind, (4 + i or 1, *((4,) if kind in binary else ())), options.get(kind, {})) for i, kind in enumerate(kinds)
    ]
    names, before, after = both(steps, maps())
    assert names == [" + ".join(kind.__name__ for kind in kinds)]
    same(before, after)


def test_a_chain_ends_where_others_read_or_shapes_differ() -> None:
    names, before, after = both(GELU, maps(), ends=(7,))
    assert names == ["Add", "Div + Erf", "Add + Mul + Mul"]
    same(before, after)
    steps: Steps = [
        (elementwise.Add, (2, 3), {}), (elementwise.Mul, (5, 3), {}),  # rows
        (elementwise.Add, (1, 6), {}), (Reshape, (7,), {"shape": (12, 50)}), (special.Erf, (8,), {}),
    ]  # fmt: skip
    names, before, after = both(steps, maps())
    assert names == ["Add + Mul", "Add", "Reshape", "Erf"]
    same(before, after)


@pytest.mark.parametrize("other", [np.ones((4, 1), np.float32), np.ones((3, 1, 50), np.float32)])
def test_other_broadcasts_stay(other: Any) -> None:
    names, before, after = both([(elementwise.Add, (1, 4), {}), (special.Erf, (5,), {})], {**maps(), 4: other})
    assert names == ["Add", "Erf"]
    same(before, after)


@pytest.mark.parametrize("dtype", [np.float16, dtypes.bfloat16], ids=str)
def test_one_broadcast_of_16_bits_is_a_pass_too(dtype: Any) -> None:
    """NumPy takes many times as long for 16 bits, and no longer for float32."""
    arrays = maps(dtype=dtype)
    names, before, after = both([(elementwise.Add, (1, 2), {})], arrays)
    assert (names, fused_kinds([(elementwise.Add, (1, 2), {})], arrays)) == (["Add"], [Chained])
    same(before, after)
    assert fused_kinds([(elementwise.Add, (1, 2), {})], maps()) == [Application]
    assert fused_kinds([(elementwise.Add, (1, 1), {})], arrays) == [Application]


@pytest.mark.parametrize("dtype", [np.float16, dtypes.bfloat16], ids=str)
def test_16_bits_are_rounded_between_a_product_and_its_bias(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    a, b, row = (rng.standard_normal(s).astype(dtype) for s in ((7, 33), (33, 6), (6,)))
    steps: Steps = [(MatMul, (1, 2), {}), (elementwise.Add, (3, 4), {}), (activation.Relu, (5,), {})]
    names, before, after = both(steps, {1: a, 2: b, 3: row})
    assert names == ["MatMul", "Add + Relu"]
    same(before, after)


def test_views_of_views_are_one_step() -> None:
    x = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
    row = np.float32([[[1, 2]]])
    steps: Steps = [
        (Permute, (1,), {"order": (0, 2, 3, 1)}), (Reshape, (3,), {"shape": (2, 20, 3)}),
        (GetItem, (4,), {"index": (slice(None), slice(None, None, 2), 1)}), (Reshape, (5,), {"shape": (4, 5)}),
        (Expand, (2,), {"shape": (1, 4, 2)}), (Reshape, (7,), {"shape": (4, 2)}), (Cat, (6, 8), {"axis": 1}),
    ]  # fmt: skip
    names, before, after = both(steps, {1: x, 2: row})
    assert names == ["Permute + Reshape + GetItem + Reshape", "Expand + Reshape", "Cat"]
    same(before, after)
    names, before, after = both(steps, {1: x, 2: row}, (4,))  # asked for: nothing goes on from it unseen
    assert names[:2] == ["Permute + Reshape", "GetItem + Reshape"]
    same(before, after)


def test_a_row_behind_axes_of_length_1_repeats_too() -> None:
    rng = np.random.default_rng(0)
    x, row = rng.standard_normal((2, 3, 4, 5)).astype(np.float32), rng.standard_normal((1, 1, 1, 5)).astype(np.float32)
    steps: Steps = [(elementwise.Div, (1, 3), {}), (elementwise.Add, (4, 2), {})]
    names, before, after = both(steps, {1: x, 2: row, 3: np.float32(3).reshape(())})
    assert names == ["Div + Add"]
    same(before, after)


def test_a_slice_joins_a_chain() -> None:
    x = np.random.default_rng(0).standard_normal((3, 70, 4)).astype(np.float32)
    steps: Steps = [
        (GetItem, (1,), {"index": (slice(None), slice(None), slice(2, 4))}),
        (elementwise.Mul, (3, 2), {}), (elementwise.Exp, (4,), {}),
    ]  # fmt: skip
    names, before, after = both(steps, {1: x, 2: np.float32(0.2).reshape(())})
    assert names == ["GetItem", "Mul + Exp"]
    same(before, after)
    assert after[0].strides == before[0].strides


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(7, 33), (2, 3, 33), (1, 5000)], ids=str)
def test_a_product_takes_the_row_behind_it_and_the_relu(shape: tuple[int, ...], dtype: Any) -> None:
    rng = np.random.default_rng(0)
    a, b, row = (rng.standard_normal(s).astype(dtype) for s in (shape, (shape[-1], 6), (6,)))
    steps: Steps = [(MatMul, (1, 2), {}), (elementwise.Add, (3, 4), {}), (activation.Relu, (5,), {})]
    names, before, after = both(steps, {1: a, 2: b, 3: row})
    assert names == ["MatMul + Add + Relu"]
    same(before, after)
    names, before, after = both(steps[:2], {1: a, 2: b, 3: row})
    assert names == ["MatMul + Add"]
    same(before, after)
    names, before, after = both(steps, {1: a, 2: b, 3: row}, (4,))  # the product is asked for
    assert names == ["MatMul", "Add + Relu"]
    same(before, after)
    names, before, after = both(steps, {1: a, 2: b, 3: row[:1]})  # one number
    assert names == ["MatMul", "Add + Relu"]
    same(before, after)


def test_a_product_that_is_the_row_stays_apart() -> None:
    rng = np.random.default_rng(0)
    a, b, c = (rng.standard_normal(s).astype(np.float32) for s in ((1, 5), (5, 6), (4, 6)))
    names, before, after = both([(MatMul, (1, 2), {}), (elementwise.Add, (4, 3), {})], {1: a, 2: b, 3: c})
    assert names == ["MatMul", "Add"]
    same(before, after)
