"""Read and write Mod, a remainder with the divisor's sign, or, if fmod=1, with the dividend's sign.

Before version 28, remainders of floats always have the dividend's sign. A floor division a // b is also written with
Mod.
"""

from __future__ import annotations

from minorm.devices import dtypes
from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.model_graph import Graph, Value
from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.registry import lowers, reads, writes
from minorm.onnx.operators.math.arithmetic import Binary, paired
from minorm.onnx.operators.math.comparison import compare
from minorm.ops.special import Remainder
from minorm.ops.stepwise import FloorDivide
from minorm.tensor.tensor import Tensor


@reads("Mod", since=10)
def read_mod(node: Node) -> Binary:
    truncated = bool(node["fmod"])

    def remainder(a: Tensor, b: Tensor) -> Tensor:
        if a.dtype != b.dtype:
            raise ValueError(f"operands are {a.dtype} and {b.dtype}; expected one type")
        return Remainder.apply(a, b, truncated=truncated)

    return paired(node, remainder)


@writes(Remainder, "Mod", since=10)
def write_remainder(g: Graph, a: Value, b: Value, truncated: bool) -> Value:
    if dtypes.is_float(a.dtype) and not truncated and not g.has("Mod", 28):
        raise RuleNotApplicable("before opset 28 Mod rounds the quotient of floats towards 0 only")
    return g.add("Mod", a, b, fmod=int(truncated))


@lowers(Remainder)
def lower_remainder(g: Graph, a: Value, b: Value, truncated: bool) -> Value:
    if truncated or not dtypes.is_float(a.dtype):
        raise RuleNotApplicable("Mod exists from opset 10 on")
    rest, astray = _rest(g, a, b)
    return g.add("Where", astray, g.add("Add", rest, b), rest, dtype=rest.dtype)


def _rest(g: Graph, a: Value, b: Value) -> tuple[Value, Value]:
    """Write the remainder of a / b that has the sign of a, and write a mask.

    The mask is True where the remainder is not 0 and b has the other sign.
    """
    rest, zero = g.add("Mod", a, b, fmod=1), g.scalar(0, b)
    apart = g.add("Xor", compare(g, rest, zero, "less"), compare(g, b, zero, "less"))
    return rest, g.add("And", apart, g.add("Not", compare(g, rest, zero, "equal")))


@lowers(FloorDivide)
def lower_floor_divide(g: Graph, a: Value, b: Value) -> Value:
    """Write NumPy's steps: (a - rest) / b, minus 1 if the rest has the other sign; round floats to whole numbers."""
    if not g.has("Mod"):
        raise RuleNotApplicable("a quotient rounded down needs Mod (opset 10)")
    if not dtypes.is_float(a.dtype):
        return g.add("Div", g.add("Sub", a, g.add("Mod", a, b, fmod=0)), b)
    rest, astray = _rest(g, a, b)
    quotient = g.add("Sub", g.add("Div", g.add("Sub", a, rest), b), g.cast(astray, a.dtype))
    whole = g.add("Floor", g.add("Add", quotient, g.scalar(0.5, a)))
    return g.add("Where", compare(g, b, g.scalar(0, b), "equal"), g.add("Div", a, b), whole, dtype=a.dtype)
