"""Read and write functions of one number: exponential, root, trigonometric, hyperbolic and step functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.model_graph import Graph, Value
from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.registry import EVERY, Rule, lowers, reads, writes
from minorm.onnx.graph.versions import PUBLISHED
from minorm.ops import elementwise as ops
from minorm.ops.elementary import Acos, Acosh, Asin, Asinh, Atan, Atanh, Cosh, Expm1, Log1p, Sinh
from minorm.ops.special import Erf
from minorm.ops.stepwise import Rounded, Stepwise
from minorm.tensor.tensor import Tensor

Unary = Callable[[Tensor], Tensor]


def _write(operator: str) -> Rule:
    def write(g: Graph, x: Value) -> Value:
        return g.add(operator, x)

    return write


def _read(function: Unary) -> Rule:
    def read(node: Node) -> Unary:
        return function

    return read


# Pairs of a Function and its operator

for _target, _operator in (
    (ops.Neg, "Neg"),
    (ops.Abs, "Abs"),
    (ops.Exp, "Exp"),
    (ops.Log, "Log"),
    (ops.Sqrt, "Sqrt"),
    (ops.Sin, "Sin"),
    (ops.Cos, "Cos"),
    (Erf, "Erf"),
    (Atan, "Atan"),
    (Asin, "Asin"),
    (Acos, "Acos"),
    (Sinh, "Sinh"),
    (Cosh, "Cosh"),
    (Asinh, "Asinh"),
    (Acosh, "Acosh"),
    (Atanh, "Atanh"),
):
    writes(_target, _operator)(_write(_operator))
    reads(_operator)(_read(_target.apply))


writes(ops.Root, "Sqrt")(_write("Sqrt"))


@reads("Reciprocal", since=1)
def read_reciprocal(node: Node) -> Unary:
    return lambda x: 1 / x


@reads("Tan", since=7)
def read_tan(node: Node) -> Unary:
    return lambda x: x.sin() / x.cos()


@lowers(Log1p)
def write_log1p(g: Graph, x: Value) -> Value:
    return g.add("Log", g.add("Add", x, g.constant(1, x.dtype, "one")))


@lowers(Expm1)
def write_expm1(g: Graph, x: Value) -> Value:
    return g.add("Sub", g.add("Exp", x), g.constant(1, x.dtype, "one"))


# Steps

STEPS = {
    "floor": "Floor",
    "ceil": "Ceil",
    "rint": "Round",
    "sign": "Sign",
    "isnan": "IsNaN",
    "isinf": "IsInf",
    "logical_not": "Not",
}


@lowers(Rounded)
@lowers(Stepwise)
def write_step(g: Graph, x: Value, step: str) -> Value:
    if step == "trunc":  # towards 0: down for positive numbers, up for negative ones
        return g.add("Mul", g.add("Sign", x), g.add("Floor", g.add("Abs", x)))
    if step == "invert":
        if not g.has("BitwiseNot"):
            raise RuleNotApplicable("BitwiseNot exists from opset 18 on; before, there is only Not, for bools")
        return g.add("BitwiseNot", x)
    operator = STEPS[step]
    if not g.has(operator):
        raise RuleNotApplicable(f"{operator} exists from opset {PUBLISHED[operator][0]} on")
    return g.add(operator, x, dtype=g.result.dtype)


def _stepwise(step: str) -> Unary:
    return lambda x: Stepwise.apply(x, step=step)


for _step, _operator in STEPS.items():
    if _operator != "IsInf":
        reads(_operator, fixed=EVERY)(_read(_stepwise(_step)))


@reads("IsInf", since=10, fixed=EVERY)
def read_isinf(node: Node) -> Unary:
    low, high = node["detect_negative"], node["detect_positive"]
    if low and high:
        return _stepwise("isinf")
    bound: Any = float("inf") if high else float("-inf") if low else float("nan")
    return lambda x: x == bound
