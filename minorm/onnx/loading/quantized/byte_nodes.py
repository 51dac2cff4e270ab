"""Find nodes between DequantizeLinear and QuantizeLinear that one node with byte inputs can replace in inference.

    DequantizeLinear -> Conv, MatMul, Gemm or Add -> Relu? -> QuantizeLinear        a product, or a sum, of bytes
                                                 -> Clip? ->                        if it is a Relu for these bytes
    DequantizeLinear -> MaxPool, Reshape, Flatten, ... -> QuantizeLinear            the same node, on the bytes
    DequantizeLinear -> MaxPool, Reshape, Flatten, ... -> one of the above          the same

The nodes of the file stay in the graph, and run in training and when a function watches the run. In inference,
fused_steps.py runs one step instead of several. This step computes the same integers as onnxruntime: a sum of products
of integers, times the quotient of the scales. A group of nodes is replaced only if all these conditions hold. The
scales are fixed float32 numbers: one for a tensor, or one for each output of a weight. A bias is int32, and its scale
is the product of the scales of input and weight. No other node reads the values in between. Weights are integers of the
file, or floats that a QuantizeLinear rounds (see integer_weights.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from minorm.onnx.graph.reading import Node
from minorm.onnx.loading.quantized.quantities import (
    SAME,
    Quantity,
    carried,
    dequantized,
    fixed,
    held,
    makers,
    quantity,
    unused,
)
from minorm.onnx.loading.wiring import Wiring


@dataclass(frozen=True)
class Group:
    """Holds a node with byte inputs that replaces several nodes of the file.

    parts      the nodes that `node` replaces; the last one is the QuantizeLinear
    sources    the nodes of the file that convert the inputs of `node` from bytes to floats
    beside     True if the group has one part, which also stays for nodes that read its floats
    """

    node: Node
    parts: tuple[Node, ...]
    sources: tuple[Node, ...]
    constants: dict[str, Any] = field(default_factory=dict)  # new tensors, which the file does not have
    beside: bool = False


def groups(nodes: Sequence[Node], wiring: Wiring) -> list[Group]:
    """Return the groups among these nodes; [] if the graph has loops."""
    if any(node.body is not None for node in nodes):
        return []
    each = (_group(node, wiring) for node in nodes if node.operator == "QuantizeLinear" and not node.domain)
    found = [group for group in each if group is not None]
    read = {id(source) for group in found for source in group.sources}
    carriers = (_carrier(node, wiring) for node in nodes if id(node) in read and node.operator in SAME)
    return [*(group for group in carriers if group is not None), *found]


def _carrier(node: Node, w: Wiring) -> Group | None:
    """Return a group of one node that moves bytes instead of floats; another group reads the result."""
    x = dequantized(node.inputs[0], w)
    if x is None:
        return None
    made = _node(node, node.operator, (x.name, *node.inputs[1:]), carried(node.outputs[0], w), node.attributes)
    return Group(made, (node,), _sources(node, w), beside=True)


def _group(last: Node, w: Wiring) -> Group | None:
    result = quantity(last, last.outputs[0], w)
    if result is None or result.scale.size != 1 or last.get("precision", 0):
        return None
    before, bound = last.inputs[0], w.maker(last.inputs[0], "Relu", "Clip")
    relu = bound is not None and _cuts_off_at_zero(bound, result, w)
    parts: tuple[Node, ...] = (last,)
    if bound is not None:
        before, parts = bound.inputs[0], (bound, last)
    core = w.makers.get(before)
    if core is None or core.domain or core.conditions or "broadcast" in core.attributes:
        return None
    parts = (core, *parts)
    rule = _same if core.operator in SAME and bound is None else _RULES.get(core.operator)
    if rule is None or relu is None or last.conditions or not w.is_private(parts, last.outputs[0]):
        return None
    made = rule(core, result, w)
    if made is None or (relu and core.operator == "Add" and not _begins_at_zero(result)):
        return None
    operator, inputs, attributes = made
    constants = {}
    if not result.zero_name and operator != core.operator:
        name = unused(f"{last.outputs[0]} zero point", w)
        constants[name] = np.zeros((), result.dtype)
        inputs = (*inputs[:RESULT_ZERO], name, *inputs[RESULT_ZERO + 1 :])
    if relu:
        attributes = {**attributes, "relu": 1}
    node = replace(_node(core, operator, inputs, last.outputs[0], attributes), name=last.name)
    return Group(node, parts, _sources(core, w), constants)


def _node(core: Node, operator: str, inputs: tuple[str, ...], output: str, attributes: dict[str, Any]) -> Node:
    since = core.since if operator == core.operator else 10
    return Node(
        operator, "", core.name, core.opset, inputs, (output,), attributes, since, budget=core.budget,
        types=core.types, used=core.used, module=core.module,
    )  # fmt: skip


Made = tuple[str, tuple[str, ...], dict[str, Any]]  # operator, inputs, attributes
RESULT_ZERO = 7  # the place of the result's zero point among the inputs of each of these operators


def _conv(node: Node, y: Quantity, w: Wiring) -> Made | None:
    x, weight = dequantized(node.inputs[0], w), dequantized(node.inputs[1], w)
    if x is None or weight is None or x.scale.size != 1 or (weight.scale.size != 1 and weight.axis != 0):
        return None
    bias = _bias(node, x, weight, w)
    return None if bias is None else ("QLinearConv", (*x.inputs, *weight.inputs, *y.inputs[1:], *bias), node.attributes)


def _matmul(node: Node, y: Quantity, w: Wiring) -> Made | None:
    a, b = dequantized(node.inputs[0], w), dequantized(node.inputs[1], w)
    if a is None or b is None or a.scale.size != 1:
        return None
    if b.scale.size != 1 and b.axis not in (-1, 1):
        return None
    if b.scale.size != 1 and np.ndim(held(b.name, w)) != 2:
        return None
    return "QLinearMatMul", (*a.inputs, *b.inputs, *y.inputs[1:]), {}


def _gemm(node: Node, y: Quantity, w: Wiring) -> Made | None:
    a, b = dequantized(node.inputs[0], w), dequantized(node.inputs[1], w)
    turned = bool(node["transB"])
    if a is None or b is None or a.scale.size != 1 or node["transA"] or node["alpha"] != 1 or node["beta"] != 1:
        return None
    if b.scale.size != 1 and b.axis % 2 != (0 if turned else 1):
        return None
    bias, matrix = _bias(node, a, b, w), held(b.name, w)
    if bias is None or (bias and np.shape(held(bias[0], w)) != np.shape(matrix)[0 if turned else 1 :][:1]):
        return None
    return "QLinearMatMul", (*a.inputs, *b.inputs, *y.inputs[1:], *bias), {"transB": 1} if turned else {}


def _add(node: Node, y: Quantity, w: Wiring) -> Made | None:
    a, b = dequantized(node.inputs[0], w), dequantized(node.inputs[1], w)
    if a is None or b is None or a.scale.size != 1 or b.scale.size != 1:
        return None
    return "QLinearAdd", (*a.inputs, *b.inputs, *y.inputs[1:]), {}


def _same(node: Node, y: Quantity, w: Wiring) -> Made | None:
    x = dequantized(node.inputs[0], w)
    if x is None or x.scale.size != 1 or len(node.outputs) != 1 or x.dtype != y.dtype or not _equal(x, y):
        return None
    return node.operator, (x.name, *node.inputs[1:]), node.attributes


_RULES: dict[str, Callable[[Node, Quantity, Wiring], Made | None]] = {
    "Conv": _conv,
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Add": _add,
}


def _cuts_off_at_zero(node: Node, y: Quantity, w: Wiring) -> bool | None:
    """Return True for a Relu, and for a Clip that does the same to the bytes of y.

    Return False for a Clip whose bounds are beyond the range of the type of y, so that the Clip changes nothing. Return
    None for any other Clip.
    """
    if node.operator == "Relu":
        return True
    given: list[Any] = [node.attributes.get(name) for name in ("min", "max")] if node.since < 11 else [None, None]
    for place in (1, 2):
        if node.has(place):
            given[place - 1] = w.number(node.inputs[place])
            if given[place - 1] is None:
                return None
    low, high = given
    ends, zero = np.iinfo(y.dtype), 0 if y.zero is None else int(y.zero.reshape(()))
    scale = y.scale.reshape(())
    if high is not None and not np.rint(np.float32(high) / scale) + zero >= ends.max:
        return None
    if low is None or np.rint(np.float32(low) / scale) + zero <= ends.min:
        return False
    return True if low == 0 else None


def _begins_at_zero(y: Quantity) -> bool:
    """Return True if the smallest number of the type stands for 0, so that a Relu changes nothing."""
    return (0 if y.zero is None else int(y.zero.reshape(()))) == np.iinfo(y.dtype).min


def _equal(x: Quantity, y: Quantity) -> bool:
    zeros = [0 if q.zero is None else int(q.zero.reshape(())) for q in (x, y)]
    return zeros[0] == zeros[1] and bool(x.scale.reshape(()) == y.scale.reshape(()))


def _bias(node: Node, x: Quantity, weight: Quantity, w: Wiring) -> tuple[str, ...] | None:
    """Return the bias as a tuple of inputs; () if the node has no bias.

    Return None if the bias is not int32, or if its scale is not the product of the two scales.
    """
    if not node.has(2):
        return ()
    maker = w.maker(node.inputs[2], "DequantizeLinear")
    if maker is None or maker.get("block_size", 0):
        return None
    name, scale_name, zero_name = (*maker.inputs, "")[:3]
    array, scale = held(name, w), fixed(scale_name, w)
    zero = fixed(zero_name, w) if zero_name else None
    if array is None or w.types.get(name) != np.int32 or scale is None or (zero_name and (zero is None or zero.any())):
        return None
    expected = x.scale.reshape(()).astype(np.float64) * weight.scale.reshape(-1)
    if scale.size not in (1, expected.size) or not np.allclose(scale.reshape(-1), expected, rtol=1e-5, atol=0):
        return None
    return (name,)


def _sources(node: Node, w: Wiring) -> tuple[Node, ...]:
    return tuple(maker for name in node.inputs for maker in makers(name, w))
