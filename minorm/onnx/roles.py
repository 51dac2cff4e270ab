"""What an initializer becomes: a Parameter, a buffer, or a constant.

A Parameter is every floating initializer through which gradient can reach an output, whatever lies between. It is
found by walking backwards from the outputs through all inputs that have a gradient. Running statistics are buffers:
the mean and variance of a BatchNormalization that the file itself holds. Everything else (shapes, indices, bounds,
scales of a Resize) is a constant.

Two nodes may name one tensor as their statistics, because a tool merged equal initializers of a fresh model. Nodes
that share scale and bias too are one layer, called twice; others get statistics of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from minorm import dtypes
from minorm.onnx.reading import Node
from minorm.onnx.registry import READERS

STATISTICS = {"BatchNormalization": (3, 4)}  # operator -> the places of its running statistics


@dataclass
class Roles:
    """parameters: names of initializers. buffers: a buffer's name -> the value it starts from."""

    parameters: set[str] = field(default_factory=set)
    buffers: dict[str, str] = field(default_factory=dict)


def assign(nodes: Sequence[Node], initializers: Mapping[str, Any], outputs: Iterable[str]) -> Roles:
    """Decide, and tell each node the buffers it owns (`node.statistics`)."""
    origin = _origins(nodes, initializers)
    owners = [node for node in nodes if all(name in origin for name in _statistics(node)) and _statistics(node)]
    wanted = _wanted(nodes, {id(node) for node in owners}, outputs)
    roles = Roles({name for name in wanted if name in initializers and dtypes.is_float(initializers[name].dtype)})
    taken: dict[str, Any] = dict.fromkeys(roles.parameters)
    for node in owners:
        names = []
        for place in STATISTICS[node.operator]:
            layer = (place, node.inputs[1:5])
            name = wish = node.inputs[place]
            number = 0
            while taken.setdefault(name, layer) != layer:
                number += 1
                name = f"{wish}_{number}"
            roles.buffers[name] = origin[wish]
            names.append(name)
        node.statistics = tuple(names)
    return roles


def _statistics(node: Node) -> tuple[str, ...]:
    return tuple(node.inputs[place] for place in STATISTICS.get(node.operator, ()))


def _origins(nodes: Sequence[Node], initializers: Mapping[str, Any]) -> dict[str, str]:
    """value -> the initializer or constant that it is, perhaps under another name (Identity)."""
    origin = {name: name for name in initializers}
    for node in nodes:
        if node.operator == "Constant":
            origin[node.outputs[0]] = node.outputs[0]
        elif node.operator == "Identity" and node.inputs[0] in origin:
            origin[node.outputs[0]] = origin[node.inputs[0]]
    return origin


def _wanted(nodes: Sequence[Node], owners: set[int], outputs: Iterable[str]) -> set[str]:
    """The values through which gradient can reach an output."""
    wanted = set(outputs)
    for node in reversed(nodes):
        if not any(name in wanted for name in node.outputs if name):
            continue
        fixed = READERS[node.operator, node.since].fixed_inputs(node)
        held = STATISTICS[node.operator] if id(node) in owners else ()
        wanted.update(
            name for place, name in enumerate(node.inputs) if name and place not in fixed and place not in held
        )
    return wanted
