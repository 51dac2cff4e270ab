"""Handle outputs that are the next values of buffers; in training graphs, minorm names them `<name>.updated`.

An ONNX graph cannot change its state, so the new running statistics are outputs. A loaded module copies these outputs
to its buffers and does not return them. A cut graph keeps the updates of the layers that it still computes. Otherwise,
the cut would drop the nodes that compute the updates, because no output depends on these nodes.

If `minorm.statistics` in the metadata describes a layer, the loaded layer updates its statistics itself. The nodes that
updated these statistics in the file are left out.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import Any

from minorm.onnx.graph.node_layers import Statistics
from minorm.onnx.graph.reading import Node
from minorm.onnx.loading import metadata, validation

ENDING = ".updated"

# The operators that compute and update statistics. Any other operator in between is a layer that the cut has left out.
_ARITHMETIC = ("Add", "Sub", "Mul", "Div", "Cast", "Identity", "Constant", "ReduceMean", "ReduceProd", "ReduceSum")
_LENGTHS = ("Shape", "Size", "Gather", "Slice", "Concat", "Reshape", "Squeeze", "Unsqueeze")
_BLENDING = frozenset(_ARITHMETIC + _LENGTHS)


def of(model: Any, initializers: Iterable[str]) -> dict[str, str]:
    """Map initializers to the outputs that are their next values, in a file that minorm wrote."""
    if not metadata.is_ours(model):
        return {}
    kept = {f"{name}{ENDING}": name for name in initializers}
    return {kept[entry.name]: entry.name for entry in model.graph.output if entry.name in kept}


def still_computed(
    nodes: Sequence[Node], given: Iterable[str], outputs: Iterable[str], updated: Mapping[str, str]
) -> dict[str, str]:
    """Return the entries of `updated` that can still be computed with the nodes for `outputs`.

    given    the inputs and initializers of the graph

    If one entry of a layer cannot be computed, all entries of this layer are dropped.
    """
    there = set(given)
    needed = {id(node) for node in validation.needed(nodes, outputs)}
    for node in nodes:
        if id(node) in needed or (node.operator in _BLENDING and all(name in there for name in node.inputs if name)):
            there.update(node.outputs)
    lost = {_layer(name) for name, new in updated.items() if new not in there}
    return {name: new for name, new in updated.items() if _layer(name) not in lost}


def adopted(
    nodes: Sequence[Node],
    described: Mapping[str, Statistics],
    initializers: Container[str],
    updated: Mapping[str, str],
    outputs: Collection[str],
) -> dict[str, str]:
    """Let each normalization in `described` read its running statistics, as the inputs from 3 on.

    Return the entries of `updated` for all other statistics.

    outputs    the values that the module returns; if they include new statistics of a layer, the layer's nodes stay
    """
    left = dict(updated)
    layers: dict[tuple[str, str], list[Node]] = {}
    made: dict[str, list[str]] = {}  # by scope
    for node in nodes if described else ():
        layers.setdefault((node.operator, node.scope), []).append(node)
        made.setdefault(node.scope, []).extend(node.outputs)
    for path, how in described.items():
        names = ["running_mean", "running_var", *(["num_batches_tracked"] if how.momentum is None else [])]
        keys = [f"{path}.{name}" if path else name for name in names]
        if not all(key in initializers for key in keys) or any(updated.get(key) in outputs for key in keys):
            continue
        operator = "InstanceNormalization" if how.per_sample and keys[0] in updated else "BatchNormalization"
        owners = layers.get((operator, path), [])
        own = {*keys[:2], *made.get(path, ())} if owners else set()
        if not all(own.issuperset(node.inputs[3:5]) for node in owners):  # a further call reads the first one's results
            continue
        for node in owners:
            node.inputs, node.described = (*node.inputs[:3], *keys), how
        for key in keys if owners else ():
            left.pop(key, None)
    return left


def _layer(name: str) -> str:
    return name.rpartition(".")[0]
