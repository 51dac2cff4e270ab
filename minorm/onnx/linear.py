"""MatMul and Gemm. Linear keeps its weight as it is stored, (out, in): Gemm transposes it."""

from __future__ import annotations

import minorm.functional as F
from minorm.onnx.graph import Graph, Value
from minorm.onnx.registry import lowers, writes
from minorm.onnx.shape import transpose
from minorm.ops.matmul import MatMul


@writes(MatMul, "MatMul", since=(1, 9, 13))  # 9: integers. 13: bfloat16
def write_matmul(g: Graph, a: Value, b: Value) -> Value:
    return g.add("MatMul", a, b, shape=g.result.shape)


@writes(F.linear, "Gemm", since=(7, 9, 11, 13))  # 11: no bias is needed
def write_linear_gemm(g: Graph, x: Value, weight: Value, bias: Value | None) -> Value:
    if x.ndim != 2 or (bias is None and not g.has("Gemm", 11)):
        return lower_linear(g, x, weight, bias)
    return g.add("Gemm", x, weight, bias, shape=g.result.shape, transB=1)


def lower_linear(g: Graph, x: Value, weight: Value, bias: Value | None) -> Value:
    """x @ weight.T + bias for any rank of x."""
    y = g.add("MatMul", x, transpose(g, weight, (1, 0)), shape=g.result.shape)
    return y if bias is None else g.add("Add", y, bias)


lowers(F.linear)(lower_linear)
