"""Write Dropout in training, and no node in inference; how a node stores its mode depends on the version.

Versions 1 and 6 train unless `is_test` is 1. Versions 7 and 10 have no mode: a runtime for inference ignores the node.
From 12 on `ratio` and `training_mode` are inputs. minorm ignores `seed`: all draws come from minorm's generator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

import minorm.functional as F
from minorm.devices import dtypes
from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.model_graph import Graph, Value
from minorm.onnx.graph.node_layers import Layer
from minorm.onnx.graph.node_rewriter import Kind, NodeRewriter
from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.registry import converts, reads, sets_mode, writes
from minorm.tensor.tensor import Tensor

BETWEEN = "before opset 12 a Dropout node does not say whether it trains; most runtimes treat it as the identity"


@writes(F.dropout, "Dropout", since=7)
def write_7(g: Graph, x: Value, p: float, training: bool) -> Value:
    g.warn(BETWEEN)
    return g.add("Dropout", x, ratio=float(p))


@writes(F.dropout, "Dropout", since=12)
def write_12(g: Graph, x: Value, p: float, training: bool) -> Value:
    ratio = g.constant(p, dtypes.float32, "ratio")
    return g.add("Dropout", x, ratio, g.constant(training, np.bool_, "training_mode"), shape=x.shape)


class Dropout(Layer):
    """A Dropout node, in training or in inference mode.

    If the graph computes the mode, the node uses this mode. Otherwise, the node begins in the mode that the file gives,
    and train() and eval() change the mode. If the graph reads the second output, this output is True for each kept
    element (before version 10, it is 1).
    """

    def __init__(self, node: Node, trains: bool) -> None:
        super().__init__()
        self.training = trains
        self.ratio: Any = node["ratio"] if node.since < 12 else _known_ratio(node)
        self.computed = node.has(2) and node.constant(2) is None
        self.masks, self.mask_is_bool = node.wants(1), node.since >= 10

    def forward(self, x: Tensor, ratio: Tensor | None = None, training_mode: Tensor | None = None) -> Any:
        """Return x in inference; in training, set some elements of x to 0, and scale all other elements up."""
        p = self.ratio if ratio is None else float(ratio.item())
        trains = bool(training_mode) if self.computed and training_mode is not None else self.training
        trains = trains and not self.frozen
        if not self.masks:
            return F.dropout(x, p, trains)
        factor = F.dropout(Tensor(np.ones(x.shape, x.dtype)).to(x.device), p, trains)
        kept = factor != 0
        return (x * factor if trains and p else x), (kept if self.mask_is_bool else kept.to(x.dtype))

    def extra_repr(self) -> str:
        """Show the probability if the file fixes it."""
        return "" if self.ratio is None else f"p={self.ratio:g}"


def _known_ratio(node: Node) -> float | None:
    """Return the ratio from version 12 on: 0.5 if it is left out, None if the graph computes it."""
    ratio = node.constant(1)
    if ratio is not None and ratio.size == 1:
        return float(ratio.item())
    return None if node.has(1) else 0.5


@reads("Dropout", since=1)
def read_1(node: Node) -> Dropout:
    return Dropout(node, not node["is_test"])


@reads("Dropout", since=7)
def read_7(node: Node) -> Dropout:
    return Dropout(node, False)


@reads("Dropout", since=12, fixed=(1, 2))
def read_12(node: Node) -> Dropout:
    mode = node.constant(2)
    return Dropout(node, mode is not None and bool(mode))


@converts("Dropout")
def dropout(d: NodeRewriter) -> None:
    """Convert the node; the mode stays if the target version can store it (before 7 and from 12 on)."""
    ratio: Any = d.take("ratio", 0.5) if d.since < 12 else 0.5
    trains = not d.take("is_test", 0) if d.since < 7 else False
    d.drop("consumed_inputs")
    if d.since >= 12:
        if d.goal >= 12:
            return
        mode = d.array(2)
        if d.input(2) and mode is None:
            raise RuleNotApplicable("its mode is computed at run time")
        trains = mode is not None and bool(mode.reshape(-1)[0])
        ratio = d.array(1)
        if d.input(1) and ratio is None and trains:
            raise RuleNotApplicable("its ratio is computed at run time")
        ratio = 0.5 if ratio is None else float(ratio.reshape(-1)[0])
        for place in (2, 1):
            if d.input(place):
                d.values.absorbed.add(d.input(place))
                d.feed(place, "")
        d.drop("seed")
    if d.goal >= 12:
        if ratio != 0.5:
            d.feed(1, d.constant(ratio, TensorProto.FLOAT, "ratio"))
        if trains:
            d.feed(2, d.constant(True, TensorProto.BOOL, "training_mode"))
    else:
        d.set("ratio", float(ratio))
    mask = d.output(1)
    if mask and mask not in d.values.read:
        d.node.output.pop()
    elif mask and not trains and d.since >= 12 and d.goal < 12:  # in inference older versions give no mask of ones
        d.node.output.pop()
        positive = d.emit("Greater", d.input(0), d.scalar(0, d.input(0), "zero"))
        d.emit("Or", positive, d.emit("Not", positive), to=mask)
    elif mask and (d.since < 10) != (d.goal < 10):  # from 10 on it is of type bool
        elem, old = (TensorProto.BOOL if since >= 10 else d.elem(d.input(0)) for since in (d.goal, d.since))
        d.after("Cast", d.divert(1, Kind(elem)), to=mask, elem=old)


@sets_mode("Dropout")
def mode(d: NodeRewriter, trains: bool, updates: bool, statistics: Sequence[str]) -> tuple[str, ...]:
    """Set the mode of a node: in is_test before 7, and in the third input from 12 on.

    Versions 7 and 10 have no mode. A mode that the graph computes stays unchanged.
    """
    if d.since < 7:
        d.drop("is_test")
        if not trains:
            d.set("is_test", 1)
    elif d.since >= 12 and not (d.input(2) and d.array(2) is None):
        says = bool(d.input(2)) and bool(d.array(2).reshape(-1)[0])
        if says and not trains:
            d.values.absorbed.add(d.input(2))
            d.feed(2, "")
        elif trains and not says:
            d.feed(2, d.constant(True, TensorProto.BOOL, "training_mode"))
    elif trains:
        d.notes["warning"] = BETWEEN
    return ()
