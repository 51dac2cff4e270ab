"""Checkpoints: nodes drop their state after the forward pass, and compute this state again when a backward walk reaches
the nodes.

The graph itself stays: edges, hooks and version counters. The nodes lose the attributes that `forward` kept, so the
memory of intermediate results is freed. To restore the attributes, the same function runs again and makes the same
nodes in the same order. The state of each new node moves to the old node.

If checkpoints are nested, a node of the second run may have dropped its state too. Then the old node waits until the
state of the new node is restored.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from minorm.graph.graph import Function, serial

_STRUCTURE = frozenset({"needs", "edges", "serial", "outputs", "watched", "total", "retained", "_hooks", "pending"})


class Recomputation:
    """Drops what forward kept in the nodes that lead to `outputs` and have a serial number of at least `begun`.

    again: a function that computes the outputs a second time, and records the graph
    """

    def __init__(self, outputs: Sequence[Any], begun: int, again: Callable[[], Sequence[Any]]) -> None:
        self.again = again
        self.forms: list[tuple[Any, ...]] = []
        self.waiting: list[list[weakref.ref[Function]]] = []  # by place; weak, since nodes hold this object
        for place, node in enumerate(_nodes(outputs, begun)):
            self.forms.append(_form(node))
            self.waiting.append([weakref.ref(node)])
            structure = {name: value for name, value in vars(node).items() if name in _STRUCTURE}
            node.__dict__.clear()
            node.__dict__.update(structure)
            node.pending = self, place

    def restore(self) -> None:
        """Run `again`, and give the state of its nodes to the nodes that dropped their state.

        If `again` makes other nodes than the first run, raise RuntimeError and change nothing.
        """
        begun = serial()
        nodes = _nodes(self.again(), begun)
        self._check([_form(node) for node in nodes])
        for node, references in zip(nodes, self.waiting, strict=True):
            state = {name: value for name, value in vars(node).items() if name not in _STRUCTURE}
            for reference in references:
                target = reference()
                if target is None or target.pending is None or target.pending[0] is not self:
                    continue  # the old node was freed
                del target.pending
                target.__dict__.update(state)
                if node.pending is not None:
                    inner, place = target.pending = node.pending
                    inner.waiting[place].append(reference)

    def _check(self, forms: list[tuple[Any, ...]]) -> None:
        if forms == self.forms:
            return
        advice = (
            "expected the same operations, because the function may depend only on its arguments and on random numbers"
        )
        for place, (before, now) in enumerate(zip(self.forms, forms, strict=False)):
            if before != now:
                raise RuntimeError(
                    f"checkpoint: operation {place} of the function was {_shown(before)}, but {_shown(now)} when the "
                    f"function ran again for backward(); {advice}"
                )
        raise RuntimeError(
            f"checkpoint: the function recorded {len(self.forms)} operations, but {len(forms)} when it ran again for "
            f"backward(); {advice}"
        )


def _nodes(outputs: Sequence[Any], begun: int) -> list[Function]:
    """Return the nodes that lead to the outputs and have serial numbers from `begun` on, ordered by these numbers."""
    found: dict[int, Function] = {}
    stack = [y.creator for y in outputs]
    while stack:
        node = stack.pop()
        if node is None or node.serial < begun or id(node) in found:
            continue
        found[id(node)] = node
        stack += [edge[0] for edge in node.edges or () if edge is not None and edge[2] is not None]  # None: a leaf
    return sorted(found.values(), key=lambda node: node.serial)


def _form(node: Function) -> tuple[Any, ...]:
    """Return the node's operation, its number of outputs, and the shape and type of each input with a gradient."""
    return type(node).__name__, node.outputs, *[edge and (edge[2], edge[3]) for edge in node.edges or ()]


def _shown(form: tuple[Any, ...]) -> str:
    name, _, *inputs = form
    shapes = [f"{edge[1]}{edge[0]}" for edge in inputs if edge is not None and edge[0] is not None]
    return f"{name} of {', '.join(shapes)}" if shapes else name
