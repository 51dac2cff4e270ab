"""Write atan2, logaddexp, xlogy, logit and the inverse of erf in other operators, because ONNX lacks them.

16-bit floats are computed in float32 and rounded once, as in minorm.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from minorm.devices import dtypes
from minorm.onnx.graph.model_graph import Graph, Value
from minorm.onnx.graph.registry import Rule, lowers
from minorm.onnx.operators.math.comparison import compare
from minorm.ops import special as ops
from minorm.ops.elementary import Atan2, LogAddExp, Logit, XLogY


def _in_wide(rule: Rule) -> Rule:
    """Decorate a rule: cast its values to the type in which minorm computes, and cast the result back."""

    @functools.wraps(rule)
    def write(g: Graph, **arguments: Any) -> Value:
        kind = g.result.dtype
        wide = {
            name: g.cast(x, dtypes.compute_type(kind)) if isinstance(x, Value) else x for name, x in arguments.items()
        }
        return g.cast(rule(g, **wide), kind)

    return write


@lowers(Atan2)
@_in_wide
def write_atan2(g: Graph, a: Value, b: Value) -> Value:
    """Write the angle whose tangent is a / b, plus half a turn if b < 0.

    a and b may both be infinite, and they may both be 0.
    """
    equal = compare(g, g.add("Abs", a), g.add("Abs", b), "equal")
    tangent = _where(g, equal, g.add("Mul", g.add("Sign", a), g.add("Sign", b)), g.add("Div", a, b))
    half = _where(g, _negative(g, a), g.scalar(-math.pi, a), g.scalar(math.pi, a))
    return g.add("Add", g.add("Atan", tangent), _where(g, _negative(g, b), half, g.scalar(0, a)))


def _negative(g: Graph, x: Value) -> Value:
    """Write a mask of the elements of x that are below 0, or -0."""
    zero = g.scalar(0, x)
    return g.add("Or", compare(g, x, zero, "less"), compare(g, g.add("Reciprocal", x), zero, "less"))


@lowers(LogAddExp)
@_in_wide
def write_logaddexp(g: Graph, a: Value, b: Value) -> Value:
    apart = g.add("Abs", g.add("Sub", a, b))
    apart = _where(g, compare(g, a, b, "equal"), g.scalar(0, a), apart)  # inf - inf would be NaN
    more = g.add("Log", g.add("Add", g.add("Exp", g.add("Neg", apart)), g.scalar(1, a)))
    return g.add("Add", g.add("Max", a, b), more)


@lowers(XLogY)
@_in_wide
def write_xlogy(g: Graph, a: Value, b: Value) -> Value:
    nothing = g.add("And", compare(g, a, g.scalar(0, a), "equal"), g.add("Not", g.add("IsNaN", b)))
    return _where(g, nothing, g.scalar(0, a), g.add("Mul", a, g.add("Log", b)))


@lowers(Logit)
@_in_wide
def write_logit(g: Graph, x: Value, eps: float | None) -> Value:
    one = g.scalar(1, x)
    if eps is not None:
        low, high = g.scalar(eps, x), g.scalar(1 - eps, x)
        x = _where(g, compare(g, x, low, "less"), low, _where(g, compare(g, x, high, "greater"), high, x))
    return g.add("Log", g.add("Div", x, g.add("Sub", one, x)))


@lowers(ops.ErfInv)
@_in_wide
def write_erfinv(g: Graph, x: Value) -> Value:
    """Write the inverse of erf, with the same steps as minorm's Function ErfInv."""
    number: Callable[[float], Value] = functools.partial(g.scalar, like=x)
    half, size = g.add("Mul", x, number(0.5)), g.add("Abs", x)
    near = g.add("Sub", number(0.180625), g.add("Mul", half, half))
    middle = g.add("Mul", half, _quotient(g, ops.MIDDLE, near))
    share = g.add("Mul", g.add("Sub", number(1), size), number(0.5))
    tail = g.add("Sqrt", g.add("Neg", g.add("Log", share)))
    beyond = _where(
        g,
        compare(g, tail, number(5), "greater"),
        _quotient(g, ops.FAR, g.add("Sub", tail, number(5))),
        _quotient(g, ops.TAIL, g.add("Sub", tail, number(1.6))),
    )
    beyond = _where(g, compare(g, tail, number(math.inf), "equal"), tail, beyond)
    inside = compare(g, size, number(0.85), "less_equal")
    quantile = _where(g, inside, middle, g.add("Mul", g.add("Sign", x), beyond))
    return g.add("Mul", quantile, number(math.sqrt(0.5)))


def _quotient(g: Graph, polynomials: tuple[tuple[float, ...], tuple[float, ...]], x: Value) -> Value:
    def horner(coefficients: tuple[float, ...]) -> Value:
        *rest, first = (g.scalar(c, x) for c in coefficients)
        return functools.reduce(lambda y, c: g.add("Add", g.add("Mul", y, x), c), rest[::-1], first)

    return g.add("Div", *map(horner, polynomials))


def _where(g: Graph, condition: Value, a: Value, b: Value) -> Value:
    return g.add("Where", condition, a, b, dtype=a.dtype)
