"""Read Einsum (from 28 on, also bfloat16), and write it as one node or, if the opset lacks it, as products and sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minorm.functional.einsum import einsum
from minorm.onnx.graph.model_graph import Graph, Value
from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.registry import reads, writes
from minorm.tensor.tensor import Tensor


@reads("Einsum", since=12)
def read_einsum(node: Node) -> Callable[..., Tensor]:
    equation = node["equation"]

    def weigh(shape: tuple[int, ...], summed: int, dtype: Any) -> None:
        node.fits(shape, dtype)
        node.check_work(*shape, summed)

    return lambda *tensors: einsum(equation, *tensors, weigh=weigh)


@writes(einsum, "Einsum", since=12)
def write_einsum(g: Graph, equation: str, tensors: tuple[Any, ...], weigh: Any) -> Value:
    if isinstance(tensors[0], (list, tuple)):
        tensors = tuple(tensors[0])
    return g.add("Einsum", *tensors, shape=g.result.shape, equation=equation)
