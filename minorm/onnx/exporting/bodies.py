"""Find the part of a ModelProto that holds a value of a loaded graph: the graph, a branch, or a function's body."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from minorm.onnx.exporting.inlining import write_out
from minorm.onnx.graph.node_rewriter import graphs_of, path_of
from minorm.onnx.loading.flattening import Layout


class Bodies:
    """Holds the graph of a model, and the graphs and functions inside it."""

    def __init__(self, model: Any, layout: Layout) -> None:
        self.model, self.layout = model, layout
        self.holders = dict(_all(model))
        self.paths = {id(holder): path for path, holder in self.holders.items()}
        self.calls = set(layout.labels.values())
        self.written_out: set[str] = set()
        self._last: dict[int, int] = {}  # id of a graph -> the place where we last put nodes
        self._literal: dict[str, Any] = {}
        self._makers: dict[int, dict[str, Any]] = {}

    def calls_around(self, value: str) -> list[str]:
        """Return the function calls around a value, innermost first."""
        home = self.layout.homes.get(value)
        calls, context = [], home.context if home is not None else ""
        while context:
            if context in self.calls:
                calls.append(context)
            context = self.layout.around[context]
        return calls

    def write_out(self, calls: set[str]) -> None:
        """Replace each of these function calls by the nodes of the function."""
        if calls:
            write_out(self.model, self.layout, calls)
            self.written_out = calls
            self._literal = {
                name: holder
                for path, holder in _all(self.model)
                if hasattr(holder, "initializer")
                for node in holder.node
                for name in node.output
            }

    def find(self, value: str) -> tuple[Any, str]:
        """Return the graph or function that holds a value, and the name of the value in it."""
        home = self.layout.homes.get(value)
        if home is None:
            return self.model.graph, value
        if self.written_out.intersection(self.calls_around(value)):
            return self._literal[value], value
        return self.holders[home.path], home.name

    def maker(self, value: str) -> Any:
        """Return the node that computes a value; None if no node computes it."""
        holder, name = self.find(value)
        if id(holder) not in self._makers:
            self._makers[id(holder)] = {name: node for node in holder.node for name in node.output if name}
        return self._makers[id(holder)].get(name)

    def place(self, holder: Any, node: Any, before: Iterable[Any], behind: Iterable[Any], stays: bool = True) -> None:
        """Insert new nodes before and after a node; remove the node itself if `stays` is False."""
        nodes, start = holder.node, self._last.get(id(holder), 0)
        index = next(i for i in chain(range(start, len(nodes)), range(start)) if nodes[i] is node)
        self._last[id(holder)] = index
        if not stays:
            del nodes[index]
        for new in before:
            nodes.insert(index, new)
            index += 1
        for new in behind:
            index += 1
            nodes.insert(index if stays else index - 1, new)


def _all(model: Any) -> Iterator[tuple[str, Any]]:
    pending: list[tuple[str, Any]] = [("", model.graph), *((path_of(f), f) for f in model.functions)]
    while pending:
        path, holder = pending.pop()
        yield path, holder
        for index, node in enumerate(holder.node):
            pending += [(f"{path}/{index}.{name}", graph) for name, graph in graphs_of(node)]
