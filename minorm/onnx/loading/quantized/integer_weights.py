"""Turn the integer weights of an int8 model that minorm wrote into floats that train.

    file      W (integers) -> DequantizeLinear -> Conv
    module    W (floats) -> QuantizeLinear -> DequantizeLinear -> Conv

If q is an integer of the file, W in the module is the float (q - zero_point) * scale, which QuantizeLinear turns back
into q. So the module computes the same as the file, and training continues with the file's scales;
`exporting/integers_again.py` turns W into integers again. A bias is int32, and ONNX's QuantizeLinear cannot make int32.
So the QuantizeLinear of a bias exists only in the module, never in a file.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from minorm.onnx.graph import tensors
from minorm.onnx.graph.names import reads_of
from minorm.onnx.graph.tensors import Budget
from minorm.onnx.loading import metadata
from minorm.ops import quantization

INTEGERS = (onnx.TensorProto.INT8, onnx.TensorProto.UINT8, onnx.TensorProto.INT32)


def as_floats(model: Any, max_bytes: int) -> tuple[Any, bool]:
    """Return (a model with float weights, True); if the model has no integer weights, return (the same model, False).

    A damaged node stays unchanged, because its reader will raise the error.
    """
    if model.producer_name != metadata.OURS:
        return model, False
    held = {tensor.name: tensor for tensor in model.graph.initializer}
    for entry in model.graph.input:
        held.pop(entry.name, None)
    read = Counter(name for node in model.graph.node for name in reads_of([node]))
    read.update(entry.name for entry in model.graph.output)
    found = [n for n in model.graph.node if _is_stored(n, held) and read[n.input[0]] == 1]
    if not found:
        return model, False
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    _rewrite(changed.graph, {node.output[0] for node in found}, Budget(max_bytes))
    return changed, True


def _is_stored(node: Any, held: dict[str, Any]) -> bool:
    """Return True for a DequantizeLinear whose integers, scale and zero point are in the file and fit together."""
    given: list[Any] = [held.get(name) for name in node.input if name]
    if node.op_type != "DequantizeLinear" or node.domain or len(node.output) != 1 or not all(node.input[:2]):
        return False
    if len(given) not in (2, 3) or any(t is None or t.data_location == onnx.TensorProto.EXTERNAL for t in given):
        return False
    integers, scale, zero = (*given, None)[:3]
    if integers.data_type not in INTEGERS or scale.data_type != onnx.TensorProto.FLOAT:
        return False
    if zero is not None and (zero.data_type != integers.data_type or math.prod(zero.dims) != math.prod(scale.dims)):
        return False
    dims, axis = integers.dims, axis_of(node)
    along = -len(dims) <= axis < len(dims) and [dims[axis]] == list(scale.dims)
    one = math.prod(scale.dims) == 1 and len(scale.dims) <= 1
    return (one or along) and (zero is None or len(zero.dims) <= 1)


def _rewrite(graph: Any, outputs: set[str], budget: Budget) -> None:
    held = {tensor.name: tensor for tensor in graph.initializer}
    nodes = []
    for node in graph.node:
        if outputs.intersection(node.output):
            nodes.append(_quantize(graph, held, node, budget))
        nodes.append(node)
    refill_nodes(graph, nodes)


def _quantize(graph: Any, held: dict[str, Any], node: Any, budget: Budget) -> Any:
    """Turn the tensor of a DequantizeLinear into floats, and return a QuantizeLinear to put in front of the node."""

    def array(name: str) -> Any:
        return tensors.read(held[name], f"initializer {name!r}", None, budget)

    name, scale = node.input[:2]
    zero = node.input[2] if len(node.input) > 2 and node.input[2] else f"{name}.zero_point"
    integers, step = array(name), array(scale)
    if zero not in held:
        nothing = numpy_helper.from_array(np.zeros(tuple(held[scale].dims), integers.dtype), zero)
        held[zero] = graph.initializer.add()
        held[zero].CopyFrom(nothing)
    wide = np.dtype(np.float64 if integers.dtype == np.int32 else np.float32)  # types that hold the differences exactly
    budget.take(integers.size * wide.itemsize, f"initializer {name!r} in floats")
    offset, factor = (spread(parameter, integers, axis_of(node)).astype(wide) for parameter in (array(zero), step))
    floats = (integers.astype(wide) - offset) * factor
    held[name].CopyFrom(numpy_helper.from_array(floats.astype(step.dtype, copy=False), name))
    node.input[0] = f"{name}.integers"
    quantize = helper.make_node("QuantizeLinear", [name, scale, zero], [node.input[0]], f"{name}/QuantizeLinear")
    quantize.attribute.extend(node.attribute)
    return quantize


def refill_nodes(graph: Any, nodes: list[Any]) -> None:
    """Replace the graph's nodes by `nodes`, some of which may belong to the graph already."""
    copies = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def axis_of(node: Any) -> int:
    """Return the axis along which a node has several scales."""
    return int(next((given.i for given in node.attribute if given.name == "axis"), 1))


def spread(parameter: Any, array: Any, axis: int) -> Any:
    """Return a scale or zero point in float64, with a shape that broadcasts to `array`."""
    place = axis % array.ndim if array.ndim else 0
    return quantization.spread(parameter.astype(np.float64), array.shape, place, block=0)
