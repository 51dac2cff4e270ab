"""Choose the opset of a file, if the caller does not: the lowest opset at which no normalization is split.

Older runtimes run older opsets, so lower is better. But some operators are new: LayerNormalization exists from opset 17
on, RMSNormalization from 23 on, and GroupNormalization has one scale per channel from 21 on. At lower opsets, the same
layer takes several nodes. So we first write the model at the newest opset that export may choose, and count the nodes.
Then we take the lowest opset at which no normalization takes more nodes, and which can write all other operations. The
model runs only once for all these attempts.
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
    """Counts the nodes that each normalization takes in a graph that is being written.

    least    id of a call -> the number of nodes that it takes at another opset; if it takes more here, we raise Split
    """

    def __init__(self, least: Mapping[int, int] | None = None) -> None:
        self.least = least or {}
        self.counts: dict[int, int] = {}

    def count(self, call: Call, nodes: Sequence[Node], what: str) -> None:
        """Count the nodes of a call; nodes that only prepare its weights do not count, because they run only once."""
        fixed = {id(v) for node in nodes for v in node.inputs if v is not None and v.array is not None}
        pieces = 0
        for node in nodes:
            if all(value is None or id(value) in fixed for value in node.inputs):
                fixed.update(id(value) for value in node.outputs if value is not None)
            else:
                pieces += 1
        self._note(call, pieces, what)

    def count_file(self, call: Call, nodes: Iterable[Any], what: str) -> None:
        """Count -1 for each normalization that is one node in a loaded graph, so that a split makes the sum larger."""
        whole = sum(node.op_type in OPERATORS for node in nodes)
        self._note(call, -whole, f"a normalization of {what}")

    def _note(self, call: Call, pieces: int, what: str) -> None:
        self.counts[id(call)] = pieces
        if pieces > self.least.get(id(call), pieces):
            raise Split(what)


Walk = TypeVar("Walk")


@dataclass
class Choice(Generic[Walk]):
    """Holds the opset, the result of the walk at this opset, and the reason against the opset below, in words."""

    opset: int
    found: Walk
    why: str = ""


def choose(walk: Callable[[int, Pieces], Walk], newest: int) -> Choice[Walk]:
    """Write the model at the lowest opset that is enough; `newest` is the newest opset of the onnx package.

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
    """Say in words why export chose an opset; `why` is the reason against the opset below."""
    text = f"the lowest opset from {versions.DEFAULTS[0]} on that has every operator and splits no normalization"
    return f"{text} ({why})" if why else text
