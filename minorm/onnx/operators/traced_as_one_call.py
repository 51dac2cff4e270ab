"""Trace a loaded node as one call, so that `export` can write the node again although minorm has no such operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from minorm.graph import trace
from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.model_graph import Graph, Value
from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.registry import lowers


@dataclass(frozen=True)
class Written:
    """A node to write: its operator, version and attributes, and the function that computes it."""

    operator: str
    since: int
    attributes: dict[str, Any]
    compute: Callable[..., Any] = field(compare=False)


def whole(node: Node, compute: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `compute`, a function of the node's inputs, so that a trace shows the node instead of its parts."""
    written = Written(node.operator, node.since, dict(node.attributes), compute)
    return lambda *arguments: loaded_node(list(arguments), written)


@trace.operation
def loaded_node(arguments: Sequence[Any], node: Written) -> Any:
    """Compute the result of the node; None stands for an absent input."""
    return node.compute(*arguments)


@lowers(loaded_node)
def write(g: Graph, arguments: Sequence[Value | None], node: Written) -> Any:
    """Write the same node again."""
    if not g.has(node.operator, node.since):
        raise RuleNotApplicable(f"{node.operator} of the file exists from opset {node.since} on")
    shapes, types = tuple(r.shape for r in g.results), tuple(r.dtype for r in g.results)
    if len(shapes) == 1:
        return g.add(node.operator, *arguments, shape=shapes[0], dtype=types[0], **node.attributes)
    return g.add(node.operator, *arguments, outputs=len(shapes), shape=shapes, dtype=types, **node.attributes)
