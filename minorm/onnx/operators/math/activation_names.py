"""Write activations that are several operations in minorm, but one operator in ONNX: Selu, Celu, Mish, PRelu, Softsign.

activation.py reads these operators. If the opset lacks the operator, or if its attribute would lose digits that matter,
the separate operations are written instead.
"""

from __future__ import annotations

import minorm.functional as F
from minorm.devices import dtypes
from minorm.functional.smooth import SELU_ALPHA, SELU_SCALE
from minorm.onnx.graph.decimals import shortest
from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.model_graph import Graph, Value
from minorm.onnx.graph.registry import writes
from minorm.onnx.operators.shape.shape import reshape


@writes(F.selu, "Selu", since=6)
def write_selu(g: Graph, input: Value) -> Value:
    if input.dtype == dtypes.float64:
        raise RuleNotApplicable("its constants are float32")
    return g.add("Selu", input, alpha=shortest(SELU_ALPHA), gamma=shortest(SELU_SCALE))


@writes(F.celu, "Celu", since=12)
def write_celu(g: Graph, input: Value, alpha: float) -> Value:
    if input.dtype != dtypes.float32:
        raise RuleNotApplicable("before opset 28 Celu takes only float32")
    return g.add("Celu", input, alpha=float(alpha))


@writes(F.mish, "Mish", since=18)
def write_mish(g: Graph, input: Value) -> Value:
    return g.add("Mish", input)


@writes(F.softsign, "Softsign", since=1)
def write_softsign(g: Graph, input: Value) -> Value:
    return g.add("Softsign", input)


@writes(F.prelu, "PRelu", since=7)
def write_prelu(g: Graph, input: Value, weight: Value) -> Value:
    slope = reshape(g, weight, (weight.known_shape[0], *(1,) * (input.ndim - 2))) if input.ndim > 2 else weight
    return g.add("PRelu", input, slope, shape=input.shape)
