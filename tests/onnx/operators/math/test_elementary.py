"""Functions of one number and the remainder, written at every opset that has the operator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.onnx as mo
from minorm.onnx.graph.versions import PUBLISHED
from minorm.ops import reduction
from minorm.ops.special import Erf, Remainder
from minorm.ops.stepwise import Quotient, Stepwise


@pytest.fixture
def x(rng: np.random.Generator) -> mn.Tensor:
    return mn.tensor(rng.normal(0, 3, (2, 3, 4)).astype(np.float32))


def step(name: str) -> Any:
    return lambda x: Stepwise.apply(x, step=name)


@pytest.mark.parametrize(
    ("function", "operator"),
    [
        (Erf.apply, "Erf"),
        (step("floor"), "Floor"),
        (step("ceil"), "Ceil"),
        (step("rint"), "Round"),
        (step("sign"), "Sign"),
        (step("isnan"), "IsNaN"),
        (step("isinf"), "IsInf"),
        (lambda x: Stepwise.apply(x > 0, step="logical_not"), "Not"),
        (lambda x: ~(x > 0), "Not"),
        (lambda x: x // mn.tensor([2.0, -1.5, 3, 0.5]), "Mod"),
        (lambda x: x.long() // mn.tensor([2, 3, -2, 5]), "Mod"),
        (lambda x: x.cumprod(1), "CumProd"),
        (lambda x: Quotient.apply(x.long(), mn.tensor([2, 3, -2, 5])), "Div"),
        (lambda x: Remainder.apply(x, mn.tensor([2.0, -1.5, 3, 0.5]), truncated=True), "Mod"),
        (lambda x: reduction.Prod.apply(x, axes=(1,), keepdims=False), "ReduceProd"),
        (lambda x: reduction.LogSumExp.apply(x, axes=(1, 2), keepdims=True), "ReduceLogSumExp"),
    ],
)
def test_written(proved: Any, operators: Any, x: mn.Tensor, opset: int, function: Any, operator: str) -> None:
    if opset < PUBLISHED[operator][0] and operator == "Erf":
        assert "Exp" in operators(proved(function, x, opset=opset, tolerance=4e-7))
    elif opset < PUBLISHED[operator][0]:
        with pytest.raises(mo.ExportError, match=f"{operator}"):
            mo.export(function_of(function), (x,), None, opset_version=opset)
    else:
        assert operator in operators(proved(function, x, opset=opset, must_run=False))


@pytest.mark.parametrize("dtype", [mn.float16, mn.float32])
def test_the_error_function_before_opset_9_at_the_ends(proved: Any, dtype: Any) -> None:
    x = mn.tensor(np.array([[0.0, -0.0, np.inf, -np.inf, 1e-4, 9, -30]], np.float32)).to(dtype)
    proved(Erf.apply, x, opset=8, tolerance=4e-7 if dtype == mn.float32 else 1e-3)
    with pytest.raises(mo.ExportError, match="only float32 and 16-bit floats have a formula"):
        mo.export(function_of(Erf.apply), (x.to(mn.float64),), None, opset_version=8)


def function_of(function: Any) -> Any:
    class Module(mn.nn.Module):
        def forward(self, x: mn.Tensor) -> Any:
            return function(x)

    return Module()


def test_the_remainder_with_the_divisors_sign(proved: Any, x: mn.Tensor) -> None:
    divisors = mn.tensor([2.0, -1.5, 3, np.inf])
    for opset in (10, 26):
        proved(lambda x: Remainder.apply(x, divisors, truncated=False), x, opset=opset)


def test_a_remainder_is_of_one_type(graph_of: Any) -> None:
    onnx = pytest.importorskip("onnx")
    node = onnx.helper.make_node("Mod", ["x", "w"], ["y"], fmod=1)
    model = mo.load(graph_of([node], {"x": (np.float32, [2])}, ["y"], {"w": np.ones(2, np.float16)}))
    with pytest.raises(ValueError, match="operands are float32 and float16; expected one type"):
        model(mn.ones(2))
