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
    with pytest.raises(TypeError, match=r"clip_: x is int64, a bound is 2\.5; expected integer bounds"):
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
    with pytest.raises(
        ZeroDivisionError, match=rf"b has 1 zeros among its 3 elements, and its type is {kind}|y: b has"
    ):
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


class Answers:
    """Answers every reflected operator with its name; knows Tensors no better than they know it."""

    def __hash__(self) -> int:
        return 1


REFLECTED = "radd rsub rmul rtruediv rpow rfloordiv rmod rand ror rxor rmatmul eq ne lt le gt ge"
for _name in REFLECTED.split():
    setattr(Answers, f"__{_name}__", lambda self, other, name=_name: (name, other.shape))

FORMS: dict[str, Callable[[Any, Any], Any]] = {
    name: getattr(operator, name)
    for name in """
        add sub mul truediv pow floordiv mod matmul and_ or_ xor eq ne lt le gt ge
        iadd isub imul itruediv ipow ifloordiv imod iand ior ixor
    """.split()  # noqa: SIM905  a list that fits on the screen
}


@pytest.mark.parametrize("form", FORMS)
def test_an_object_with_its_own_operator_has_its_turn(form: str) -> None:
    torch = pytest.importorskip("torch")
    found = FORMS[form](mn.tensor([1, 2]), Answers())
    name, shape = FORMS[form](torch.tensor([1, 2]), Answers())
    assert found == (name, tuple(shape))


def test_what_has_no_operator_is_still_named() -> None:
    x = mn.ones(2)
    for other, kind in ((object(), "object"), ("a", "str"), (None, "NoneType"), ({}, "dict")):
        for form in (operator.add, operator.mod, operator.lt, operator.iadd):
            with pytest.raises(TypeError, match=f"operand is {kind}; expected a Tensor, an array or a number"):
                form(x, other)
        with pytest.raises(TypeError, match=f"operand is {kind}; expected a Tensor, an array or a number"):
            operator.sub(other, x)
    assert x.tolist() == [1, 1]


@pytest.mark.parametrize("other", [None, "a", {}, object(), type, print])
def test_unequal_to_what_is_no_operand(other: Any) -> None:
    torch = pytest.importorskip("torch")
    for x in (mn.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0])):
        assert (x == other) is False
        assert (x != other) is True
        assert (other == x) is False
        assert (other != x) is True
        with pytest.raises(TypeError):
            _ = x < other
        with pytest.raises(TypeError):
            x.eq(other)
    assert None not in [mn.ones(2), mn.ones(3)]
    assert {"x": mn.ones(2)} != {"x": None}


def test_another_librarys_array_is_no_less_refused() -> None:
    torch = pytest.importorskip("torch")
    for form in (operator.eq, operator.ne, operator.add, operator.lt):
        with pytest.raises(TypeError, match=r"operand is torch\.Tensor; expected .* convert it"):
            form(mn.ones(2), torch.ones(2))


def test_an_error_of_two_operands_stays_an_error() -> None:
    """That of two float types is a TypeError, too."""
    with pytest.raises(TypeError, match="equal: operands are float32 and float64"):
        _ = mn.ones(2) == mn.ones(2, dtype=mn.float64)
