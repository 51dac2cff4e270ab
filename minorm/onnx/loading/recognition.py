"""Replace each normalization that a file writes in other operators by one layer.

One node replaces the nodes of such a norm (patterns.py finds them). The readers of GroupNormalization,
LayerNormalization and RMSNormalization make a layer from this node. So the weight and the bias of the norm become
Parameters, and its eps stays a constant. The norm is a module of the loaded graph and trains with minorm's own kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from typing import Any

from minorm.onnx.graph import kinds
from minorm.onnx.graph.node_layers import Written
from minorm.onnx.graph.reading import Node
from minorm.onnx.loading import patterns, validation
from minorm.onnx.loading.formulas import Norm
from minorm.onnx.loading.graph_inputs import Input
from minorm.onnx.loading.judging.naming import PARAMETER, Origin
from minorm.onnx.loading.wiring import Wiring

# kind of norm -> the operator whose reader makes the layer, and its version
OPERATORS = {
    "GroupNorm": ("GroupNormalization", 21),
    "LayerNorm": ("LayerNormalization", 17),
    "RMSNorm": ("RMSNormalization", 23),
}


class Recognised(Node):
    """A node that replaces several nodes of the file."""

    def __str__(self) -> str:
        place = f"node {self.name!r}" if self.name else f"the node that computes {self.outputs[0]!r}"
        norm = self.operator.removesuffix("alization")
        parts = ", ".join(operator for operator, _ in self.described.parts)
        return f"{norm}, written as {parts} (opset {self.opset}), the last {place}"


def recognised(
    nodes: Sequence[Node],
    ends: Sequence[str],
    model: Any,
    inputs: Sequence[Input],
    initializers: Mapping[str, Any],
    origin: Origin,
    trainable: Any = None,
) -> list[Node]:
    """Return the nodes; one node replaces all nodes of a norm.

    ends         the values that the graph must compute: its outputs, and the next values of buffers
    trainable    the tensors that the caller wants to train; the tensors in a list do not count as fixed numbers
    """
    asked = trainable if isinstance(trainable, list) else ()
    wiring = Wiring(
        nodes, ends, initializers, learned(origin, asked), ranks_of(model), types_of(nodes, inputs, initializers)
    )
    made: dict[int, Node] = {}  # id of a norm's last node -> the node in its place
    gone: set[int] = set()
    for norm in patterns.find(nodes, wiring):
        gone.update(id(node) for node in norm.nodes)
        made[id(norm.nodes[-1])] = _node(norm)
    found = [made.get(id(node), node) for node in nodes if id(node) in made or id(node) not in gone]
    return validation.needed(found, ends) if made else found


def types_of(nodes: Sequence[Node], inputs: Sequence[Input], initializers: Mapping[str, Any]) -> dict[str, Any]:
    """Map names to types, for the values whose types are certain."""
    declared = {entry.name: entry.dtype for entry in inputs}
    return kinds.types(nodes, declared | {name: array.dtype for name, array in initializers.items()})


def learned(origin: Origin, asked: Collection[str] = ()) -> Callable[[str], bool]:
    """Return a function that says whether an initializer is a weight.

    An initializer is a weight if the file, the name of the initializer, or the caller (`asked`) says so.
    """

    def is_learned(name: str) -> bool:
        named = origin.kinds.get(name) == PARAMETER or ("." in name and origin.names(name))
        return origin.ours or named or name in asked

    return is_learned


def _node(norm: Norm) -> Node:
    operator, since = OPERATORS[norm.kind]
    last = norm.nodes[-1]
    inputs = [norm.x, *(held.name if held is not None else "" for held in (norm.weight, norm.bias))]
    while not inputs[-1]:
        inputs.pop()
    attributes: dict[str, Any] = {"epsilon": norm.eps}
    attributes |= {"num_groups": norm.groups[1]} if norm.groups else {"axis": norm.axes[0]}
    node = Recognised(
        operator, "", last.name, last.opset, tuple(inputs), (norm.result,), attributes, since,
        budget=last.budget, conditions=last.conditions, module=last.module,
    )  # fmt: skip
    weight, bias = (None if held is None else held.shape for held in (norm.weight, norm.bias))
    parts = tuple((part.operator, part.outputs[0]) for part in norm.nodes)
    node.described = Written(norm.axes, norm.groups, norm.shape, weight, bias, norm.per_group, parts)
    return node


def ranks_of(model: Any) -> dict[str, int]:
    """Map names to numbers of axes, for the values of the graph whose shapes the file declares."""
    described = chain(model.graph.value_info, model.graph.input, model.graph.output)
    return {
        entry.name: len(entry.type.tensor_type.shape.dim)
        for entry in described
        if entry.type.HasField("tensor_type") and entry.type.tensor_type.HasField("shape")
    }
