"""Bounds and divisors: fractions as bounds of integers, an integer 0 to divide by."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minorm as mn


@pytest.mark.parametrize("kind", ["int64", "int8", "uint8"])
@pytest.mark.parametrize(("low", "high"), [(None, 2.5), (0.5, None), (0.25, 1.7), (1, 2.5), (1, 3), (0.5, 3)])
def test_a_fraction_as_a_bound_of_integers_gives_floats(kind: str, low: Any, high: Any) -> None:
    torch = pytest.importorskip("torch")
    values = np.array([0, 1, 5]).astype(kind)
    expected = torch.tensor(values).clamp(low, high)
    for found in (mn.tensor(values).clamp(low, high), mn.clip(mn.tensor(values), low, high)):
        np.testing.assert_array_equal(found.numpy(), np.clip(values.astype(np.float64), low, high).astype(np.float32))
        assert str(found.dtype) == str(expected.dtype).removeprefix("torch.")
    assert mn.tensor(values).clamp_max(2.5).tolist() == [0.0, 1.0, 2.5]
    assert mn.tensor(values).clamp_min(0.5).tolist() == [0.5, 1.0, 5.0]


def test_integers_do_not_become_floats_in_place() -> None:
    x = mn.tensor([0, 1, 5])
    with pytest.raises(TypeError, match=r"clip_: x is int64, a bound is 2\.5; expected bounds that are integers"):
        x.clamp_(max=2.5)
    assert x.tolist() == [0, 1, 5]
    assert x.clamp_(max=2).tolist() == [0, 1, 2]


DIVISIONS: dict[str, Callable[[Any, Any], Any]] = {
    "//": operator.floordiv,
    "%": operator.mod,
    "fmod": lambda a, b: a.fmod(b),
    "remainder": lambda a, b: a.remainder(b),
    "floor_divide": lambda a, b: a.floor_divide(b),
    "div trunc": lambda a, b: a.div(b, rounding_mode="trunc"),
    "div floor": lambda a, b: a.div(b, rounding_mode="floor"),
    "//=": lambda a, b: a.clone().floor_divide_(b),
    "%=": lambda a, b: a.clone().remainder_(b),
    "number // x": lambda a, b: 7 // b + a * 0,
    "number % x": lambda a, b: 7 % b + a * 0,
}


@pytest.mark.parametrize("name", DIVISIONS)
@pytest.mark.parametrize("kind", ["int64", "int32", "uint8"])
def test_no_integer_is_divided_by_0(name: str, kind: str) -> None:
    divide = DIVISIONS[name]
    a, b = mn.tensor(np.array([7, 3, 9]).astype(kind)), mn.tensor(np.array([2, 0, 4]).astype(kind))
    with pytest.raises(ZeroDivisionError, match=rf"b is 0 at 1 of its 3 places, and its type is {kind}|y: b is 0"):
        divide(a, b)
    assert a.tolist() == [7, 3, 9]
    assert divide(a, b + 1).tolist() == {"number // x": [2, 7, 1], "number % x": [1, 0, 2]}.get(
        name, [2, 3, 1] if "%" not in name and name not in ("fmod", "remainder") else [1, 0, 4]
    )


def test_a_float_0_gives_infinity() -> None:
    x = mn.tensor([1.0, -1.0])
    with np.errstate(all="ignore"):
        assert (x // 0).tolist() == [np.inf, -np.inf]
        assert mn.tensor([1, -1]).true_divide(0).tolist() == [np.inf, -np.inf]
