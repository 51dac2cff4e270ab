"""Read and write QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear.

Version 13 added scales along an axis, one for each index. Version 19 added scales of 16 bits; version 21 added blocks,
and integers of 16 bits; version 23 added attributes for the division's precision and the result's type. Training does
not change scales and zero points, only the quantized values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto

from minorm.devices import dtypes
from minorm.functional import quantization as F
from minorm.onnx.graph.errors import RuleNotApplicable, Unsupported
from minorm.onnx.graph.model_graph import ELEMENT_TYPES, Graph, Value
from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.registry import reads, writes
from minorm.onnx.graph.storage import narrow
from minorm.onnx.graph.tensors import DTYPES
from minorm.tensor.tensor import Tensor


@reads("QuantizeLinear", since=10, fixed=(1, 2))
def read_quantize(node: Node) -> Callable[..., Tensor]:
    axis, block = node.get("axis", 1), _block(node)
    default = _type(node, "output_dtype") or dtypes.uint8
    precision = _type(node, "precision")
    if default not in F.INTEGERS and default not in narrow.BITS:
        raise Unsupported(f"output_dtype is {default}; expected integers of at most 16 bits, or floats of at most 8")
    if not node.get("saturate", 1):
        raise Unsupported("saturate is 0; minorm cuts off at the largest number of the type")

    def quantize(x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
        if precision is not None and scale.dtype != precision:
            scale = scale.to(precision)
        if zero is None and default in narrow.BITS:
            zero = narrow.tensor(np.zeros(scale.shape, default))
        return F.quantize(x, scale, _shaped(zero, scale), default, axis, block)

    return quantize


@reads("DequantizeLinear", since=10, fixed=(1, 2))
def read_dequantize(node: Node) -> Callable[..., Tensor]:
    axis, block, dtype = node.get("axis", 1), _block(node), _type(node, "output_dtype")
    return lambda x, scale, zero=None: F.dequantize(x, scale, _shaped(zero, scale), axis, block, dtype)


@reads("DynamicQuantizeLinear", since=11)
def read_dynamic_quantize(node: Node) -> Callable[[Tensor], tuple[Tensor, ...]]:
    return F.dynamic_quantize


def _shaped(zero: Tensor | None, scale: Tensor) -> Tensor | None:
    """Give a single zero point the shape of its scale, because onnxruntime's quantizer mixes the shapes [] and [1]."""
    one = zero is not None and zero.ndim <= 1 and scale.ndim <= 1 and zero.numel() == scale.numel() == 1
    return zero.reshape(scale.shape) if one and zero is not None and zero.shape != scale.shape else zero


def _block(node: Node) -> int:
    block = node.get("block_size", 0)
    if block < 0:
        raise ValueError(f"block_size is {block}; expected at least 0")
    return int(block)


def _type(node: Node, attribute: str) -> Any:
    """Return the type that an attribute names by its number; None if the number is 0, which means unspecified."""
    code = node.get(attribute, 0)
    if code == 0:
        return None
    if code in narrow.TYPES:
        return narrow.TYPES[code]
    if code not in DTYPES:
        known = code in TensorProto.DataType.values()
        raise Unsupported(
            f"{attribute} is {TensorProto.DataType.Name(code) if known else code}, which minorm does not have"
        )
    return DTYPES[code]


@writes(F.quantize, "QuantizeLinear", since=10)
def write_quantize(
    g: Graph, x: Value, scale: Value, zero_point: Value | None, dtype: Any, axis: int, block_size: int
) -> Value:
    dtype = g.result.dtype
    if dtype in narrow.BITS:
        raise RuleNotApplicable(f"minorm can write {dtype} only when it writes a loaded file again")
    if zero_point is None and dtype != dtypes.uint8 and not g.has("QuantizeLinear", 21):
        zero_point = g.constant(np.zeros([int(n) for n in scale.known_shape]), dtype, "zero_point")
    says: dict[str, Any] = (
        {} if zero_point is not None or dtype == dtypes.uint8 else {"output_dtype": ELEMENT_TYPES[dtype][0]}
    )
    return g.add(
        "QuantizeLinear",
        x,
        scale,
        zero_point,
        shape=x.shape,
        dtype=dtype,
        **_places(g, scale, axis, block_size),
        **says,
    )


@writes(F.dequantize, "DequantizeLinear", since=10)
def write_dequantize(
    g: Graph, x: Value, scale: Value, zero_point: Value | None, axis: int, block_size: int, dtype: Any
) -> Value:
    if x.dtype in narrow.BITS:
        raise RuleNotApplicable(f"minorm can write {x.dtype} only when it writes a loaded file again")
    wanted = g.result.dtype
    says: dict[str, Any] = {}
    if wanted != scale.dtype:
        if not g.has("DequantizeLinear", 23):
            raise RuleNotApplicable("DequantizeLinear names its result's type from opset 23 on")
        says = {"output_dtype": ELEMENT_TYPES[wanted][0]}
    return g.add(
        "DequantizeLinear", x, scale, zero_point, shape=x.shape, dtype=wanted, **_places(g, scale, axis, block_size),
        **says,
    )  # fmt: skip


@writes(F.dynamic_quantize, "DynamicQuantizeLinear", since=11)
def write_dynamic_quantize(g: Graph, x: Value) -> tuple[Value, ...]:
    results: tuple[Value, ...] = g.add(
        "DynamicQuantizeLinear", x, outputs=3, shape=(x.shape, (), ()), dtype=(dtypes.uint8, x.dtype, dtypes.uint8)
    )
    return results


def _places(g: Graph, scale: Value, axis: int, block_size: int) -> dict[str, Any]:
    """Return the attributes axis and block_size for a node with several scales."""
    if scale.ndim <= 1 and all(n == 1 for n in scale.known_shape):
        return {}
    if not g.has("QuantizeLinear", 13):
        raise RuleNotApplicable("QuantizeLinear and DequantizeLinear have scales along an axis from opset 13 on")
    if block_size and not g.has("QuantizeLinear", 21):
        raise RuleNotApplicable("QuantizeLinear and DequantizeLinear have blocks from opset 21 on")
    return {"axis": axis, **({"block_size": block_size} if block_size else {})}
