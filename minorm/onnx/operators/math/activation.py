"""Read and write activations; if an operator is newer than the opset, write a formula of older operators."""

from __future__ import annotations

import math
from collections.abc import Callable

import minorm.functional as F
from minorm.devices import dtypes
from minorm.onnx.graph.decimals import shortest
from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.model_graph import Graph, Value
from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.registry import lowers, reads, writes
from minorm.onnx.operators.math.arithmetic import clip
from minorm.onnx.operators.norm.statistics import wide
from minorm.onnx.operators.precision import stretches
from minorm.onnx.operators.shape.shape import transpose
from minorm.ops import activation as ops
from minorm.ops.operands import axis_of
from minorm.ops.special import Erf
from minorm.tensor.combining import where
from minorm.tensor.tensor import Tensor

Unary = Callable[[Tensor], Tensor]


@writes(ops.Relu, "Relu", since=6)
def write_relu(g: Graph, x: Value) -> Value:
    return g.add("Relu", x)


@reads("Relu", since=1)  # 14: integers
def read_relu(node: Node) -> Callable[[Tensor], Tensor]:
    def relu(x: Tensor) -> Tensor:
        return F.relu(x) if dtypes.is_float(x.dtype) else x.clip(0)

    return relu


@reads("ThresholdedRelu", since=10)
def read_thresholded_relu(node: Node) -> Unary:
    alpha = node["alpha"]
    return lambda x: where(x > alpha, x, 0.0)


@reads("PRelu", since=1)  # before 7 one slope, or one per channel; 9: integers
def read_prelu(node: Node) -> Callable[[Tensor, Tensor], Tensor]:
    def prelu(x: Tensor, slope: Tensor) -> Tensor:
        if node.since < 7 and slope.ndim == 1 and slope.shape != (1,):
            slope = slope.reshape(-1, *(1,) * (x.ndim - 2))
        if not stretches(slope.shape, x.shape):
            raise ValueError(
                f"slope has shape {slope.shape}; expected a shape that broadcasts to {x.shape}, the shape of x"
            )
        positive = F.relu(x) if dtypes.is_float(x.dtype) else x.clip(0)
        return positive + slope * x.clip(max=0)

    return prelu


@writes(F.relu6, "Clip", since=6)
def write_relu6(g: Graph, x: Value) -> Value:
    return clip(g, x, 0, 6)


@writes(F.leaky_relu, "LeakyRelu", since=6)
def write_leaky_relu(g: Graph, x: Value, negative_slope: float) -> Value:
    return g.add("LeakyRelu", x, alpha=float(negative_slope))


@reads("LeakyRelu", since=1)
def read_leaky_relu(node: Node) -> Unary:
    alpha = node["alpha"]
    return lambda x: F.leaky_relu(x, alpha)


@reads("Elu", since=1)
def read_elu(node: Node) -> Unary:
    alpha = node["alpha"]
    return lambda x: F.elu(x, alpha)


@reads("Celu", since=12)  # alpha * (exp(x / alpha) - 1) below 0
def read_celu(node: Node) -> Unary:
    alpha = node["alpha"]
    return lambda x: F.elu(x / alpha) * alpha


@reads("Selu", since=1)
def read_selu(node: Node) -> Unary:
    alpha, gamma = node["alpha"], node["gamma"]
    return lambda x: F.elu(x, alpha) * gamma


@writes(F.elu, "Elu", since=6)
def write_elu(g: Graph, x: Value, alpha: float) -> Value:
    return g.add("Elu", x, alpha=float(alpha))


@writes(ops.Sigmoid, "Sigmoid", since=6)
def write_sigmoid(g: Graph, x: Value) -> Value:
    return g.add("Sigmoid", x)


@writes(ops.Tanh, "Tanh", since=6)
def write_tanh(g: Graph, x: Value) -> Value:
    return g.add("Tanh", x)


@reads("Sigmoid", since=1)
def read_sigmoid(node: Node) -> Unary:
    return F.sigmoid


@reads("Tanh", since=1)
def read_tanh(node: Node) -> Unary:
    return F.tanh


@reads("Swish", since=24)
def read_swish(node: Node) -> Unary:
    alpha = node["alpha"]
    return F.silu if alpha == 1 else lambda x: x * F.sigmoid(x * alpha)


