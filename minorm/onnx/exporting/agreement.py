"""Merge several runs of a model into one: check that they agree, and find the lengths in which they differ.

The first runs differ in the lengths of free axes; the graph's symbols say which run has which length. Then there may be
a run (the probe) with other input values, whose shapes and constants must be the same. The last run may be the
`follower`, in which the free axes have lengths that no other run had. The follower does not change the graph: the other
runs predict its lengths and numbers, and we record where the follower differs from this prediction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minorm.onnx.graph.errors import ExportError, Unstable
from minorm.onnx.graph.model_graph import Graph
from minorm.onnx.graph.sizes import Length, Shape, size_of
from minorm.tensor.tensor import Tensor

BEHIND = (
    "is computed from the input's values, or drawn at random, outside minorm's operations (x.numpy(), x.item(), "
    "NumPy): a graph would freeze its value for this input; use Tensor operations"
)


class Agreement:
    """Compares the runs; `values[r]` below is the value in run r.

    probe      True if there is a run with other input values
    follower   the lengths of the free axes in the follower; None if there is no follower
    """

    def __init__(self, graph: Graph, probe: bool, follower: Mapping[str, int] | None) -> None:
        self.graph = graph
        self.sized = 1 + len(graph.symbols.runs)
        self.probe = self.sized if probe else None
        self.follower = self.sized + probe if follower is not None else None
        self._lengths = follower or {}
        self.notes: list[str] = []  # the differences of the follower

    def agree(self, what: str, values: Sequence[Any]) -> None:
        """Raise an error if `values` differ.

        The error is an ExportError if the value differs in the run with other input values, and otherwise Unstable.
        """
        if all(value == values[0] for value in values):
            return
        where = f" in {self.graph.scope}" if self.graph.scope else ""
        if self.probe is not None and values[self.probe] != values[0]:
            raise ExportError(
                f"export: {what}{where} depends on the input's values; a graph has one path for all inputs: "
                "use minorm.where instead of Python's if"
            )
        for run, (symbol, length) in enumerate(self.graph.symbols.runs, 1):
            if values[run] != values[0]:
                name, usual = self.graph.symbols.names[symbol], self.graph.symbols.base[symbol]
                raise Unstable(
                    f"{what}{where} depends on the length of the free axis {name!r}: "
                    f"it is {values[0]} at length {usual}, but {values[run]} at length {length}"
                )
        raise Unstable(f"{what}{where} is {values[0]} in the file, {values[-1]} in the model")

    def shape(self, tensors: Sequence[Tensor], what: str) -> Shape:
        """Return the shape of a Tensor; a length that differs between the runs becomes a Size."""
        self.agree(f"the rank {what}", [tensor.ndim for tensor in tensors])
        lengths = zip(*[tensor.shape for tensor in tensors], strict=True)
        return tuple(self.length(own, f"axis {axis} {what}") for axis, own in enumerate(lengths))

    def length(self, values: Sequence[int], what: str) -> Length:
        """Return a length: a plain int, or a Size that depends on a free axis."""
        if self.probe is not None and values[self.probe] != values[0]:
            self.agree(what, values)
        length = size_of(values[: self.sized])
        if self.follower is not None:
            expected = self.graph.symbols.at(length, self._lengths)
            if expected not in (None, values[self.follower]):
                self._note(what, expected, values[self.follower])
        return length

    def equal(self, values: Sequence[Any], what: str) -> Any:
        """Return a value that must be the same in all runs."""
        first = values[0]
        differ = [value != first and (value == value or first == first) for value in values]  # NaN is equal to NaN here
        if any(differ[: self.sized]) or (self.probe is not None and differ[self.probe]):
            self.agree(what, values)
        if self.follower is not None and differ[self.follower]:
            self._note(what, first, values[self.follower])
        return first

    def constant(self, arrays: Sequence[Any], what: str) -> bool:
        """Return True if an array is the same at all lengths; raise ExportError if other input values change it."""
        if self.probe is not None and not same(arrays[0], arrays[self.probe]):
            raise ExportError(f"export: {what} of shape {arrays[0].shape} {BEHIND}")
        if not all(same(arrays[0], array) for array in arrays[: self.sized]):
            return False
        if self.follower is not None and not same(arrays[0], arrays[self.follower]):
            self.notes.append(f"{what} of shape {arrays[0].shape} holds different numbers in the file and in the model")
        return True

    def _note(self, what: str, file: Any, model: Any) -> None:
        self.notes.append(f"{what} is {file} in the file, {model} in the model")


def same(a: Any, b: Any) -> bool:
    """Return True if shapes, types and contents are equal; a NaN equals a NaN with the same bits."""
    a, b = np.asarray(a), np.asarray(b)
    return a.shape == b.shape and a.dtype == b.dtype and (a is b or a.tobytes() == b.tobytes())
