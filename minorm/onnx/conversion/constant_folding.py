"""Fold nodes that compute only with constants; some exporters, for example, write a fixed padding as eight nodes.

If a rule needs the contents of such a value, onnxruntime computes them in a separate process.
"""

from __future__ import annotations

import math
from typing import Any

import onnx

from minorm.onnx.checking import sandbox
from minorm.onnx.graph.node_rewriter import LARGEST, graphs_of, is_node

CHANGING = ("Random", "Multinomial", "Bernoulli", "Dropout")  # operators whose results differ between runs


def folded(model: Any) -> dict[str, Any]:
    """Return a dict from name to array of the graph's small values that nodes read and that depend on no input."""
    graph = model.graph
    overridable = {entry.name for entry in graph.input} if model.ir_version >= 4 else set()
    fixed = {t.name: t for t in graph.initializer if math.prod(t.dims) <= LARGEST and t.name not in overridable}
    known, chain = set(fixed), []
    for node in graph.node:
        steady = is_node(node) and not node.op_type.startswith(CHANGING) and not any(graphs_of(node))
        if steady and all(name in known or not name for name in node.input):
            known.update(filter(None, node.output))
            chain.append(node)
    made = {name for node in chain if node.op_type != "Constant" for name in node.output if name}
    inside = {id(node) for node in chain}
    asked = [name for node in graph.node if id(node) not in inside for name in node.input if name in made]
    if not asked:
        return {}
    part = onnx.ModelProto(ir_version=max(4, model.ir_version), opset_import=model.opset_import)
    part.graph.name = "constants"
    part.graph.node.extend(chain)
    read = {name for node in chain for name in node.input}
    part.graph.initializer.extend(tensor for name, tensor in fixed.items() if name in read)
    names = list(dict.fromkeys(asked))
    part.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    trials = sandbox.try_all(part, [[{"inputs": {}, "high": 1}]], seconds=60)
    if isinstance(trials, sandbox.Stage) or trials[0].taken is None:
        return {}
    return {name: array for name, array in zip(names, trials[0].outputs, strict=True) if array.size <= LARGEST}


def with_constants(model: Any, arrays: dict[str, Any]) -> Any:
    """Return a copy of the model in which Constant nodes hold the values in `arrays`.

    Then shape inference knows these values.
    """
    if not arrays:
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for node in copy.graph.node:
        if len(node.output) == 1 and node.output[0] in arrays:
            tensor = onnx.numpy_helper.from_array(arrays[node.output[0]])
            node.CopyFrom(onnx.helper.make_node("Constant", [], list(node.output), node.name, value=tensor))
    return copy
