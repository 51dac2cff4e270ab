"""Decide for each initializer whether it becomes a Parameter, a buffer, or a constant.

A float tensor of the file is a Parameter if it is a weight (judging/ says which tensors are) and a gradient can flow
from an output to it. To find these tensors, we walk backwards from the outputs through all inputs that have a gradient.
Running statistics are buffers. These are the mean and the variance of a BatchNormalization, if the file holds them, and
the tensors with these names in files of minorm. All other tensors are constants: shapes, indices, bounds, scales of a
Resize, and numbers that exporters wrote.

If a tool merged the equal initializers of a fresh model, two nodes may read one tensor as their statistics. Nodes that
also share scale and bias are two calls of one layer (calls.py). Other nodes get separate statistics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from minorm.devices import dtypes
from minorm.onnx.graph import kinds
from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.registry import READERS
from minorm.onnx.loading import calls, weights
from minorm.onnx.loading.judging.judge import ASKED, NOT_ASKED, PARAMETER, Judge, Verdict, others_of
from minorm.onnx.loading.judging.naming import Origin
from minorm.onnx.loading.weights import Trainable


def places(node: Node) -> Sequence[int]:
    """Return the indices of the inputs that are the running statistics of a node."""
    if node.described is not None:  # and, if all batches have equal weight, the number of batches
        return range(3, len(node.inputs))
    return (3, 4) if node.operator == "BatchNormalization" else ()


RUNNING = ("running_mean", "running_var")
ARITHMETIC = frozenset(("Add", "Sub", "Mul", "Div", "Sqrt", "Pow", "Neg", "Cast", "Identity"))


@dataclass
class Roles:
    """Holds the role of each tensor.

    parameters   the arrays of the Parameters, by name
    buffers      name of a buffer -> the value from which it starts
    updates      buffer -> the output of the graph that is the buffer's next value, if no layer changes the buffer
    spread       tensor that repeats a Parameter for each sample -> this Parameter
    snapshots    buffers that a layer changes in place while other nodes read their old values
    verdicts     every tensor of the file -> its role and the reason for this role
    """

    parameters: dict[str, Any] = field(default_factory=dict)
    buffers: dict[str, str] = field(default_factory=dict)
    spread: dict[str, str] = field(default_factory=dict)
    updates: dict[str, str] = field(default_factory=dict)
    snapshots: set[str] = field(default_factory=set)
    verdicts: dict[str, Verdict] = field(default_factory=dict)


def assign(
    nodes: Sequence[Node],
    inputs: Mapping[str, Any],
    initializers: Mapping[str, Any],
    outputs: Iterable[str],
    updated: Mapping[str, str],
    source: Origin,
    trainable: Trainable = None,
) -> Roles:
    """Decide the roles, and record for each node the buffers that it owns (`node.statistics`, `node.updates`).

    inputs       the types of the graph's inputs, by name
    updated      initializer -> the output that is the initializer's next value, in training graphs of minorm
    source       the producer of the file, and the file's statements about its tensors
    trainable    the caller's choice of Parameters, or None
    """
    origin = _origins(nodes, initializers)
    arrays = _floats(nodes, initializers, source)
    firsts = calls.chain(nodes, origin)
    owners = [node for node in nodes if _statistics(node) and all(name in origin for name in _statistics(node))]
    discrete = kinds.discrete(nodes, {**inputs, **{name: array.dtype for name, array in initializers.items()}})
    wanted = _values_with_gradient(nodes, {id(node) for node in owners}, outputs, discrete)
    readers = _readers(nodes, {id(node) for node in owners})
    # Statistics that only arithmetic reads stay statistics; if another operator reads one as a weight, it is a weight.
    fixed = set(updated)
    fixed |= {name for node in owners for name in _statistics(node) if readers.get(name, set()) <= ARITHMETIC}
    # The statistics of a layer without an ONNX operator, which minorm wrote as a formula, stay statistics too.
    held = {name for node in owners for name in _statistics(node)}
    named = [name for name in readers if source.ours and name.rpartition(".")[2] in RUNNING]
    alone = {name for name in named if name in initializers and name not in held}
    fixed |= alone
    known = {name: array for name, array in arrays.items() if name in wanted and name not in fixed}
    if trainable is None:
        judge = Judge(nodes, inputs, initializers, arrays, source)
        verdicts = {name: judge.of(name) for name in known}
    else:
        chosen = weights.asked(trainable, known, {*arrays, *initializers, *origin, *inputs})
        verdicts = {name: ASKED if name in chosen else NOT_ASKED for name in known}
    parameters = {name: array for name, array in known.items() if verdicts[name].trains}
    others = [name for name in known if name in initializers] if trainable is None else ()
    spread = weights.spread(parameters, others, arrays, source)
    parameters = {name: array for name, array in parameters.items() if name not in spread}
    roles = Roles(parameters, dict.fromkeys([*updated, *sorted(alone)], ""), spread, dict(updated))
    roles.verdicts = {name: others_of(array, name in fixed) for name, array in {**initializers, **arrays}.items()}
    roles.verdicts |= verdicts | {
        name: Verdict(PARAMETER, f"it repeats {other!r} for each sample") for name, other in spread.items()
    }
    taken: dict[str, Any] = dict.fromkeys(roles.parameters)
    numbers: dict[Any, int] = {}  # suffixes of the names of a layer's statistics
    last: dict[str, int] = {}
    affine = {id(node): firsts.get(id(node), node).inputs[1:3] for node in owners}
    named_once = {name for names in affine.values() for name in names}
    contents = {name: calls.content(name, arrays, roles.parameters) for name in named_once}
    for node in owners:
        names = []
        shared = tuple(contents[name] for name in affine[id(node)])
        for place in places(node):
            layer = (place, shared, node.inputs[3:5])
            name = wish = node.inputs[place]
            number = numbers.get(layer, last.get(wish, 0))
            while taken.setdefault(f"{wish}_{number}" if number else wish, layer) != layer:
                number += 1
            numbers[layer] = last[wish] = number
            name = f"{wish}_{number}" if number else wish
            roles.buffers[name] = origin[wish]
            names.append(name)
        node.statistics = tuple(names)
    same = _roots(nodes) if updated else {}
    kept = {node.statistics for node in owners if _updates(node, same, updated)}
    for node in owners:  # the file keeps the statistics that the last call of a layer computes
        node.updates = node.statistics in kept
        if node.updates:
            for name in node.statistics:
                roles.updates.pop(name, None)
            roles.snapshots.update(name for name in node.statistics if name in readers)
    roles.buffers |= {name: name for name, start in roles.buffers.items() if not start}
    return roles


def _floats(nodes: Sequence[Node], initializers: Mapping[str, Any], source: Origin) -> dict[str, Any]:
    """Return the float tensors of the file by name: initializers, Constants, and the results of an Identity."""
    arrays = {name: array for name, array in initializers.items() if dtypes.is_float(array.dtype)}
    arrays |= weights.constants(nodes)
    return arrays | {name: arrays[first] for name, first in weights.copies(nodes, arrays, source).items()}


def _roots(nodes: Sequence[Node]) -> dict[str, str]:
    """Map the result of each Identity to the value that it copies."""
    roots: dict[str, str] = {}
    for node in nodes:
        if node.operator == "Identity":
            roots[node.outputs[0]] = roots.get(node.inputs[0], node.inputs[0])
    return roots


def _updates(node: Node, same: Mapping[str, str], updated: Mapping[str, str]) -> bool:
    """Return True if the file keeps the running statistics that this node computes, and no other node changes them."""
    kept = ((updated.get(name, new), new) for name, new in zip(node.statistics, node.outputs[1:3], strict=False))
    return all(same.get(found, found) == same.get(new, new) for found, new in kept)


def _readers(nodes: Sequence[Node], owners: set[int]) -> dict[str, set[str]]:
    """Map each value to the operators that read the value; nodes that own it as running statistics do not count."""
    readers: dict[str, set[str]] = {}
    for node in nodes:
        held = places(node) if id(node) in owners else ()
        for place, name in enumerate(node.inputs):
            if name and place not in held:
                readers.setdefault(name, set()).add(node.operator)
    return readers


def _statistics(node: Node) -> tuple[str, ...]:
    return tuple(node.inputs[place] for place in places(node))


def _origins(nodes: Sequence[Node], initializers: Mapping[str, Any]) -> dict[str, str]:
    """Map each value that is an initializer or a constant, perhaps after an Identity, to the name of this tensor.

    A value is also a constant if a node such as ConstantOfShape computes it from constants and without a gradient.
    """
    origin = {name: name for name in initializers}
    for node in nodes:
        if node.body is not None:
            continue
        fixed = READERS[node.operator, node.since].fixed_inputs(node)
        if node.operator == "Constant":
            origin[node.outputs[0]] = node.outputs[0]
        elif node.operator == "Identity" and node.inputs[0] in origin:
            origin[node.outputs[0]] = origin[node.inputs[0]]
        elif node.inputs and all(place in fixed and name in origin for place, name in enumerate(node.inputs)):
            origin |= {name: name for name in node.outputs if name}
    return origin


def _values_with_gradient(
    nodes: Sequence[Node], owners: set[int], outputs: Iterable[str], discrete: set[str]
) -> set[str]:
    """Return the values to which a gradient can flow from an output; it does not flow through discrete values."""
    wanted = set(outputs) - discrete
    for node in reversed(nodes):
        if not any(name in wanted for name in node.outputs if name):
            continue
        fixed = READERS[node.operator, node.since].fixed_inputs(node)
        held = places(node) if id(node) in owners else ()
        wanted.update(
            name
            for place, name in enumerate(node.inputs)
            if name and place not in fixed and place not in held and name not in discrete
        )
    return wanted
