"""Find the random values of a model. They differ between runs, so only their shapes can be compared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx

DRAWING = {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}


def drawn(model: Any, training: bool = False) -> set[str]:
    """Return the values of the graph that depend on a random number.

    training    True if a Dropout without a mode may drop elements; before opset 12, a Dropout has no mode in the file
    """
    silent = training and any(entry.version < 12 for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    functions = {(f.domain, f.name): f for f in model.functions}
    known = {tensor.name: tensor for tensor in model.graph.initializer if np.prod(tensor.dims) <= 1}
    found: set[str] = set()
    for node in model.graph.node:
        inside = list(_nodes(node, functions))
        if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t"):
            known[node.output[0]] = node.attribute[0].t
        read = {name for inner in inside for name in inner.input}
        if any(inner.op_type in DRAWING or _drops(inner, known, silent) for inner in inside) or read & found:
            found |= set(node.output) - {""}
    return found


def _nodes(node: Any, functions: dict[tuple[str, str], Any]) -> Iterator[Any]:
    """Yield a node, the nodes of the graphs in it, and the nodes of the function that it calls."""
    pending, seen = [node], set()
    while pending:
        node = pending.pop()
        yield node
        for attribute in node.attribute:
            for graph in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
                pending.extend(graph.node)
        key = node.domain, node.op_type
        if key in functions and key not in seen:
            seen.add(key)
            pending.extend(functions[key].node)


def _drops(node: Any, known: dict[str, Any], silent: bool) -> bool:
    """Return True if the node is a Dropout that may drop elements.

    A Dropout with a mode may drop elements if the mode is true or unknown. A Dropout without a mode may drop elements
    if `silent` is True.
    """
    if node.op_type != "Dropout" or len(node.input) < 3 or not node.input[2]:
        return silent and node.op_type == "Dropout"
    mode = known.get(node.input[2])
    return mode is None or bool(np.any(onnx.numpy_helper.to_array(mode)))
