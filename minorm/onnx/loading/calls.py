"""Find the BatchNormalization nodes of a graph that come from several calls of one layer.

In a training graph, the node of the second call reads the statistics that the node of the first call has updated.
`chain` lets the second node read the statistics of the layer instead. Then train() and eval() work on both nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from minorm.onnx.graph.reading import Node


def chain(nodes: Sequence[Node], held: Collection[str]) -> dict[int, Node]:
    """Let the node of each later call read the statistics that the node of the first call reads.

    The statistics are inputs 3 and 4. Return a mapping from the id of each later node to the first node.

    held    the names of the values that the file holds
    """
    firsts: dict[int, Node] = {}
    made: dict[str, tuple[Node, int]] = {}  # a running mean or variance -> the node that computes it, and which output
    for node in nodes:
        if node.operator == "Identity" and node.inputs[0] in made:
            made[node.outputs[0]] = made[node.inputs[0]]
        if node.operator != "BatchNormalization" or node.described is not None:
            continue
        before = _call_before(node, made)
        first = None if before is None else firsts.get(id(before), before)
        if first is not None and all(name in held for name in first.inputs[3:5]):
            node.inputs = (*node.inputs[:3], *first.inputs[3:5])
            firsts[id(node)] = first
        made |= {name: (node, place) for place, name in enumerate(node.outputs[:3]) if place and name}
    return firsts


def _call_before(node: Node, made: Mapping[str, tuple[Node, int]]) -> Node | None:
    """Return the node that computes the running mean and variance that `node` reads; None if there is no such node."""
    mean, var = (made.get(name, (None, 0)) for name in node.inputs[3:5])
    same = mean[0] is var[0] and (mean[1], var[1]) == (1, 2)
    return mean[0] if same and mean[0] is not None and mean[0].conditions == node.conditions else None


def content(name: str, arrays: Mapping[str, Any], parameters: Collection[str]) -> Any:
    """Return a key by which two scales or biases are compared: a Parameter's name, or the contents of a constant."""
    array = None if name in parameters else arrays.get(name)
    return name if array is None else (str(array.dtype), array.shape, array.tobytes())
