"""Collect the names in a model: all names, so that new names differ from these, or the names that nodes read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from minorm.onnx.graph.node_rewriter import graphs_of
from minorm.onnx.graph.tensors import text


def names_of(model: Any) -> Iterable[str]:
    """Yield every name of a value or a node anywhere in the model; new names must differ from these."""
    pending = [model.graph]
    for function in model.functions:
        yield from function.input
        yield from function.output
    holders: list[Any] = [*pending, *model.functions]
    while holders:
        holder = holders.pop()
        if hasattr(holder, "initializer"):
            yield from (entry.name for entry in (*holder.input, *holder.output, *holder.initializer))
        for node in holder.node:
            for word in (node.name, node.op_type, node.domain, *(a.name for a in node.attribute)):
                text(word, "a name in a node")
            yield node.name
            yield from node.input
            yield from node.output
            holders += [graph for _, graph in graphs_of(node)]


def reads_of(nodes: Any) -> set[str]:
    """Return the names that nodes read, or that the nodes of graphs inside these nodes read."""
    found: set[str] = set()
    for node in nodes:
        found.update(node.input)
        for _, graph in graphs_of(node):
            found |= reads_of(graph.node) | {entry.name for entry in graph.output}
    return found


def drop(entries: Any, gone: Callable[[Any], bool]) -> None:
    """Remove the entries for which `gone` is true from a protobuf list; the list's remove() takes quadratic time."""
    for index in range(len(entries) - 1, -1, -1):
        if gone(entries[index]):
            del entries[index]


def refill(field: Any, messages: Iterable[Any]) -> None:
    """Fill a protobuf list with copies of messages, which may be entries of the same list.

    The messages are copied as bytes before the list is cleared, because a message object outside a list takes a
    thousand bytes more.
    """
    contents = [message.SerializeToString() for message in messages]
    del field[:]
    for one in contents:
        field.add().ParseFromString(one)
