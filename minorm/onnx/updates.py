"""Outputs that are what a buffer becomes: `<name>.updated`, as minorm writes training graphs.

A graph of ONNX changes nothing, so its new running statistics are outputs. Loaded again they are the module's state,
not what it returns. A graph that is cut keeps those whose layers it still computes: what blends them in lies beside
the way from inputs to outputs, and would be lost with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from minorm.onnx import validation
from minorm.onnx.reading import Node

ENDING = ".updated"

# What statistics are taken and blended with. A layer in between means that the cut has left it out.
_ARITHMETIC = ("Add", "Sub", "Mul", "Div", "Cast", "Identity", "Constant", "ReduceMean", "ReduceProd", "ReduceSum")
_LENGTHS = ("Shape", "Size", "Gather", "Slice", "Concat", "Reshape", "Squeeze", "Unsqueeze")
_BLENDING = frozenset(_ARITHMETIC + _LENGTHS)


def of(model: Any, initializers: Iterable[str]) -> dict[str, str]:
    """initializer -> the output that is its next value, in a file that minorm wrote."""
    if model.producer_name != "minorm":
        return {}
    kept = {f"{name}{ENDING}": name for name in initializers}
    return {kept[entry.name]: entry.name for entry in model.graph.output if entry.name in kept}


def still_computed(
    nodes: Sequence[Node], given: Iterable[str], outputs: Iterable[str], updated: Mapping[str, str]
) -> dict[str, str]:
    """Those of `updated` that follow from what `outputs` need; of one layer all or none.

    given    the inputs and initializers of the graph
    """
    there = set(given)
    needed = {id(node) for node in validation.needed(nodes, outputs)}
    for node in nodes:
        if id(node) in needed or (node.operator in _BLENDING and all(name in there for name in node.inputs if name)):
            there.update(node.outputs)
    lost = {_layer(name) for name, new in updated.items() if new not in there}
    return {name: new for name, new in updated.items() if _layer(name) not in lost}


def _layer(name: str) -> str:
    return name.rpartition(".")[0]
