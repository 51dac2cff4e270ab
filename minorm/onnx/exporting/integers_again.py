"""Turn the weights of a loaded int8 model back into integers; quantized/integer_weights.py made them floats."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import numpy_helper

from minorm.onnx.conversion import describing
from minorm.onnx.graph import encoding
from minorm.onnx.graph.names import drop, reads_of
from minorm.onnx.loading.quantized.integer_weights import axis_of, refill_nodes, spread


def store(graph: Any, contents: dict[str, Any]) -> None:
    """Replace the tensors that QuantizeLinear reads by integers.

    contents    the elements of tensors that are not in the graph yet, by name
    """
    held = {tensor.name: tensor for tensor in graph.initializer}
    nodes = []
    renamed: dict[str, str] = {}
    zeros: set[str] = set()
    for node in graph.node:
        if node.op_type == "QuantizeLinear" and len(node.input) > 2 and all(name in held for name in node.input):
            _store(held, node, contents)
            renamed[node.output[0]] = node.input[0]
            zeros.add(node.input[2])
        else:
            nodes.append(node)
    for node in nodes:
        for place, name in enumerate(node.input):
            node.input[place] = renamed.get(name, name)
    refill_nodes(graph, nodes)
    read = reads_of(graph.node)
    drop(graph.initializer, lambda tensor: tensor.name in zeros and tensor.name not in read)


def _store(held: dict[str, Any], node: Any, contents: dict[str, Any]) -> None:
    name, scale, zero = node.input
    array = contents[name] if name in contents else numpy_helper.to_array(held[name])
    offset = numpy_helper.to_array(held[zero])
    axis, ends = axis_of(node), np.iinfo(offset.dtype)
    step = spread(numpy_helper.to_array(held[scale]), array, axis)
    q = np.clip(np.rint(array / step.astype(array.dtype)) + spread(offset, array, axis), ends.min, ends.max)
    contents[name] = q.astype(offset.dtype)
    encoding.describe(held[name], contents[name])
    if contents[name].size <= describing.SMALL:
        encoding.fill([(held[name], contents[name])])
