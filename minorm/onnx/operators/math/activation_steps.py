"""Convert activations to opsets that lack them, and convert softmaxes, which flatten x before version 13."""

from __future__ import annotations

import math
from typing import Any

from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.node_rewriter import Kind, NodeRewriter
from minorm.onnx.graph.registry import converts
from minorm.onnx.operators.composing import compose, place_of, shape_of

# Softmax, LogSoftmax, Hardmax: from 13 on along one axis; before, over this axis and all later ones


def _along(d: NodeRewriter) -> None:
    axis, shape = d.get("axis", 1), d.kind(d.input(0)).shape
    if axis == -1 or (shape is not None and axis == len(shape) - 1):
        d.set("axis", axis)
        return
    x, y = d.input(0), d.output(0)
    rows = d.emit("Flatten", x, axis=axis, kind=Kind(d.kind(x).elem, (None, None)))
    d.feed(0, rows)
    d.set("axis", -1)
    inner = d.divert(0, d.kind(rows))
    d.after("Reshape", inner, shape_of(d, x), to=y)


def _flattening(d: NodeRewriter) -> None:
    axis = d.get("axis", -1)
    if axis == -1:
        d.set("axis", -1)
        return
    x, y = d.input(0), d.output(0)
    rank = d.rank(x)
    axis = place_of(axis, rank)
    d.set("axis", rank - 1)
    if axis != rank - 1:
        order = [*range(rank)]
        order[axis], order[-1] = order[-1], order[axis]
        moved = Kind(d.kind(x).elem, (None,) * rank)
        d.feed(0, d.emit("Transpose", x, perm=order, kind=moved))
        d.after("Transpose", d.divert(0, moved), to=y, perm=order)


for _operator in ("Softmax", "LogSoftmax", "Hardmax"):
    converts(_operator, 11, 13)(_along)
    converts(_operator, 13, 11)(_flattening)


# Activations that ONNX added later


@converts("Gelu", 20, 0)
def gelu(d: NodeRewriter) -> None:
    kind = d.get("approximate", "none")

    def formula(x: str) -> tuple[Any, ...]:
        half = d.emit("Mul", x, d.scalar(0.5, x, "half"))
        if kind == "tanh":
            cube = d.emit("Mul", d.emit("Mul", x, x), x)
            inner = d.emit("Add", x, d.emit("Mul", cube, d.scalar(0.044715, x, "cubic")))
            place = d.emit("Tanh", d.emit("Mul", inner, d.scalar(math.sqrt(2 / math.pi), x, "root")))
        elif kind == "none":
            place = d.emit("Erf", d.emit("Mul", x, d.scalar(math.sqrt(0.5), x, "root")))
        else:
            raise RuleNotApplicable(f"approximate is {kind!r}")
        return "Mul", half, d.emit("Add", place, d.scalar(1, x, "one"))

    compose(d, formula)


@converts("Erf", 9, 0)
def erf(d: NodeRewriter) -> None:
    """Write f(relu(x)) - f(relu(-x)), f(u) = 1 - p(t) exp(-u^2), t = 1 / (1 + 0.3275911 u); the error is 1.5e-7."""

    def formula(x: str) -> tuple[Any, ...]:
        def f(u: str) -> str:
            one = d.scalar(1, x, "one")
            t = d.emit("Div", one, d.emit("Add", one, d.emit("Mul", u, d.scalar(0.3275911, x, "p"))))
            sum_ = d.scalar(1.061405429, x, "a5")
            for number in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
                sum_ = d.emit("Add", d.emit("Mul", sum_, t), d.scalar(number, x, "a"))
            fall = d.emit("Exp", d.emit("Neg", d.emit("Mul", u, u)))
            return d.emit("Sub", one, d.emit("Mul", d.emit("Mul", sum_, t), fall))

        return "Sub", f(d.emit("Relu", x)), f(d.emit("Relu", d.emit("Neg", x)))

    compose(d, formula)


@converts("HardSwish", 14, 0)
def hard_swish(d: NodeRewriter) -> None:
    compose(d, lambda x: ("Mul", x, d.emit("HardSigmoid", x, alpha=1 / 6, beta=0.5)))


@converts("Mish", 18, 0)
def mish(d: NodeRewriter) -> None:
    compose(d, lambda x: ("Mul", x, d.emit("Tanh", d.emit("Softplus", x))))


@converts("Swish", 24, 0)
def swish(d: NodeRewriter) -> None:
    alpha = d.get("alpha", 1.0)
    compose(d, lambda x: ("Mul", x, d.emit("Sigmoid", d.emit("Mul", x, d.scalar(alpha, x, "alpha")))))


@converts("Celu", 12, 0)
def celu(d: NodeRewriter) -> None:
    """Write relu(x) + alpha * elu(-relu(-x) / alpha)."""
    alpha = d.get("alpha", 1.0)

    def formula(x: str) -> tuple[Any, ...]:
        negative = d.emit("Neg", d.emit("Relu", d.emit("Neg", x)))
        bent = d.emit("Elu", d.emit("Div", negative, d.scalar(alpha, x, "alpha")))
        return "Add", d.emit("Relu", x), d.emit("Mul", bent, d.scalar(alpha, x, "alpha"))

    compose(d, formula)


@converts("ThresholdedRelu", 10, 0)
def thresholded_relu(d: NodeRewriter) -> None:
    alpha = d.get("alpha", 1.0)
    compose(d, lambda x: ("Where", d.emit("Greater", x, d.scalar(alpha, x, "alpha")), x, d.scalar(0, x, "zero")))
