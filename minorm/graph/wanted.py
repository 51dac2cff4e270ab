"""Finds the Functions that lead to the Tensors whose gradients are requested; a walk skips all others.

A gradient penalty, for example, needs gradients only for images, not for weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from minorm.graph.graph import Function

Place = tuple[int, int]  # the id of a leaf or of a Function, and the index of its output


def place_of(tensor: Any) -> Place:
    """Return the Place of a Tensor, which says where in the graph the Tensor is.

    If a Function made the Tensor, the Place is (id of the Function, index of the output). For a leaf, the Place is (id
    of the leaf, 0).
    """
    return id(tensor if tensor.creator is None else tensor.creator), tensor.output_index


class Wanted:
    """Finds the Functions on the paths from `outputs` to `inputs`; `places` says where in the graph the inputs are."""

    def __init__(self, inputs: Iterable[Any], outputs: Iterable[Any]) -> None:
        self.places = {place_of(x) for x in inputs}
        self.leading: dict[int, bool] = {}  # id of a Function -> True if it leads to one of the places
        for y in outputs:
            if y.creator is not None:
                self._look(y.creator)

    def has(self, source: Any, index: int) -> bool:
        """Return whether this leaf, or this output of a Function, is a wanted place or leads to a wanted place."""
        return (id(source), index) in self.places or self.leading.get(id(source), False)

    def among(self, edges: Sequence[Any]) -> tuple[bool, ...]:
        """Return a bool for each edge of a Function: True if the edge leads to a wanted place."""
        return tuple([edge is not None and self.has(edge[0], edge[1]) for edge in edges])

    def _look(self, root: Function) -> None:
        """Record in `leading` for `root` and all Functions before it whether the Function leads to a wanted place.

        The method uses no recursion, since a graph may be deeper than Python's stack.
        """
        stack: list[tuple[Function, bool]] = [(root, False)]
        while stack:
            function, done = stack.pop()
            if done:
                self.leading[id(function)] = True in self.among(function.edges or ())
            elif id(function) not in self.leading:
                if function.edges is None:  # its inputs are no longer known
                    raise function.freed()
                self.leading[id(function)] = False
                stack.append((function, True))
                stack += [(e[0], False) for e in function.edges if e is not None and isinstance(e[0], Function)]
