"""Read and write MatMul, Gemm and Det; the weight of a Linear stays (out, in) in the file, and Gemm transposes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import minorm.functional as F
from minorm.devices import dtypes
from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.model_graph import Graph, Value
from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.registry import lowers, reads, writes
from minorm.onnx.operators.precision import stretches
from minorm.onnx.operators.shape.shape import transpose
from minorm.ops.matmul import MatMul
from minorm.ops.special import Determinant
from minorm.tensor.tensor import Tensor


@writes(MatMul, "MatMul", since=1)  # 9: integers. 13: bfloat16
def write_matmul(g: Graph, a: Value, b: Value) -> Value:
    return g.add("MatMul", a, b, shape=g.result.shape)


@writes(F.linear, "Gemm", since=7)  # 11: the bias is optional
def write_linear_gemm(g: Graph, x: Value, weight: Value, bias: Value | None) -> Value:
    if x.ndim != 2 or (bias is None and not g.has("Gemm", 11)):
        return lower_linear(g, x, weight, bias)
    return g.add("Gemm", x, weight, bias, shape=g.result.shape, transB=1)


def lower_linear(g: Graph, x: Value, weight: Value, bias: Value | None) -> Value:
    """Write x @ weight.T + bias for any rank of x."""
    y = g.add("MatMul", x, transpose(g, weight, (1, 0)), shape=g.result.shape)
    return y if bias is None else g.add("Add", y, bias)


lowers(F.linear)(lower_linear)


@reads("MatMul", since=1)
def read_matmul(node: Node) -> Callable[[Tensor, Tensor], Tensor]:
    def matmul(a: Tensor, b: Tensor) -> Tensor:
        ask_matmul(node, a.shape, b.shape, a.dtype)
        return a @ b

    return matmul


def ask_matmul(node: Node, a: tuple[int, ...], b: tuple[int, ...], dtype: Any) -> None:
    """Raise an error if a product of these shapes would take too much memory or time; its type is `dtype`."""
    result = (*np.broadcast_shapes(a[:-2], b[:-2]), *a[-2:-1], *(b[-1:] if len(b) > 1 else ()))
    node.fits(result, dtype)
    node.check_work(*result, *a[-1:])


@reads("Gemm", since=1)  # before 7 `broadcast` says whether C stretches; 11: C may be absent
def read_gemm(node: Node) -> Callable[..., Tensor]:
    alpha, beta, left, right = (node[name] for name in ("alpha", "beta", "transA", "transB"))

    def gemm(a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
        if a.ndim != 2 or b.ndim != 2:
            raise ValueError(f"A has shape {a.shape}, B has shape {b.shape}; expected two matrices")
        a = a.mT if left else a
        rows, columns = a.shape[0], b.shape[0 if right else 1]
        node.fits((rows, columns), a.dtype)
        node.check_work(rows, columns, a.shape[1])
        if c is not None and not stretches(c.shape, (rows, columns)):
            raise ValueError(f"C has shape {c.shape}; expected a shape that broadcasts to {(rows, columns)}")
        bias = c is None or c.shape == (columns,)
        if right and bias and alpha == 1 and beta == 1 and dtypes.is_float(a.dtype):
            return F.linear(a, b, c)
        y = a @ (b.mT if right else b)
        if alpha != 1:
            y = (y * alpha).to(a.dtype)
        if c is None or beta == 0:
            return y
        return y + (c if beta == 1 else (c * beta).to(a.dtype))

    return gemm


@writes(Determinant, "Det", since=11)
def write_det(g: Graph, x: Value) -> Value:
    return g.add("Det", x, shape=x.known_shape[:-2])


@lowers(Determinant)
def lower_det(g: Graph, x: Value) -> Value:
    raise RuleNotApplicable("Det exists from opset 11 on")


@reads("Det", since=11)
def read_det(node: Node) -> Callable[[Tensor], Tensor]:
    def det(x: Tensor) -> Tensor:
        if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
            raise ValueError(f"x has shape {x.shape}; expected square matrices")
        node.check_work(x.numel(), x.shape[-1])
        return Determinant.apply(x)

    return det
