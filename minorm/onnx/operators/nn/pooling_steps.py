"""Convert pooling to older opsets: `ceil_mode` becomes padding for fixed lengths, and is an error for free lengths."""

from __future__ import annotations

from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.node_rewriter import NodeRewriter
from minorm.onnx.graph.registry import converts


def _without_ceil(d: NodeRewriter) -> None:
    """Convert to a version before 10; version 10 added ceil_mode and, for MaxPool, dilations."""
    if set(d.take("dilations", None) or [1]) != {1}:
        raise RuleNotApplicable("before opset 10 there are no dilations")
    if not d.take("ceil_mode", 0) or d.get("auto_pad", "NOTSET") not in ("NOTSET", ""):
        return
    kernel = d.get("kernel_shape")
    strides = d.get("strides") or [1] * len(kernel)
    pads = d.get("pads") or [0] * (2 * len(kernel))
    more = []
    for axis, (k, stride) in enumerate(zip(kernel, strides, strict=True)):
        n = d.length(d.input(0), axis + 2) + pads[axis] + pads[axis + len(kernel)]
        over = -(n - k) % stride  # the elements missing to the end of the last window
        last = -(-(n - k) // stride) * stride  # a window that would start after the input's end is left out
        more.append(over if last < n - pads[axis + len(kernel)] else 0)
    if any(more):
        if d.node.op_type == "AveragePool":
            raise RuleNotApplicable("before opset 10 an average cannot leave out the elements that ceil_mode adds")
        d.set("pads", pads[: len(kernel)] + [p + m for p, m in zip(pads[len(kernel) :], more, strict=True)])


converts("MaxPool", 10, 8)(_without_ceil)
converts("AveragePool", 10, 7)(_without_ceil)


def _whole_power(d: NodeRewriter) -> None:
    """Convert the attribute `p`, which was a float in version 1, to an integer."""
    p = d.get("p", 2.0)
    if p != int(p):
        raise RuleNotApplicable(f"p is {p}; from opset 2 on, p is an integer")
    d.set("p", int(p))
    if d.node.op_type == "LpPool" and not d.has("kernel_shape"):
        raise RuleNotApplicable("from opset 2 on, LpPool needs kernel_shape")


converts("LpPool", 1, 2)(_whole_power)
converts("GlobalLpPool", 1, 2)(_whole_power)
