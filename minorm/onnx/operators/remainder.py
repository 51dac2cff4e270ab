"""Mod: of integers with the sign of the divisor, or (fmod=1, floats too) of the dividend. 28: floats either way."""

from __future__ import annotations

from minorm import dtypes
from minorm.onnx.graph.errors import Decline
from minorm.onnx.graph.graph import Graph, Value
from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.registry import lowers, reads, writes
from minorm.onnx.operators.arithmetic import Binary, paired
from minorm.onnx.operators.comparison import compare
from minorm.ops.special import Remainder
from minorm.tensor import Tensor


@reads("Mod", since=(10, 13, 28))
def read_mod(node: Node) -> Binary:
    truncated = bool(node["fmod"])

    def remainder(a: Tensor, b: Tensor) -> Tensor:
        if a.dtype != b.dtype:
            raise ValueError(f"operands are {a.dtype} and {b.dtype}; expected one type")
        return Remainder.apply(a, b, truncated=truncated)

    return paired(node, remainder)


@writes(Remainder, "Mod", since=(10, 13, 28))
def write_remainder(g: Graph, a: Value, b: Value, truncated: bool) -> Value:
    if dtypes.is_float(a.dtype) and not truncated and not g.has("Mod", 28):
        raise Decline("before opset 28 Mod rounds the quotient of floats towards 0 only")
    return g.add("Mod", a, b, fmod=int(truncated))


@lowers(Remainder)
def lower_remainder(g: Graph, a: Value, b: Value, truncated: bool) -> Value:
    if truncated or not dtypes.is_float(a.dtype):
        raise Decline("Mod exists from opset 10 on")
    rest, zero = g.add("Mod", a, b, fmod=1), g.scalar(0, b)
    astray = g.add("Xor", compare(g, rest, zero, "less"), compare(g, b, zero, "less"))
    astray = g.add("And", astray, g.add("Not", compare(g, rest, zero, "equal")))
    return g.add("Where", astray, g.add("Add", rest, b), rest, dtype=rest.dtype)