@reads("SwiGLU", since=28)
def read_swiglu(node: Node) -> Callable[[Tensor, Tensor], Tensor]:
    swish = read_swish(node)

    def gated(a: Tensor, b: Tensor) -> Tensor:
        if a.shape != b.shape:
            raise ValueError(f"A has shape {a.shape}, B has shape {b.shape}; expected equal shapes")
        return swish(a) * b

    return gated


@reads("Shrink", since=9)
def read_shrink(node: Node) -> Unary:
    bias, lambd = node["bias"], node["lambd"]

    def shrink(x: Tensor) -> Tensor:
        moved = where(x < -lambd, x + bias, where(x > lambd, x - bias, x.new_zeros(())))
        return moved.to(x.dtype)  # an integer x and a float bias make floats

    return shrink


@reads("Mish", since=18)
def read_mish(node: Node) -> Unary:
    return lambda x: x * F.tanh(softplus(x))


@lowers(F.silu)  # Swish exists from opset 24 on, but onnxruntime 1.31 has no kernel for it
def lower_silu(g: Graph, x: Value) -> Value:
    return g.add("Mul", x, g.add("Sigmoid", x))


@writes(F.hardswish, "HardSwish", since=14)
def write_hardswish_14(g: Graph, x: Value) -> Value:
    return g.add("HardSwish", x)


SIXTH = shortest(1 / 6)  # the reader recognizes it as 1/6


@lowers(F.hardswish)
def lower_hardswish(g: Graph, x: Value) -> Value:
    return g.add("Mul", x, g.add("HardSigmoid", x, alpha=SIXTH, beta=0.5))


@writes(F.hardsigmoid, "HardSigmoid", since=6)
def write_hardsigmoid(g: Graph, x: Value) -> Value:
    return g.add("HardSigmoid", x, alpha=SIXTH, beta=0.5)


@reads("HardSwish", since=14)
def read_hardswish(node: Node) -> Unary:
    return F.hardswish


