"""Check that a file can be loaded in the float type of `load(path, dtype=...)`, and convert the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.onnx.graph import kinds
from minorm.onnx.graph.errors import LoadError
from minorm.onnx.graph.reading import Node
from minorm.onnx.loading.graph_inputs import Input
from minorm.onnx.loading.graph_module import GraphModule
from minorm.support.safe_names import printable


def check(
    dtype: Any, nodes: Sequence[Node], inputs: Sequence[Input], initializers: Mapping[str, Any], ends: Sequence[str]
) -> None:
    """Raise LoadError if no value of the network is a float. Values computed from constants alone do not count."""
    declared = {entry.name: entry.dtype for entry in inputs}
    integers = kinds.discrete(nodes, {**declared, **{name: array.dtype for name, array in initializers.items()}})
    if not integers.issuperset([*declared, *ends]):
        return
    fixed = {"", *initializers}
    for node in nodes:
        if node.operator in ("Constant", "Shape", "Size") or (node.inputs and fixed.issuperset(node.inputs)):
            fixed.update(node.outputs)
        elif not integers.issuperset(filter(None, node.outputs)):
            return
    came = ", ".join(map(str, inputs)) or "no inputs"
    raise LoadError(f"load: dtype is {dtype}, but the graph computes only with integers ({came}); leave dtype out")


def converted(model: GraphModule, dtype: Any) -> GraphModule:
    """Convert the graph to this type; raise LoadError if a weight would become infinite."""
    for name, tensor in model.tensors_by_name().items():
        if dtypes.is_float(tensor.dtype) and dtypes.largest(tensor.dtype) > dtypes.largest(dtype):
            finite = tensor.array[np.isfinite(tensor.array)]
            peak = np.abs(finite).max(initial=0)
            with np.errstate(over="ignore"):
                if np.isinf(peak.astype(dtype)):
                    raise LoadError(
                        f"load: dtype is {dtype}, but {printable(name)} holds {float(peak):g}; expected at most "
                        f"{float(dtypes.largest(dtype)):g}, the largest number of dtype; bfloat16 has the range of "
                        "float32"
                    )
    return model.to(dtype)
