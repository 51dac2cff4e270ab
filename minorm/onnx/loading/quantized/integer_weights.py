"""Integers that minorm wrote as the weights of an int8 model, as floats that train.

    file      W (integers) -> DequantizeLinear -> Conv
    module    W (floats) -> QuantizeLinear -> DequantizeLinear -> Conv

W is the float (q - zero_point) * scale, which QuantizeLinear gives back as q. So the module computes what the file
says, and goes on training with the file's scales; `exporting/integers_again.py` makes integers of it once more. A bias
is int32, which ONNX's QuantizeLinear does not make: that node is the module's alone, and never written.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from minorm.onnx.graph.names import reads_of
from minorm.onnx.loading import metadata

INTEGERS = (onnx.TensorProto.INT8, onnx.TensorProto.UINT8, onnx.TensorProto.INT32)


def as_floats(model: Any) -> tuple[Any, bool]:
    """The model with such weights as floats, and True; the model itself, and False, where it has none."""
    if model.producer_name != metadata.OURS:
        return model, False
    held = {tensor.name: tensor for tensor in model.graph.initializer}
    for entry in model.graph.input:
        held.pop(entry.name, None)
    read = [name for node in model.graph.node for name in reads_of([node])]
    found = [n for n in model.graph.node if _is_stored(n, held) and read.count(n.input[0]) == 1]
    if not found:
        return model, False
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    _rewrite(changed.graph, {node.output[0] for node in found})
    return changed, True


def _is_stored(node: Any, held: dict[str, Any]) -> bool:
    """A DequantizeLinear whose inputs are all tensors of the file."""
    return (
        node.op_type == "DequantizeLinear"
        and not node.domain
        and all(name in held for name in node.input if name)
        and held[node.input[0]].data_type in INTEGERS
        and held[node.input[0]].data_location != onnx.TensorProto.EXTERNAL
    )


def _rewrite(graph: Any, outputs: set[str]) -> None:
    held = {tensor.name: tensor for tensor in graph.initializer}
    nodes = []
    for node in graph.node:
        if outputs.intersection(node.output):
            nodes.append(_quantize(graph, held, node))
        nodes.append(node)
    refill_nodes(graph, nodes)


def _quantize(graph: Any, held: dict[str, Any], node: Any) -> Any:
    """The QuantizeLinear in front of a DequantizeLinear, whose tensor becomes floats."""
    name, scale = node.input[:2]
    zero = node.input[2] if len(node.input) > 2 and node.input[2] else f"{name}.zero_point"
    integers = numpy_helper.to_array(held[name])
    if zero not in held:
        nothing = numpy_helper.from_array(np.zeros(tuple(held[scale].dims), integers.dtype), zero)
        held[zero] = graph.initializer.add()
        held[zero].CopyFrom(nothing)
    axis, step = axis_of(node), numpy_helper.to_array(held[scale])
    steps = integers - spread(numpy_helper.to_array(held[zero]), integers, axis)
    held[name].CopyFrom(numpy_helper.from_array((steps * spread(step, integers, axis)).astype(step.dtype), name))
    node.input[0] = f"{name}.integers"
    quantize = helper.make_node("QuantizeLinear", [name, scale, zero], [node.input[0]], f"{name}/QuantizeLinear")
    quantize.attribute.extend(node.attribute)
    return quantize


def refill_nodes(graph: Any, nodes: list[Any]) -> None:
    """Give the graph these nodes, some of which are its own."""
    copies = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def axis_of(node: Any) -> int:
    """The axis along which the node's scales differ."""
    return int(next((given.i for given in node.attribute if given.name == "axis"), 1))


def spread(parameter: Any, array: Any, axis: int) -> Any:
    """A scale or zero point, float64, as it broadcasts to the tensor."""
    wide = parameter.astype(np.float64)
    if wide.size == 1:
        return wide.reshape(())
    return wide.reshape([-1 if i == axis % array.ndim else 1 for i in range(array.ndim)])
