"""Choose the opset of a file if the caller does not choose it: the lowest at which no normalization is split.

A lower opset is better, because older runtimes can run it. But some operators are new: LayerNormalization exists from
opset 17 on, RMSNormalization exists from opset 23 on, and GroupNormalization has one scale per channel from opset 21
on. At lower opsets, such a layer takes several nodes. So we first write the model at the newest opset that export may
choose, and count the nodes. Then we take the lowest opset that can express all operations and at which no normalization
takes more nodes. All these attempts use the same recorded run of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import minorm.functional as F
from minorm.graph.trace import Call
from minorm.onnx.graph import versions
from minorm.onnx.graph.errors import ExportError, Split, Unstable
from minorm.onnx.graph.model_graph import Node
from minorm.onnx.operators.norm import batch_statistics

NORMALIZATIONS = {
    F.batch_norm, F.instance_norm, F.group_norm, F.layer_norm, F.rms_norm, F.mean_variance_norm, F.normalization,
    F.local_response_norm, F.normalize, F.filter_response_norm, F.ghost_batch_norm, F.batch_renorm,
    batch_statistics.batch_norm,
}  # fmt: skip
# InstanceNormalization is older than all these opsets, and a split GroupNormalization contains one.
OPERATORS = {
    "BatchNormalization", "GroupNormalization", "LayerNormalization", "LpNormalization", "LRN",
    "MeanVarianceNormalization", "RMSNormalization",
}  # fmt: skip


class Pieces:
    """Counts how many nodes each normalization takes, while a graph is written.

    least    id of a call -> the number of nodes that the call takes at the newest opset; Split is raised if the call
             takes more nodes now
    """

    def __init__(self, least: Mapping[int, int] | None = None) -> None:
        self.least = least or {}
        self.counts: dict[int, int] = {}

    def count(self, call: Call, nodes: Sequence[Node], what: str) -> None:
        """Count the nodes of a call; nodes that only compute with weights do not count, because they run only once."""
        fixed = {id(v) for node in nodes for v in node.inputs if v is not None and v.array is not None}
        pieces = 0
        for node in nodes:
            if all(value is None or id(value) in fixed for value in node.inputs):
                fixed.update(id(value) for value in node.outputs if value is not None)
            else:
                pieces += 1
        self._note(call, pieces, what)

    def count_file(self, call: Call, nodes: Iterable[Any], what: str) -> None:
        """For a loaded graph, note the number of normalizations that are one node, with a minus sign.

        If a normalization is split at another opset, the number there is larger.
        """
        whole = sum(node.op_type in OPERATORS for node in nodes)
        self._note(call, -whole, f"a normalization of {what}")

    def _note(self, call: Call, pieces: int, what: str) -> None:
        self.counts[id(call)] = pieces
        if pieces > self.least.get(id(call), pieces):
            raise Split(what)


Walk = TypeVar("Walk")


@dataclass
class Choice(Generic[Walk]):
    """Holds the opset, the result of the walk at this opset, and the reason why the opset below was not chosen."""

    opset: int
    found: Walk
    why: str = ""


def choose(walk: Callable[[int, Pieces], Walk], newest: int) -> Choice[Walk]:
    """Write the model at the lowest suitable opset; `newest` is the newest opset that the onnx package knows.

    walk    a function that writes the model at an opset, and counts the nodes of each normalization
    """
    top = min(versions.DEFAULTS[-1], newest)
    pieces = Pieces()
    best, why = walk(top, pieces), ""
    for opset in range(versions.DEFAULTS[0], top):
        try:
            return Choice(opset, walk(opset, Pieces(pieces.counts)), why)
        except Split as what:
            why = f"opset {opset} splits {what}"
        except (ExportError, Unstable):
            why = f"opset {opset} does not have every operator"
    return Choice(top, best, why)


def reason(why: str) -> str:
    """Return a text that says why export chose an opset; `why` says why the opset below was not chosen."""
    text = f"the lowest opset from {versions.DEFAULTS[0]} on that has every operator and splits no normalization"
    return f"{text} ({why})" if why else text
