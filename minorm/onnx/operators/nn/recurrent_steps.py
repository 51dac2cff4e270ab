"""Convert LSTM, GRU and RNN: version 7 removed `output_sequence`, and version 14 added `layout`."""

from __future__ import annotations

from minorm.onnx.graph.node_rewriter import Kind, NodeRewriter
from minorm.onnx.graph.registry import converts


def _without_sequence(d: NodeRewriter) -> None:
    d.drop("output_sequence")


@converts("GRU", 1, 3)
def gru_3(d: NodeRewriter) -> None:
    """Keep the node unchanged.

    Version 1 only misspelled the default of `direction` and did not have linear_before_reset.
    """


def _time_first(d: NodeRewriter) -> None:
    """Transpose before and after a node with layout=1, in which the batch is the first axis."""
    if not d.take("layout", 0):
        return
    first = (0, 5, 6) if d.node.op_type == "LSTM" else (0, 5)
    for place in first:
        if d.input(place):
            name = d.input(place)
            kind = Kind(d.kind(name).elem, (None,) * 3)
            d.feed(place, d.emit("Transpose", name, perm=[1, 0, 2], kind=kind))
    elem = d.kind(d.input(0)).elem
    for place in range(len(d.node.output)):
        name = d.output(place)
        if name:
            rank = 4 if place == 0 else 3
            inner = d.divert(place, Kind(elem, (None,) * rank))
            d.after("Transpose", inner, to=name, perm=[2, 0, 1, 3] if place == 0 else [1, 0, 2])


converts("GRU", 3, 7)(_without_sequence)
for _operator in ("LSTM", "RNN"):
    converts(_operator, 1, 7)(_without_sequence)
for _operator in ("LSTM", "RNN", "GRU"):
    converts(_operator, 14, 7)(_time_first)
