"""Every version of every operator but the normalizations', each against its formula, gradients included.

A model of opset v holds one node, so that version v of the operator is meant.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm.testing import gradcheck

onnx = pytest.importorskip("onnx")

import minorm.onnx as mo  # noqa: E402  after importorskip
from minorm.onnx.graph import registry  # noqa: E402
from minorm.onnx.graph.versions import PUBLISHED  # noqa: E402
from minorm.onnx.operators import rules  # noqa: E402, F401

RNG = np.random.default_rng(3)
X = RNG.normal(0, 2, (2, 3, 4))
Y = RNG.normal(0, 2, (2, 3, 4))
POSITIVE = RNG.uniform(0.5, 3, (2, 3, 4))
IMAGE = RNG.normal(0, 1, (2, 4, 5, 6))
WHOLE = RNG.integers(-9, 10, (2, 3, 4))
PARTS = RNG.choice([-2, -1, 1, 3], (3, 4))
BITS = X > 0


@dataclass
class Case:
    operator: str
    versions: tuple[int, ...]
    inputs: list[Any]  # floats are inputs of the graph with a gradient, the rest are initializers
    want: Any  # of the (first) output
    attributes: dict[str, Any] = field(default_factory=dict)
    slope: bool = True
    graph: tuple[int, ...] | None = None  # inputs of the graph, if not all floats
    outputs: int = 1


CASES: list[Case] = []


def case(operator: str, versions: Any, inputs: list[Any], want: Any, *, slope: bool = True,
         graph: tuple[int, ...] | None = None, outputs: int = 1, **attributes: Any) -> None:  # fmt: skip
    chosen = PUBLISHED[operator] if versions is None else versions
    CASES.append(Case(operator, tuple(chosen), inputs, want, attributes, slope, graph, outputs))


# Arithmetic: before 7 operands are alike, or `broadcast` and `axis` say how

PAIRS: dict[str, Callable[[Any, Any], Any]] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide,
}  # fmt: skip
for name, function in PAIRS.items():
    old = [v for v in PUBLISHED[name] if v < 7]
    case(name, old, [X, POSITIVE], function(X, POSITIVE))
    case(name, old, [X, POSITIVE[0, 0]], function(X, POSITIVE[0, 0]), broadcast=1)
    case(name, old, [X, POSITIVE[0, :, 0]], function(X, POSITIVE[0, :, 0, None]), broadcast=1, axis=1)
    case(name, old, [X, POSITIVE[0, 0, 0]], function(X, POSITIVE[0, 0, 0]), broadcast=1)
    case(name, [v for v in PUBLISHED[name] if v >= 7], [X[0], POSITIVE], function(X[0], POSITIVE))
case("Div", (7, 13, 14), [WHOLE, PARTS], np.trunc(WHOLE / PARTS).astype(np.int64))
case("Pow", (1,), [POSITIVE, Y[0, 0]], POSITIVE ** Y[0, 0], broadcast=1)
case("Pow", (7, 12, 13, 15), [POSITIVE, Y[0]], POSITIVE ** Y[0])
case("Pow", (12, 13, 15), [X, np.array([2, 3, 0, 1])], X ** [2, 3, 0, 1])
case("Pow", (12, 13, 15), [WHOLE, np.array(2)], WHOLE**2)
case("Pow", (12, 13, 15), [np.array([4, 9]), np.array(0.5)], np.array([2, 3]), slope=False, graph=())
case("Mod", None, [WHOLE, PARTS], WHOLE - np.floor(WHOLE / PARTS).astype(np.int64) * PARTS)
case("Mod", None, [WHOLE, PARTS], WHOLE - np.trunc(WHOLE / PARTS).astype(np.int64) * PARTS, fmod=1)
case("Mod", None, [X, POSITIVE], X - np.trunc(X / POSITIVE) * POSITIVE, fmod=1)
for name, several in {"Max": np.maximum, "Min": np.minimum, "Sum": np.add}.items():
    case(name, None, [X], X)
    case(name, None, [X, Y, POSITIVE], several(several(X, Y), POSITIVE))
    case(name, [v for v in PUBLISHED[name] if v >= 8], [X, Y[0], Y[:, :1]], several(several(X, Y[0]), Y[:, :1]))
case("Mean", None, [X, Y, POSITIVE], (X + Y + POSITIVE) / 3)
case("Clip", (1, 6), [X], np.clip(X, -1, 2), min=-1.0, max=2.0)
case("Clip", (1, 6), [X], np.maximum(X, -1), min=-1.0)
case("Clip", (11, 12, 13), [X, np.array(-1.0), np.array(2.0)], np.clip(X, -1, 2), graph=(0,))
case("Clip", (11, 12, 13), [X, None, np.array(2.0)], np.minimum(X, 2), graph=(0,))
case("Clip", (12, 13), [WHOLE, np.array(-2)], np.maximum(WHOLE, -2))
case("Clip", (1, 6), [X], np.clip(X, 0, 6), min=0.0, max=6.0)
case("Cast", (1,), [X], X.astype(np.int32), to="INT32", slope=False)
case("Cast", PUBLISHED["Cast"][1:], [X], X.astype(np.int64), to=7, slope=False)
case("Cast", PUBLISHED["Cast"][1:], [WHOLE], WHOLE.astype(np.float64), to=11)
case("CastLike", None, [WHOLE, np.zeros(1)], WHOLE.astype(np.float64), graph=())
case("Identity", None, [X], X)

# Functions of one number

ERF = np.vectorize(math.erf)
for name, operand, result in (
    ("Neg", X, -X), ("Abs", X, abs(X)), ("Exp", X, np.exp(X)), ("Log", POSITIVE, np.log(POSITIVE)),
    ("Sqrt", POSITIVE, np.sqrt(POSITIVE)), ("Sin", X, np.sin(X)), ("Cos", X, np.cos(X)), ("Tan", X / 4, np.tan(X / 4)),
    ("Atan", X, np.arctan(X)),
    ("Reciprocal", POSITIVE, 1 / POSITIVE), ("Erf", X, ERF(X)), ("Sigmoid", X, 1 / (1 + np.exp(-X))),
    ("Tanh", X, np.tanh(X)), ("Relu", X, np.maximum(X, 0)), ("Softplus", X, np.log1p(np.exp(X))),
    ("Softsign", X, X / (1 + abs(X))), ("Mish", X, X * np.tanh(np.log1p(np.exp(X)))),
    ("HardSwish", X, X * np.clip(X / 6 + 0.5, 0, 1)), ("Gelu", X, X * (1 + ERF(X / math.sqrt(2))) / 2),
    ("Swish", X, X / (1 + np.exp(-X))),
):  # fmt: skip
    case(name, None, [operand], result)
for name, step in {"Floor": np.floor, "Ceil": np.ceil, "Round": np.rint, "Sign": np.sign}.items():
    case(name, None, [X], step(X), slope=False)
ODD = np.array([1.0, math.inf, -math.inf, math.nan])
case("Round", None, [np.array([0.5, 1.5, 2.5, -0.5, -1.5])], np.array([0.0, 2, 2, 0, -2]), slope=False)
case("IsNaN", None, [ODD], np.isnan(ODD), slope=False)
case("IsInf", None, [ODD], np.isinf(ODD), slope=False)
case("IsInf", None, [ODD], math.inf == ODD, slope=False, detect_negative=0)
case("IsInf", None, [ODD], -math.inf == ODD, slope=False, detect_positive=0)
case("IsInf", None, [ODD], np.zeros(4, bool), slope=False, detect_positive=0, detect_negative=0)
case("Relu", (14,), [WHOLE], np.maximum(WHOLE, 0))
case("LeakyRelu", None, [X], np.where(X > 0, X, 0.25 * X), alpha=0.25)
case("LeakyRelu", None, [X], np.where(X > 0, X, 0.01 * X))
case("Elu", None, [X], np.where(X > 0, X, 0.5 * np.expm1(X)), alpha=0.5)
case("Celu", None, [X], np.where(X > 0, X, 0.5 * np.expm1(X / 0.5)), alpha=0.5)
for versions, alpha, gamma in (((1,), 1.6732, 1.0507), ((6, 22), 1.6732632, 1.050701)):
    case("Selu", versions, [X], gamma * np.where(X > 0, X, alpha * np.expm1(X)))
case("HardSigmoid", None, [X], np.clip(X * 0.2 + 0.5, 0, 1))
case("HardSigmoid", None, [X], np.clip(X * 0.25 + 0.125, 0, 1), alpha=0.25, beta=0.125)
case("ThresholdedRelu", None, [X], np.where(X > 0.5, X, 0), alpha=0.5)
case("Swish", None, [X], X / (1 + np.exp(-2 * X)), alpha=2.0)
CUBIC = X + 0.044715 * X**3
case("Gelu", None, [X], X / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * CUBIC)), approximate="tanh")
SLOPES = POSITIVE[0, :, 0]
case("PRelu", (1, 6), [X, SLOPES], np.where(X > 0, X, X * SLOPES[:, None]))
case("PRelu", (1, 6), [X, SLOPES[:1]], np.where(X > 0, X, X * SLOPES[0]))
case("PRelu", (7, 9, 16), [X, SLOPES[:, None]], np.where(X > 0, X, X * SLOPES[:, None]))
case("PRelu", (9, 16), [WHOLE, np.array([2])], np.where(WHOLE > 0, WHOLE, WHOLE * 2))


def soft(x: Any, axis: Any) -> Any:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


for name, after in {"Softmax": lambda y: y, "LogSoftmax": np.log}.items():
    case(name, (1, 11), [X], after(soft(X, (1, 2))))
    case(name, (1, 11), [X], after(soft(X, (0, 1, 2))), axis=0)
    case(name, (1, 11, 13), [X], after(soft(X, 2)), axis=2)
    case(name, (11, 13), [X], after(soft(X, 2)), axis=-1)
    case(name, (13,), [X], after(soft(X, 1)), axis=1)
    case(name, (13,), [X], after(soft(X, 2)))

# Comparisons and logic

for name, relation in {"Equal": np.equal, "Less": np.less, "Greater": np.greater}.items():
    case(name, (1,), [np.rint(X), np.rint(Y)], relation(np.rint(X), np.rint(Y)), slope=False)
    case(name, (1,), [X, X[0, :, 0]], relation(X, X[0, :, :1]), slope=False, broadcast=1, axis=1)
    later = [v for v in PUBLISHED[name] if v >= 7]
    case(name, later, [np.rint(X), np.rint(Y[0])], relation(np.rint(X), np.rint(Y[0])), slope=False)
case("GreaterOrEqual", None, [WHOLE, WHOLE[0]], WHOLE[0] <= WHOLE)
case("LessOrEqual", None, [WHOLE, WHOLE[0]], WHOLE[0] >= WHOLE)
for name, relation in {"And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor}.items():
    case(name, (1,), [BITS, BITS[0, 0]], relation(BITS, BITS[0, 0]), broadcast=1)
    case(name, (7,), [BITS, BITS[0]], relation(BITS, BITS[0]))
case("Not", None, [BITS], ~BITS)
case("Where", None, [BITS[0], X, Y[:, :1]], np.where(BITS[0], X, Y[:, :1]))
case("Where", None, [BITS[0], WHOLE, WHOLE[1]], np.where(BITS[0], WHOLE, WHOLE[1]))

# Products

case("MatMul", None, [X, Y[0].T], X @ Y[0].T)
case("MatMul", (9, 13), [WHOLE, PARTS.T], WHOLE @ PARTS.T)
A, B, C = X[0], Y[0].T, RNG.normal(size=(3, 3))
case("Gemm", (1, 6), [A, B, C[0]], A @ B + C[0], broadcast=1)
case("Gemm", None, [A.T, B, C], 0.5 * A @ B + 2 * C, alpha=0.5, beta=2.0, transA=1)
case("Gemm", (7, 9, 11, 13), [A, B.T, C[0]], A @ B + C[0], transB=1)
case("Gemm", (11, 13), [A, B], A @ B)
case("Gemm", (9, 11, 13), [WHOLE[0], PARTS.T, np.array(3)], WHOLE[0] @ PARTS.T + 3)

case("Einsum", None, [X, Y], np.einsum("aij,akj->aik", X, Y), equation="aij,akj->aik")
case(
    "Einsum", None, [X[0], Y[0], POSITIVE[0]], np.einsum("ij,kj,ij->k", X[0], Y[0], POSITIVE[0]), equation="ij,kj,ij->k"
)
case("Einsum", None, [X], X.swapaxes(1, 2), equation="...ij -> ...ji")
case("Einsum", None, [WHOLE, PARTS], np.einsum("bij,ij", WHOLE, PARTS), equation="bij,ij")

# Quantization: tests/functional/test_quantization.py has the gradients

STEP, ZERO = np.array(0.05), np.array(-7, np.int8)
EIGHT = np.clip(np.rint(X / 0.05) - 7, -128, 127).astype(np.int8)
STEPS, ZEROS = np.array([0.05, 0.1, 0.3]), np.array([0, 100, 200], np.uint8)
EACH = np.clip(np.rint(X / STEPS[:, None]) + ZEROS[:, None], 0, 255).astype(np.uint8)
case("QuantizeLinear", None, [X, STEP, ZERO], EIGHT, graph=(0,))
case("QuantizeLinear", None, [X, STEP], np.clip(np.rint(X / 0.05), 0, 255).astype(np.uint8), graph=(0,))
case("QuantizeLinear", PUBLISHED["QuantizeLinear"][1:], [X, STEPS, ZEROS], EACH, graph=(0,))
BLOCKS = np.abs(Y[:, :2]) + 0.01
WIDE_BLOCKS = BLOCKS.repeat(2, 1)[:, :3]
SIXTEEN = np.clip(np.rint(X / (WIDE_BLOCKS / 5000)), -32768, 32767).astype(np.int16)
case("QuantizeLinear", PUBLISHED["QuantizeLinear"][3:], [X, BLOCKS / 5000], SIXTEEN, graph=(0,), axis=-2, block_size=2,
     output_dtype=5)  # fmt: skip
case("DequantizeLinear", None, [EIGHT, STEP, ZERO], (EIGHT.astype(np.int64) + 7) * 0.05, graph=(0,))
case("DequantizeLinear", None, [WHOLE.astype(np.int32), STEP], WHOLE * 0.05, graph=(0,))
case("DequantizeLinear", PUBLISHED["DequantizeLinear"][1:], [EACH, STEPS, ZEROS],
     (EACH - ZEROS[:, None].astype(np.int64)) * STEPS[:, None], graph=(0,), axis=-2)  # fmt: skip
case("DequantizeLinear", PUBLISHED["DequantizeLinear"][3:], [SIXTEEN, BLOCKS], SIXTEEN * WIDE_BLOCKS, graph=(0,),
     block_size=2)  # fmt: skip
SPAN = np.maximum(X.max(), 0) - np.minimum(X.min(), 0)
MIDDLE = np.rint(-np.minimum(X.min(), 0) / (SPAN / 255))
case(
    "DynamicQuantizeLinear", None, [X], np.clip(np.rint(X / (SPAN / 255)) + MIDDLE, 0, 255).astype(np.uint8), outputs=3
)

# Positions: tests/functional/test_sampling.py has every mode

HALFWAY = np.array([[[[-0.75, -0.6], [0.5, 0.2]]], [[[0.1, 0.55], [0.25, -0.4]]]])
POINTS = (HALFWAY + 1) / 2 * [5, 4]  # of x with 5 rows and 6 columns, whose outer centres are at -1 and 1


def between(x: Any, points: Any) -> Any:
    """x at (across, down) between its elements, for every channel."""
    j, i = np.floor(points).astype(int)
    t, s = points[0] - j, points[1] - i
    return (1 - s) * ((1 - t) * x[:, i, j] + t * x[:, i, j + 1]) + s * (
        (1 - t) * x[:, i + 1, j] + t * x[:, i + 1, j + 1]
    )


READ = np.stack([[[between(x, p) for p in row] for row in rows] for x, rows in zip(IMAGE, POINTS, strict=True)])
case("GridSample", None, [IMAGE, HALFWAY], np.moveaxis(READ, -1, 1), align_corners=1)
NEAREST = np.rint(POINTS).astype(int)
READ = np.stack([[[x[:, i, j] for j, i in row] for row in rows] for x, rows in zip(IMAGE, NEAREST, strict=True)])
case("GridSample", None, [IMAGE, HALFWAY], np.moveaxis(READ, -1, 1), align_corners=1, mode="nearest")
THETA = RNG.normal(size=(2, 2, 3))
ENDS = np.stack([*np.meshgrid([-1, 0, 1], [-0.75, -0.25, 0.25, 0.75])[::1], np.ones((4, 3))], -1)
ENDS[..., 0] *= 2 / 3
case("AffineGrid", None, [THETA, np.array([2, 5, 4, 3])], np.einsum("hwk,nak->nhwa", ENDS, THETA), graph=(0,))

# Reductions

FORMULAS: dict[str, Callable[..., Any]] = {
    "ReduceSum": np.sum, "ReduceMean": np.mean, "ReduceProd": np.prod, "ReduceMax": np.max, "ReduceMin": np.min,
    "ReduceL1": lambda x, axis, keepdims: abs(x).sum(axis, keepdims=keepdims),
    "ReduceL2": lambda x, axis, keepdims: np.sqrt((x * x).sum(axis, keepdims=keepdims)),
    "ReduceSumSquare": lambda x, axis, keepdims: (x * x).sum(axis, keepdims=keepdims),
    "ReduceLogSum": lambda x, axis, keepdims: np.log(x.sum(axis, keepdims=keepdims)),
    "ReduceLogSumExp": lambda x, axis, keepdims: np.log(np.exp(x).sum(axis, keepdims=keepdims)),
}  # fmt: skip
for name, formula in FORMULAS.items():
    data = POSITIVE if name == "ReduceLogSum" else X
    moved = 13 if name == "ReduceSum" else 18
    before = [v for v in PUBLISHED[name] if v < moved]
    since = [v for v in PUBLISHED[name] if v >= moved]
    case(name, None, [data], formula(data, axis=None, keepdims=True))
    for axes, keepdims in itertools.product([(1,), (0, -1)], [0, 1]):
        result = formula(data, axis=axes, keepdims=bool(keepdims))
        case(name, before, [data], result, axes=axes, keepdims=keepdims)
        case(name, since, [data, np.array(axes)], result, keepdims=keepdims)
    nothing = data if name in ("ReduceSum", "ReduceMean", "ReduceProd", "ReduceMax", "ReduceMin") else formula(
        data[None], axis=(0,), keepdims=False
    )  # fmt: skip
    case(name, since, [data], nothing, noop_with_empty_axes=1)
case("ReduceSum", (13,), [WHOLE.astype(np.int32)], WHOLE.sum(dtype=np.int32).reshape(1, 1, 1))
case("ReduceMax", (20,), [BITS], BITS.any().reshape(1, 1, 1))
EQUAL = np.array([[1.0, 3, 3], [4, 4, 0]])
for name, place in {"ArgMax": np.argmax, "ArgMin": np.argmin}.items():
    case(name, None, [X], place(X, 0, keepdims=True), slope=False)
    case(name, None, [X], place(X, 1), slope=False, axis=1, keepdims=0)
    last = 2 - place(EQUAL[:, ::-1], 1)
    case(name, (12, 13), [EQUAL], last, slope=False, axis=-1, keepdims=0, select_last_index=1)

# Elements chosen

TIED = np.array([[3.0, 1, 3, 2], [0, 5, 5, 5]])
case("TopK", (1,), [X], -np.sort(-X, 2)[..., :2], k=2, outputs=2)
case("TopK", (10, 11, 24), [TIED, np.array([2])], np.array([[3.0, 3], [5, 5]]), outputs=2, slope=False)
case("TopK", (11, 24), [X, np.array([2])], np.sort(X, 1)[:, :2], outputs=2, axis=1, largest=0)
HOT = np.array([1, 0, -1, 7])
case("OneHot", (11, 28), [HOT, np.array(3), np.array([0.0, 5.0])],
     5.0 * np.array([[0, 1, 0], [1, 0, 0], [0, 0, 1], [0, 0, 0]]), slope=False, graph=(0,))  # fmt: skip
case("OneHot", (9,), [HOT[:2], np.array(3), np.array([1, 0])], np.array([[1, 0], [0, 1], [1, 1]]), axis=0, graph=(0,))
case("Hardmax", (13,), [TIED], np.array([[1.0, 0, 0, 0], [0, 1, 0, 0]]), slope=False)
case("Hardmax", (1, 11), [TIED], np.array([[0.0, 0, 0, 0], [0, 1, 0, 0]]), slope=False, axis=0)
PAIR = np.array([[[0, 1], [1, -1]]])
case("GatherND", None, [X, PAIR], X[PAIR[..., 0], PAIR[..., 1]])
case("GatherND", (12, 13), [X, np.array([[2], [0]])], np.stack([X[0, 2], X[1, 0]]), batch_dims=1)
case("Trilu", None, [X], np.triu(X))
case("Trilu", None, [X, np.array(-1)], np.tril(X, -1), upper=0)
case("CumSum", None, [X, np.array(1)], X.cumsum(1))
case("CumSum", None, [X, np.array(-1)], X[..., ::-1].cumsum(2)[..., ::-1], reverse=1)
case("CumSum", None, [X, np.array(2)], X.cumsum(2) - X, exclusive=1)
case("CumProd", None, [X, np.array(1)], X.cumprod(1))
case("CumProd", None, [X, np.array(-1)], X[..., ::-1].cumprod(2)[..., ::-1], reverse=1)
LATE = np.concatenate([np.ones_like(WHOLE[:1]), WHOLE[:-1]])  # one place later
case("CumProd", None, [WHOLE, np.array(0)], LATE.cumprod(0), exclusive=1)
case("CumSum", None, [WHOLE, np.array(0)], WHOLE[::-1].cumsum(0)[::-1] - WHOLE, exclusive=1, reverse=1)

# Shapes

case("Reshape", (1,), [X], X.reshape(2, 12), shape=(0, -1))
case("Reshape", (5, 13, 14, 19, 21, 23, 24, 25), [X, np.array([0, -1])], X.reshape(2, 12))
case("Reshape", (14, 25), [np.zeros((0, 3)), np.array([3, 0])], np.zeros((3, 0)), allowzero=1)
case("Flatten", None, [X], X.reshape(2, 12))
case("Flatten", None, [X], X.reshape(1, 24), axis=0)
case("Flatten", PUBLISHED["Flatten"][2:], [X], X.reshape(6, 4), axis=-1)
case("Transpose", None, [X], X.T)
case("Transpose", None, [X], X.transpose(1, 2, 0), perm=(1, 2, 0))
case("Squeeze", (1, 11), [X[:1, :, :1]], X[0, :, 0], axes=(0, 2))
case("Squeeze", None, [X[:1, :, :1]], X[0, :, 0])
case("Squeeze", PUBLISHED["Squeeze"][2:], [X[:1], np.array([-3])], X[0])
case("Unsqueeze", (1, 11), [X], X[None, :, :, None], axes=(0, 3))
case("Unsqueeze", PUBLISHED["Unsqueeze"][2:], [X, np.array([-1, 0])], X[None, ..., None])
case("Concat", (1,), [X, Y], np.concatenate([X, Y], 1))
case("Concat", None, [X, Y[:1]], np.concatenate([X, Y[:1]]), axis=0)
case("Split", (1, 2, 11), [X], X[..., :1], split=(1, 3), axis=2, outputs=2)
case("Split", (1,), [X, np.array([1.0, 2.0])], X[:, :1], graph=(0,), axis=1, outputs=2)
case("Split", (13, 18), [X, np.array([1, 3])], X[..., :1], axis=-1, outputs=2)
case("Split", (2, 11, 13), [X], X[..., :2], axis=2, outputs=2)
case("Split", (18,), [X], X[..., :2], axis=2, outputs=3, num_outputs=3, slope=False)
case("Split", (18,), [np.arange(7.0)], np.arange(3.0), outputs=3, num_outputs=3)
case("Slice", (1,), [X], X[:, 1:3, :-1], axes=(1, 2), starts=(1, 0), ends=(9, -1))
case("Slice", (1,), [X], X[1:, 1:], starts=(1, 1), ends=(2, 3))
BOUNDS = [np.array([-1, 0]), np.array([-99, 2**62]), np.array([2, 1]), np.array([-2, 2])]
case("Slice", (10, 11, 13), [X, *BOUNDS], X[:, ::2, ::-2])
case("Slice", (10, 11, 13), [X, np.array([1]), np.array([2])], X[1:2])
BEFORE = [np.array([n]) for n in (-9, -(2**31), 1, -1)]
case("Slice", (10, 11, 13), [X, *BEFORE], X[:, :1])  # clamped to the first element
case("Slice", (10, 11, 13), [X, np.array([3]), np.array([1]), np.array([1])], X[:, 3:1])
case("Gather", None, [X, np.array([[0, 2], [2, 2]])], X[:, [[0, 2], [2, 2]]], axis=1)
case("Gather", (11, 13), [X, np.array(-1)], X[-1])
ORDER = RNG.integers(0, 3, (2, 5, 4))
case("GatherElements", None, [X, ORDER], np.take_along_axis(X, ORDER, 1), axis=1)
case("GatherElements", None, [X, ORDER - 3], np.take_along_axis(X, ORDER, 1), axis=1)
HERE = np.array([[[2, 0, 1, 1]], [[-1, 1, -3, 0]]])
PUT, ADDED = X.copy(), X.copy()
np.put_along_axis(PUT, HERE, Y[:, :1], 1)
np.put_along_axis(ADDED, HERE, np.take_along_axis(X, HERE, 1) + Y[:, :1], 1)
case("Scatter", (11,), [X, HERE, Y[:, :1]], PUT, axis=1)
case("Scatter", (9,), [X, HERE % 3, Y[:, :1]], PUT, axis=1)
case("ScatterElements", None, [X, HERE, Y[:, :1]], PUT, axis=1)
case("ScatterElements", (16, 18), [X, HERE, Y[:, :1]], ADDED, axis=-2, reduction="add")
PUT, BELOW = X.copy(), X.copy()
PUT[[0, 1], [2, 0]] = Y[0, :2]
BELOW[[0, 1], [2, 0]] = np.minimum(X[[0, 1], [2, 0]], Y[0, :2])
case("ScatterND", None, [X, np.array([[0, 2], [1, -3]]), Y[0, :2]], PUT)
case("ScatterND", (18,), [X, np.array([[0, 2], [1, -3]]), Y[0, :2]], BELOW, reduction="min")
case("Expand", None, [X[:, :1], np.array([5, 1, 3, 1])], np.broadcast_to(X[:, :1], (5, 2, 3, 4)))
case("Tile", (1,), [X, np.array(3.0), np.array(1.0)], np.tile(X, (1, 3, 1)), graph=(0,))
case("Tile", (6, 13), [X, np.array([2, 1, 3])], np.tile(X, (2, 1, 3)))
AROUND = ((0, 0), (1, 2), (2, 0))
PADS = (0, 1, 2, 0, 2, 0)
case("Pad", (1,), [X], np.pad(X, AROUND, constant_values=1.5), paddings=PADS, value=1.5)
case("Pad", (2,), [X], np.pad(X, AROUND, constant_values=1.5), pads=PADS, value=1.5)
NEW_PAD = PUBLISHED["Pad"][2:]
case("Pad", NEW_PAD, [X, np.array(PADS), np.array(1.5)], np.pad(X, AROUND, constant_values=1.5), graph=(0,))
case("Pad", NEW_PAD, [X, np.array([0, -1, 2, 0, 2, -1])], np.pad(X[:, 1:, :3], ((0, 0), (0, 2), (2, 0))))
for mode in ("reflect", "edge"):
    case("Pad", (1,), [X], np.pad(X, AROUND, mode), paddings=PADS, mode=mode)
    case("Pad", (2,), [X], np.pad(X, AROUND, mode), pads=PADS, mode=mode)
    case("Pad", NEW_PAD, [X, np.array(PADS)], np.pad(X, AROUND, mode), mode=mode)
case("Pad", NEW_PAD[3:], [X, np.array(PADS)], np.pad(X, AROUND, "wrap"), mode="wrap")
case("Pad", NEW_PAD[2:], [X, np.array([2, 0]), None, np.array([-1])], np.pad(X, ((0, 0), (0, 0), (2, 0))))
case("Shape", None, [X], np.array([2, 3, 4]), slope=False)
case("Shape", PUBLISHED["Shape"][2:], [X], np.array([3]), slope=False, start=1, end=-1)
case("Size", None, [X], np.array(24), slope=False)
case("ConstantOfShape", None, [np.array([2, 3])], np.zeros((2, 3), np.float32))
SEVEN = onnx.helper.make_tensor("value", onnx.TensorProto.INT32, [1], [7])
case("ConstantOfShape", None, [np.array([2])], np.array([7, 7], np.int32), value=SEVEN)
case("Range", None, [np.array(3), np.array(10), np.array(3)], np.array([3, 6, 9]))
case("Range", None, [np.array(1.0), np.array(-1.0), np.array(-0.75)], np.array([1, 0.25, -0.5]), slope=False, graph=())
BLOCKS = np.arange(2 * 8 * 2 * 3.0).reshape(2, 8, 2, 3)
DCR = BLOCKS.reshape(2, 2, 2, 2, 2, 3).transpose(0, 3, 4, 1, 5, 2).reshape(2, 2, 4, 6)
CRD = BLOCKS.reshape(2, 2, 2, 2, 2, 3).transpose(0, 1, 4, 2, 5, 3).reshape(2, 2, 4, 6)
case("DepthToSpace", None, [BLOCKS], DCR, blocksize=2)
case("DepthToSpace", (11, 13, 28), [BLOCKS], CRD, blocksize=2, mode="CRD")
case("SpaceToDepth", None, [DCR], BLOCKS, blocksize=2)
case("SpaceToDepth", (28,), [CRD], BLOCKS, blocksize=2, mode="CRD")

# Convolution and pooling, against sums over taps in which the padding is written out

KERNEL, BIAS = RNG.normal(size=(6, 2, 3, 2)), RNG.normal(size=6)


def convolved(x: Any, w: Any, groups: int, stride: tuple[int, int], pads: Any, dilation: tuple[int, int]) -> Any:
    x = np.pad(x, ((0, 0), (0, 0), *pads))
    spans = [d * (k - 1) + 1 for k, d in zip(w.shape[2:], dilation, strict=True)]
    size = [(n - span) // s + 1 for n, span, s in zip(x.shape[2:], spans, stride, strict=True)]
    y = np.zeros((len(x), len(w), *size))
    each_in, each_out = x.shape[1] // groups, len(w) // groups
    for i, j in np.ndindex(*size):
        at = [slice(o * s, o * s + span, d) for o, s, span, d in zip((i, j), stride, spans, dilation, strict=True)]
        for group in range(groups):
            part = x[:, group * each_in : (group + 1) * each_in, at[0], at[1]]
            outputs = slice(group * each_out, (group + 1) * each_out)
            y[:, outputs, i, j] = np.einsum("nchw,ochw->no", part, w[outputs])
    return y


CONV = {"strides": (2, 1), "dilations": (1, 2), "group": 2}
for spelled, pairs in (
    ({"pads": (1, 0, 2, 1)}, ((1, 2), (0, 1))), ({"auto_pad": "SAME_UPPER"}, ((1, 1), (1, 1))),
    ({"auto_pad": "SAME_LOWER"}, ((1, 1), (1, 1))), ({"auto_pad": "VALID"}, ((0, 0), (0, 0))),
):  # fmt: skip
    result = convolved(IMAGE, KERNEL, 2, (2, 1), pairs, (1, 2))
    case("Conv", None, [IMAGE, KERNEL], result, **CONV, **spelled)
case("Conv", None, [IMAGE, KERNEL, BIAS], result + BIAS[:, None, None], **CONV, auto_pad="VALID", kernel_shape=(3, 2))

BACK = RNG.normal(size=(4, 3, 3, 2))  # (C, O / groups, *kernel)


def transposed(
    x: Any, w: Any, groups: int, stride: tuple[int, int], size: tuple[int, int], low: tuple[int, int]
) -> Any:
    each = w.shape[1]
    y = np.zeros((len(x), each * groups, 40, 40))
    share = x.shape[1] // groups
    for c, i, j, k, m in np.ndindex(*x.shape[1:], *w.shape[2:]):
        outputs = slice(c // share * each, c // share * each + each)
        y[:, outputs, i * stride[0] + k, j * stride[1] + m] += x[:, c, i, j, None] * w[c, :, k, m]
    return y[:, :, low[0] : low[0] + size[0], low[1] : low[1] + size[1]]


SMALL = IMAGE[:, :, :3, :2]
for spelled, size, low in (
    ({"pads": (1, 0, 0, 1)}, (6, 4), (1, 0)), ({"output_padding": (1, 2)}, (8, 7), (0, 0)),
    ({"output_shape": (6, 5)}, (6, 5), (1, 0)), ({"output_shape": (6, 5), "auto_pad": "SAME_UPPER"}, (6, 5), (0, 0)),
    ({"output_shape": (8, 6)}, (8, 6), (0, 0)), ({"auto_pad": "SAME_UPPER"}, (6, 6), (0, 0)),
    ({"auto_pad": "SAME_LOWER"}, (6, 6), (1, 0)),
):  # fmt: skip
    result = transposed(SMALL, BACK, 2, (2, 3), size, low)
    case("ConvTranspose", None, [SMALL, BACK, BIAS], result + BIAS[:, None, None], strides=(2, 3), group=2, **spelled)


def pooled(x: Any, kernel: Any, stride: Any, pads: Any, out: Any, function: Callable[[Any], Any]) -> Any:
    """`function` of each window (N, C, taps) of x, NaN outside x."""
    x = np.pad(x, ((0, 0), (0, 0), *((low, high + 9) for low, high in pads)), constant_values=math.nan)
    y = np.zeros((*x.shape[:2], *out))
    for i, j in np.ndindex(*out):
        rows, columns = (slice(o * s, o * s + k) for o, s, k in zip((i, j), stride, kernel, strict=True))
        y[:, :, i, j] = function(x[:, :, rows, columns].reshape(*x.shape[:2], -1))
    return y


def lp(p: float) -> Callable[[Any], Any]:
    return lambda window: np.nansum(abs(window) ** p, -1) ** (1 / p)


LARGEST, AVERAGE = (lambda window: np.nanmax(window, -1)), (lambda window: np.nanmean(window, -1))
WINDOW = {"kernel_shape": (3, 2), "strides": (2, 2)}
PADDED = ((2, 1), (0, 1))  # more than half the kernel
AROUND_WINDOW = {"pads": (2, 0, 1, 1)}
for name, function in {"MaxPool": LARGEST, "AveragePool": AVERAGE, "LpPool": lp(2)}.items():
    plain = pooled(IMAGE, (3, 2), (2, 2), ((0, 0), (0, 0)), (2, 3), function)
    case(name, None, [IMAGE], plain, **WINDOW)
    case(name, None, [IMAGE], plain, **WINDOW, auto_pad="VALID")
    case(name, None, [IMAGE], pooled(IMAGE, (3, 2), (2, 2), PADDED, (3, 3), function), **WINDOW, **AROUND_WINDOW)
    same = pooled(IMAGE, (3, 2), (2, 2), ((1, 1), (0, 0)), (3, 3), function)
    case(name, None, [IMAGE], same, **WINDOW, auto_pad="SAME_UPPER")
    newer = [v for v in PUBLISHED[name] if v >= (18 if name == "LpPool" else 10)]
    over = pooled(IMAGE, (2, 4), (2, 3), ((0, 0), (0, 0)), (3, 2), function)
    case(name, newer, [IMAGE], over, kernel_shape=(2, 4), strides=(2, 3), ceil_mode=1)
cubes = pooled(IMAGE, (3, 2), (2, 2), ((0, 0),) * 2, (2, 3), lp(3))
case("LpPool", (1,), [IMAGE], cubes, **WINDOW, p=3.0)
case("LpPool", PUBLISHED["LpPool"][1:], [IMAGE], cubes, **WINDOW, p=3)
zeros = pooled(np.pad(IMAGE, ((0, 0), (0, 0), *PADDED)), (3, 2), (2, 2), ((0, 0),) * 2, (3, 3), AVERAGE)
case("AveragePool", PUBLISHED["AveragePool"][1:], [IMAGE], zeros, **WINDOW, **AROUND_WINDOW, count_include_pad=1)
spaced = pooled(IMAGE[:, :, ::2, ::2], (2, 2), (1, 1), ((0, 0),) * 2, (2, 2), AVERAGE)
case("AveragePool", (19, 22), [IMAGE], spaced, kernel_shape=(2, 2), dilations=(2, 2), strides=(2, 2))
spaced = pooled(IMAGE[:, :, ::2, ::2], (2, 2), (1, 1), ((0, 0),) * 2, (2, 2), LARGEST)
case("MaxPool", (10, 11, 12, 22), [IMAGE], spaced, kernel_shape=(2, 2), dilations=(2, 2), strides=(2, 2))
case("MaxPool", (12, 22), [np.arange(6, dtype=np.uint8).reshape(1, 1, 6)],
     np.array([[[1, 3, 5]]], np.uint8), kernel_shape=(2,), strides=(2,))  # fmt: skip
case("GlobalAveragePool", None, [IMAGE], IMAGE.mean((2, 3), keepdims=True))
case("GlobalMaxPool", None, [IMAGE], IMAGE.max((2, 3), keepdims=True))
case("GlobalLpPool", None, [IMAGE], np.sqrt((IMAGE**2).sum((2, 3), keepdims=True)))
case("GlobalLpPool", (1,), [IMAGE], abs(IMAGE).sum((2, 3), keepdims=True), p=1.0)
case("GlobalLpPool", (2, 22), [IMAGE], abs(IMAGE).sum((2, 3), keepdims=True), p=1)

# Resize: tests/onnx/test_resize.py has more

DOUBLED = IMAGE.repeat(2, 2).repeat(3, 3)
SCALES = np.array([1, 1, 2, 3], np.float32)
NOTHING = np.zeros(0, np.float32)
FLOOR = {"nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
case("Upsample", (1,), [IMAGE], DOUBLED, height_scale=2.0, width_scale=3.0)
case("Upsample", (7,), [IMAGE], DOUBLED, scales=SCALES)
case("Upsample", (9, 10), [IMAGE, SCALES], DOUBLED, graph=(0,))
case("Resize", (10,), [IMAGE, SCALES], DOUBLED, graph=(0,))
case("Resize", (11, 13, 18, 19), [IMAGE, NOTHING, SCALES], DOUBLED, graph=(0,), **FLOOR)
LENGTHS = np.array([2, 4, 10, 18])
case("Resize", (11,), [IMAGE, NOTHING, NOTHING, LENGTHS], DOUBLED, graph=(0,), **FLOOR)
case("Resize", (13, 18, 19), [IMAGE, None, None, LENGTHS], DOUBLED, graph=(0,), **FLOOR)

# Losses

LOGITS, LABELS, WEIGHTS = RNG.normal(size=(5, 4, 2)), RNG.integers(0, 4, (5, 2)), RNG.uniform(0.5, 2, 4)
LOGP = np.log(soft(LOGITS, 1))
for name, scores, logp in (("SoftmaxCrossEntropyLoss", LOGITS, LOGP), ("NegativeLogLikelihoodLoss", LOGP, LOGP)):
    each = -np.take_along_axis(logp, LABELS[:, None], 1)[:, 0]
    shares = WEIGHTS[LABELS]
    counted = LABELS != 2
    case(name, None, [scores, LABELS], each.mean())
    case(name, None, [scores, LABELS], each, reduction="none")
    case(name, None, [scores, LABELS, WEIGHTS], (each * shares).sum() / shares.sum(), graph=(0,))
    case(name, None, [scores, LABELS, WEIGHTS], (each * shares).sum(), graph=(0,), reduction="sum")
    case(name, None, [scores, LABELS], each[counted].mean(), ignore_index=2)

# Angles and hyperbolic functions, and gates

UNIT, ABOVE = RNG.uniform(-0.9, 0.9, (2, 3, 4)), RNG.uniform(1.1, 4, (2, 3, 4))
for name, function, operand in (
    ("Asin", np.arcsin, UNIT), ("Acos", np.arccos, UNIT), ("Atanh", np.arctanh, UNIT), ("Sinh", np.sinh, X),
    ("Cosh", np.cosh, X), ("Asinh", np.arcsinh, X), ("Acosh", np.arccosh, ABOVE),
):  # fmt: skip
    case(name, None, [operand], function(operand))
case("Shrink", None, [X], np.where(X < -0.5, X + 0.2, np.where(X > 0.5, X - 0.2, 0)), bias=0.2)
case("Shrink", None, [WHOLE], np.where(abs(WHOLE) > 3, WHOLE, 0), lambd=3.0)
case("SwiGLU", None, [X, Y], X / (1 + np.exp(-0.7 * X)) * Y, alpha=0.7)

# Bits

for name, function in (("And", np.bitwise_and), ("Or", np.bitwise_or), ("Xor", np.bitwise_xor)):
    case(f"Bitwise{name}", None, [WHOLE, PARTS], function(WHOLE, PARTS), graph=(0, 1))
case("BitwiseNot", None, [WHOLE], -WHOLE - 1)
BYTES, COUNTS = RNG.integers(0, 256, (3, 4)).astype(np.uint8), np.array([0, 1, 7, 9], np.uint8)
case("BitShift", None, [BYTES, COUNTS], (BYTES.astype(int) << COUNTS).astype(np.uint8), graph=(0, 1), direction="LEFT")
case("BitShift", None, [BYTES, COUNTS], (BYTES.astype(int) >> COUNTS).astype(np.uint8), graph=(0, 1), direction="RIGHT")
case(
    "BitShift",
    (28,),
    [WHOLE, np.array([1, 0, 70, 2])],
    WHOLE >> np.array([1, 0, 63, 2]),
    graph=(0, 1),
    direction="RIGHT",
)
case("BitCast", None, [X], X.view(np.int64), slope=False, to=7)

# Chosen by value or place

CHOSEN = np.array([False, True, True])
case("Compress", None, [X, CHOSEN], X[:, 1:], axis=-2)
case("Compress", None, [X, np.arange(24) % 3 == 1], X.reshape(-1)[1::3])
case("NonZero", None, [np.round(X)], np.stack(np.nonzero(np.round(X))), slope=False)
AGAIN = np.array([2.5, -1.0, 2.5, 0.5, -1.0])
case("Unique", None, [X], np.sort(X.reshape(-1)))
case("Unique", None, [X], X[:, np.argsort(X[0, :, 0])], axis=1)
case("Unique", None, [AGAIN], np.array([-1, 0.5, 2.5]), slope=False)
case("Unique", None, [AGAIN], np.array([2.5, -1, 0.5]), slope=False, sorted=0)
case("Unique", None, [X[:, [1, 0, 1]]], X[:, [0, 1]][:, np.argsort(X[0, :2, 0])], slope=False, axis=1)
case("EyeLike", None, [X[0]], np.eye(3, 4, 1), slope=False, k=1)
case("EyeLike", None, [X[0]], np.eye(3, 4, dtype=np.int32), slope=False, dtype=6)
LENGTHS_BY_SAMPLE = np.array([1, 3])
TURNED = np.stack([X[0], X[1, ::-1]])
case("ReverseSequence", None, [X, LENGTHS_BY_SAMPLE], TURNED, batch_axis=0, time_axis=1)
case("ReverseSequence", None, [X.swapaxes(0, 1), LENGTHS_BY_SAMPLE], TURNED.swapaxes(0, 1))
CACHE = RNG.normal(size=(2, 3, 4))
WRITTEN, AROUND_END = CACHE.copy(), CACHE.copy()
WRITTEN[0, 1:], WRITTEN[1, :2] = X[0, :2], X[1, :2]
AROUND_END[0, [2, 0]], AROUND_END[1, 1:] = X[0, :2], X[1, :2]
case("TensorScatter", None, [CACHE, X[:, :2], np.array([1, 0])], WRITTEN)
case("TensorScatter", None, [CACHE, X[:, :2], np.array([2, 1])], AROUND_END, mode="circular", axis=1)

# Images cut, padded, folded, and put back where their maxima were

MIDDLE = np.pad(IMAGE[:, :, 1:4], ((0, 0), (0, 0), (0, 0), (1, 2)))
case("CenterCropPad", None, [IMAGE, np.array([3, 9])], MIDDLE, axes=(-2, -1))
case("CenterCropPad", None, [IMAGE, np.array([2, 4, 5, 6])], IMAGE)
COLUMNS = RNG.normal(size=(2, 3 * 4, 6))
FOLDED = np.zeros((2, 3, 5, 6))
for tap, (row, column) in enumerate(itertools.product(range(2), repeat=2)):
    parts = COLUMNS.reshape(2, 3, 4, 2, 3)[:, :, tap]
    FOLDED[:, :, row : row + 3 : 2, column : column + 5 : 2] += parts
case(
    "Col2Im",
    None,
    [COLUMNS, np.array([4, 5]), np.array([2, 2])],
    FOLDED[:, :, 1:, :5],
    strides=(2, 2),
    pads=(1, 0, 0, 1),
)
MAXIMA, PLACES = np.array([[[[1.5, 2], [3, 4]]]]), np.array([[[[5, 7], [13, 15]]]])
UNPOOLED = np.zeros((1, 1, 4, 4))
UNPOOLED.reshape(-1)[PLACES.reshape(-1)] = MAXIMA.reshape(-1)
case("MaxUnpool", None, [MAXIMA, PLACES], UNPOOLED, kernel_shape=(2, 2), strides=(2, 2))
case("MaxUnpool", None, [MAXIMA, PLACES, np.array([1, 1, 5, 4])], np.pad(UNPOOLED, ((0, 0), (0, 0), (0, 1), (0, 0))),
     kernel_shape=(2, 2), strides=(2, 2))  # fmt: skip

# Spectra

SQUARES = RNG.normal(size=(2, 3, 3))
case("Det", None, [SQUARES], np.linalg.det(SQUARES))
SINGULAR = SQUARES.copy()
SINGULAR[:, 2] = SINGULAR[:, 0] - SINGULAR[:, 1]
case("Det", None, [SINGULAR], np.zeros(2))


def pairs(z: Any) -> Any:
    return np.stack([z.real, z.imag], -1)


SIGNAL, WAVES = RNG.normal(size=(2, 7, 1)), RNG.normal(size=(2, 7, 3, 2))
Z = WAVES[..., 0] + 1j * WAVES[..., 1]
case("DFT", (17,), [SIGNAL], pairs(np.fft.fft(SIGNAL[..., 0])))
case("DFT", (17,), [SIGNAL], pairs(np.fft.rfft(SIGNAL[..., 0])), onesided=1)
case("DFT", (17,), [WAVES, np.array(5)], pairs(np.fft.ifft(Z, 5, axis=1)), inverse=1, axis=1)
case("DFT", (20,), [WAVES], pairs(np.fft.fft(Z, axis=2)))
case("DFT", (20,), [WAVES, np.array(9), np.array(-3)], pairs(np.fft.fft(Z, 9, axis=1)))
case("DFT", (20,), [WAVES, None, np.array(1)], np.fft.irfft(Z, axis=1)[..., None], inverse=1, onesided=1)
WINDOW_OF_SOUND = RNG.uniform(size=4)
FRAMES = np.stack([SIGNAL[:, i : i + 4, 0] * WINDOW_OF_SOUND for i in (0, 2)], 1)
case("STFT", None, [SIGNAL, np.array(2), WINDOW_OF_SOUND], pairs(np.fft.rfft(FRAMES)), graph=(0, 2))
case("STFT", None, [SIGNAL, np.array(2), WINDOW_OF_SOUND], pairs(np.fft.fft(FRAMES)), onesided=0)
ANGLE = 2 * np.pi * np.arange(6) / 6
for name, wave in (
    ("HannWindow", 0.5 - 0.5 * np.cos(ANGLE)),
    ("HammingWindow", 25 / 46 - 21 / 46 * np.cos(ANGLE)),
    ("BlackmanWindow", 0.42 - 0.5 * np.cos(ANGLE) + 0.08 * np.cos(2 * ANGLE)),
):
    case(name, None, [np.array(6)], wave, output_datatype=11)
    case(name, None, [np.array(7)], np.append(wave, wave[0]), output_datatype=11, periodic=0)

ELSEWHERE = {  # in separate files
    "LSTM", "GRU", "RNN", "RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli",
    "Multinomial",
    "If", "Loop", "Scan", "SequenceEmpty", "SequenceInsert", "SequenceErase", "SequenceConstruct", "SequenceLength",
    "SequenceAt", "SplitToSequence", "ConcatFromSequence",
    "BatchNormalization", "InstanceNormalization", "GroupNormalization", "LayerNormalization", "RMSNormalization",
    "MeanVarianceNormalization", "LRN", "LpNormalization", "Dropout", "Constant",
    "Attention", "RotaryEmbedding", "LinearAttention", "CausalConvWithState", "DeformConv", "MelWeightMatrix",
    "MatMulInteger", "ConvInteger", "QLinearMatMul", "QLinearConv", "NonMaxSuppression", "RoiAlign", "MaxRoiPool",
    "TfIdfVectorizer", "Optional", "OptionalHasElement", "OptionalGetElement",
}  # fmt: skip


def names(found: Case) -> str:
    return f"{found.operator}-{'-'.join(str(k) for k in found.attributes) or 'plain'}"


@pytest.mark.parametrize("given", CASES, ids=names)
def test_versions(one_node: Any, given: Case) -> None:
    arrays = [None if a is None else np.asarray(a) for a in given.inputs]
    graph = given.graph
    if graph is None:
        graph = tuple(i for i, a in enumerate(arrays) if a is not None and (a.dtype == np.float64 or i == 0))
    held = [i for i, a in enumerate(arrays) if a is not None and i not in graph]
    outputs = ["y", *(f"y{i}" for i in range(1, given.outputs))]
    for version in given.versions:
        model = mo.load(one_node(given.operator, arrays, version, outputs, held=held, **given.attributes))
        inputs = [arrays[i] for i in graph]
        result = model(*[mn.Tensor(a) for a in inputs])
        y = result[0] if given.outputs > 1 else result
        want = np.asarray(given.want)
        assert (y.dtype, y.shape) == (want.dtype, want.shape), version
        np.testing.assert_allclose(y.array, want, rtol=1e-11, atol=1e-11)
        assert not (y.requires_grad and want.dtype.kind != "f")
    if given.slope and any(a.dtype == np.float64 for a in inputs):
        gradcheck(model, *[a if a.dtype == np.float64 else mn.Tensor(a) for a in inputs])


UNITS = {mn.float32: 2.0**-23, mn.float16: 2.0**-10, mn.bfloat16: 2.0**-7}
ROUGH = {"Tan", "Mod", "ReduceProd", "Pow"}  # the result's error is the operand's, many times over


@pytest.mark.parametrize("dtype", UNITS, ids=str)
def test_narrow_types_follow_float64(one_node: Any, dtype: Any) -> None:
    """Operands are the same rounded numbers; the result has the operands' type and is off by a few units."""

    def result(given: Case, arrays: list[Any], version: int) -> Any:
        outputs = ["y", *(f"y{i}" for i in range(1, given.outputs))]
        held = [i for i, a in enumerate(arrays) if i and a is not None]
        model = mo.load(one_node(given.operator, arrays, version, outputs, held=held, **given.attributes))
        y = model(mn.Tensor(arrays[0]))
        return (y[0] if given.outputs > 1 else y).array

    for given in CASES:
        arrays = [None if a is None else np.asarray(a) for a in given.inputs]
        rounded = [a.astype(dtype) if a is not None and a.dtype == np.float64 else a for a in arrays]
        exact = [a.astype(np.float64) if a is not None and a.dtype == dtype else a for a in rounded]
        if rounded[0].dtype != dtype or "to" in given.attributes or given.operator in ROUGH:
            continue
        version = given.versions[-1]
        y, want = result(given, rounded, version), result(given, exact, version)
        assert y.dtype == (dtype if want.dtype == np.float64 else want.dtype), names(given)
        scale = abs(want[np.isfinite(want)]).max(initial=1) if want.dtype == np.float64 else 1
        np.testing.assert_allclose(
            y.astype(np.float64), want.astype(np.float64), rtol=0, atol=8 * UNITS[dtype] * scale, err_msg=names(given)
        )


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes", "message"),
    [
        ("LpPool", [IMAGE], {"kernel_shape": (2, 2), "p": 0}, "p is 0; expected a number above 0"),
        (
            "MaxPool",
            [IMAGE],
            {"kernel_shape": (9, 2)},
            "expected windows that are larger than the padding and that fit",
        ),
        ("Split", [X], {"num_outputs": 2**31 - 1}, "num_outputs is 2147483647, but there are 1 outputs"),
        ("Pad", [X, np.array([0, 0, 0, 0, 0, 2**40])], {}, "more than max_bytes"),
        ("Pad", [X, np.array([0, -4, 0, 0, 0, 0])], {}, "cuts off more elements than x"),
        ("Tile", [X, np.array([1, 1, 2**40])], {}, "more than max_bytes"),
        ("Expand", [X[:1], np.array([2**40, 1, 1])], {}, "more than max_bytes"),
        ("Gather", [X, np.array([5])], {}, "out of bounds"),
        ("Slice", [X, *map(np.array, ([0], [1], [0], [0]))], {}, "steps holds a 0"),
        ("Unsqueeze", [X, np.array([9])], {}, "expected different axes from -4 to 3"),
        ("Squeeze", [X, np.array([1])], {}, "expected axes of length 1"),
        ("DepthToSpace", [IMAGE], {"blocksize": 3}, "expected a multiple of blocksize"),
        ("PRelu", [X, np.zeros((5, 2, 3, 4))], {}, "expected a shape that broadcasts to"),
        ("ConstantOfShape", [np.array([2**40])], {}, "more than max_bytes"),
        ("Range", [np.array(0), np.array(2**62), np.array(1)], {}, "more than max_bytes"),
        ("Range", [np.array(0), np.array(3), np.array(0)], {}, "delta not 0"),
        ("ReduceSum", [X, np.array([7])], {}, "out of range"),
        ("Einsum", [np.ones(100_000), np.ones(100_000)], {"equation": "i,j->ij"}, "more than max_bytes"),
        ("Einsum", [np.ones((9000, 1)), np.ones((9000, 1))], {"equation": "ia,jb->ij"}, "would take|multiplications"),
    ],
)
def test_what_cannot_be_is_an_error(one_node: Any, operator: str, inputs: Any, attributes: Any, message: str) -> None:
    model = one_node(operator, inputs, 20, held=range(1, len(inputs)), **attributes)
    with pytest.raises(ValueError, match=message):
        mo.load(model)(mn.Tensor(np.asarray(inputs[0])))


def test_every_version_of_every_operator_is_here() -> None:
    covered = {(c.operator, version) for c in CASES for version in c.versions}
    readers = {pair for pair in registry.READERS if pair[0] not in ELSEWHERE}
    assert covered == readers
