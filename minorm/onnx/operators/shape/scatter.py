"""Read and write ScatterElements, ScatterND, and Scatter, the older name of ScatterElements.

From version 11 on, indices may count from the end. Version 16 added the reductions add and mul; version 18 added the
reductions min and max.
"""

from __future__ import annotations

from collections.abc import Callable

from minorm.devices import dtypes
from minorm.functional import scatter as F
from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.model_graph import Graph, Value
from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.registry import reads, writes
from minorm.ops.scatter import ScatterElements, ScatterND
from minorm.tensor.tensor import Tensor

Rule = Callable[[Tensor, Tensor, Tensor], Tensor]


@reads("ScatterElements", since=11, fixed=(1,))
@reads("Scatter", since=9, fixed=(1,))
def read_scatter(node: Node) -> Rule:
    axis, reduction = node["axis"], node.get("reduction", "none")
    return lambda x, index, updates: F.scatter(x, axis, index, updates, reduction)


@reads("ScatterND", since=11, fixed=(1,))
def read_scatter_nd(node: Node) -> Rule:
    reduction = node.get("reduction", "none")
    return lambda x, index, updates: F.scatter_nd(x, index, updates, reduction)


@writes(ScatterElements, "ScatterElements", since=11)
def write_scatter(g: Graph, x: Value, index: Value, updates: Value, reduction: str, axis: int) -> Value:
    return _write(g, "ScatterElements", x, index, updates, reduction, axis=axis)


@writes(ScatterElements, "Scatter", since=(9,))
def write_scatter_9(g: Graph, x: Value, index: Value, updates: Value, reduction: str, axis: int) -> Value:
    g.warn("before opset 11 Scatter does not count negative indices from the end; indices must not be negative")
    return _write(g, "Scatter", x, index, updates, reduction, axis=axis)


@writes(ScatterND, "ScatterND", since=11)
def write_scatter_nd(g: Graph, x: Value, index: Value, updates: Value, reduction: str, axis: None) -> Value:
    return _write(g, "ScatterND", x, g.cast(index, dtypes.int64), updates, reduction)


def _write(
    g: Graph, operator: str, x: Value, index: Value, src: Value, reduction: str, axis: int | None = None
) -> Value:
    needed = {"none": 9, "add": 16, "mul": 16, "min": 18, "max": 18}[reduction]
    if not g.has(operator, needed) and reduction != "none":
        raise RuleNotApplicable(f"{operator} has the reduction {reduction!r} from opset {needed} on")
    if index.dtype not in (dtypes.int32, dtypes.int64):
        index = g.cast(index, dtypes.int64)
    return g.add(
        operator, x, index, src, shape=x.shape, axis=axis, reduction=None if reduction == "none" else reduction
    )