@reads("HardSigmoid", since=1)
def read_hardsigmoid(node: Node) -> Unary:
    alpha, beta = node["alpha"], node["beta"]
    if math.isclose(alpha, 1 / 6, rel_tol=1e-6) and beta == 0.5:
        return F.hardsigmoid
    return lambda x: (x * alpha + beta).clip(0, 1)


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)), without a threshold."""
    return F.softplus(x, threshold=math.inf)


@reads("Softplus", since=1)
def read_softplus(node: Node) -> Unary:
    return softplus


@reads("Softsign", since=1)
def read_softsign(node: Node) -> Unary:
    return lambda x: x / (x.abs() + 1)


@writes(F.softplus, "Softplus", since=1)
def write_softplus(g: Graph, x: Value, beta: float, threshold: float) -> Value:
    factor = g.scalar(beta, x)
    scaled = x if beta == 1 else g.add("Mul", x, factor)
    y = g.add("Softplus", scaled)
    y = y if beta == 1 else g.add("Div", y, factor)
    if threshold >= 15 and x.dtype != dtypes.float64:
        return y  # the two sides of the threshold differ by less than exp(-15), which is below float32's precision
    return g.add("Where", g.add("Greater", scaled, g.scalar(threshold, x)), x, y, dtype=x.dtype)


# Gelu


@writes(F.gelu, "Gelu", since=20)
def write_gelu_20(g: Graph, x: Value, approximate: str) -> Value:
    return g.add("Gelu", x, approximate=approximate)


@lowers(F.gelu)
def lower_gelu(g: Graph, x: Value, approximate: str) -> Value:
    half, one = g.scalar(0.5, x), g.scalar(1, x)
    if approximate == "tanh":
        cube = g.add("Mul", x, g.add("Mul", x, x))
        inner = g.add("Add", x, g.add("Mul", cube, g.scalar(0.044715, x)))
        bend = g.add("Tanh", g.add("Mul", inner, g.scalar(math.sqrt(2 / math.pi), x)))
    elif g.has("Erf"):
        bend = g.add("Erf", g.add("Mul", x, g.scalar(math.sqrt(0.5), x)))
    else:
        return _gelu_without_erf(g, x)
    return g.add("Mul", g.add("Mul", x, half), g.add("Add", bend, one))


# erfc(z) = polynomial(t) * exp(-z^2) with t = 1 / (1 + P * z), z >= 0, to 1.5e-7: Abramowitz and Stegun 1964, 7.1.26.
P = 0.3275911
POLYNOMIAL = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)


def _erfc(g: Graph, z: Value) -> Value:
    if z.dtype == dtypes.float64:
        raise RuleNotApplicable("Erf exists from opset 9 on; before, only float32 and 16-bit floats have a formula")
    t = g.add("Reciprocal", g.add("Add", g.add("Mul", z, g.scalar(P, z)), g.scalar(1, z)))
    sum_ = g.scalar(0, z)
    for factor in POLYNOMIAL:
        sum_ = g.add("Mul", g.add("Add", sum_, g.scalar(factor, z)), t)
    return g.add("Mul", sum_, g.add("Exp", g.add("Neg", g.add("Mul", z, z))))


def _gelu_without_erf(g: Graph, x: Value) -> Value:
    """Write relu(x) - |x| / 2 * erfc(|x| / sqrt 2), which is the GELU of x."""
    z = g.add("Mul", g.add("Abs", x), g.scalar(math.sqrt(0.5), x))
    return g.add("Sub", g.add("Relu", x), g.add("Mul", g.add("Mul", z, g.scalar(math.sqrt(0.5), x)), _erfc(g, z)))


@lowers(Erf)
def lower_erf(g: Graph, x: Value) -> Value:
    """Write sign(x) * (1 - erfc(|x|)), for opsets before 9, which lack Erf and Sign."""
    y = wide(g, x)
    sign = g.add("Clip", g.add("Mul", y, g.scalar(1e30, y)), min=-1.0, max=1.0)
    return g.cast(g.add("Mul", sign, g.add("Sub", g.scalar(1, y), _erfc(g, g.add("Abs", y)))), x.dtype)


@reads("Gelu", since=20)
def read_gelu(node: Node) -> Unary:
    approximate = node["approximate"]
    if approximate not in ("none", "tanh"):
        raise ValueError(f"approximate is {approximate!r}; expected none or tanh")
    return lambda x: F.gelu(x, approximate)


# Softmax. 13: along one axis. Before: the tensor is flattened to a matrix at `axis`, and each row is one softmax.


def softmax(g: Graph, operator: str, x: Value, axis: int) -> Value:
    """Write Softmax or LogSoftmax along one axis, in the form of the opset's version."""
    axis %= x.ndim
    if g.has(operator, 13):
        return g.add(operator, x, axis=axis)
    if axis == x.ndim - 1:
        return g.add(operator, x, axis=axis)
    if all(n == 1 for n in x.known_shape[axis + 1 :]):
        return g.add(operator, x, axis=axis)
    order = [i for i in range(x.ndim) if i != axis] + [axis]
    back = [order.index(i) for i in range(x.ndim)]
    return transpose(g, g.add(operator, transpose(g, x, order), axis=x.ndim - 1), back)


@writes(ops.Softmax, "Softmax", since=1)
def write_softmax(g: Graph, x: Value, axis: int) -> Value:
    return softmax(g, "Softmax", x, axis)


@writes(ops.LogSoftmax, "LogSoftmax", since=1)
def write_log_softmax(g: Graph, x: Value, axis: int) -> Value:
    return softmax(g, "LogSoftmax", x, axis)


def _rows(function: Callable[[Tensor, int], Tensor], node: Node) -> Unary:
    """Apply `function` along the node's axis; before 13, this axis and all later axes count as one axis."""
    axis = node["axis"]

    def apply(x: Tensor) -> Tensor:
        if node.since >= 13:
            return function(x, axis)
        start = axis_of(node.operator, axis, x) if x.ndim else 0
        if all(n == 1 for n in x.shape[start + 1 :]):
            return function(x, start)
        return function(x.reshape(*x.shape[:start], math.prod(x.shape[start:])), -1).reshape(x.shape)

    return apply


@reads("Softmax", since=1)
def read_softmax(node: Node) -> Unary:
    return _rows(F.softmax, node)


@reads("LogSoftmax", since=1)
def read_log_softmax(node: Node) -> Unary:
    return _rows(F.log_softmax, node)
