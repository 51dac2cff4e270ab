"""Which of a file's float tensors stand where an operator has its weights.

Perhaps behind a Transpose or a Reshape; or beside values of the network, one number a channel; or where a recurrence
begins. Values of the network are what depends on its inputs. A learned query meets weights before it meets those, and a
learned image is what a convolution begins with. Numbers that are all equal, or that have a formula, nobody learned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from minorm.onnx.graph.kinds import sources
from minorm.onnx.graph.layer import Written
from minorm.onnx.graph.reading import Node
from minorm.onnx.loading import tables

# The inputs where an operator has its weights.
PLACES: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("Conv", "ConvTranspose"), (1, 2)),
    **dict.fromkeys(
        ("BatchNormalization", "InstanceNormalization", "LayerNormalization", "GroupNormalization"), (1, 2)
    ),
    **dict.fromkeys(("RMSNormalization", "PRelu"), (1,)),
    **dict.fromkeys(("RNN", "GRU"), (1, 2, 3)),
    "LSTM": (1, 2, 3, 7),
    "Gemm": (0, 1, 2),
    "MatMul": (0, 1),
    "Gather": (0,),
}
STATES: Mapping[str, tuple[int, ...]] = {"RNN": (5,), "GRU": (5,), "LSTM": (5, 6)}  # what they begin with
NORMS = frozenset(name for name in PLACES if name.endswith("Normalization"))
MOVES = frozenset(
    ("Transpose", "Reshape", "Expand", "Tile", "Unsqueeze", "Squeeze", "Flatten", "Identity", "Cast", "CastLike")
)
BESIDE = frozenset(("Add", "Mul", "Concat"))  # where a vector, one number a channel, is a bias, a scale or a token
LENGTHS = frozenset(("Shape", "Size"))


def placed(nodes: Sequence[Node], inputs: Iterable[str], arrays: Mapping[str, Any]) -> set[str]:
    """The arrays that stand where an operator has weights, or beside the network's values, one number a channel."""
    live = set(inputs)
    for node in nodes:
        if node.operator not in LENGTHS and any(name in live for name in node.inputs):
            live.update(node.outputs)
    weights, beside, tokens = set[str](), set[str](), set[str]()
    images, kernels = set[str](), set[str]()  # of convolutions: what they begin with, what a style is multiplied into
    for node in reversed(nodes):
        if node.operator in ("Conv", "ConvTranspose"):
            images.update(node.inputs[:1])
            kernels.update(node.inputs[1:2])
        elif node.operator in ("Mul", "Div") and node.outputs[0] in kernels:
            kernels.update(node.inputs)
        if node.operator in MOVES:
            for found in (weights, beside, tokens, images, kernels):
                found.update(node.inputs[:1] if node.outputs[0] in found else ())
        elif node.body is not None:
            scanned = sources(node)[node.body.carried :] if node.enters and not node.body.heads[0] else ()
            for found in (weights, beside, tokens):
                found.update(source for name, source in scanned if name in found and source is not None)
        elif not any(name in live for name in node.inputs):
            if node.outputs[0] in weights:
                weights.update(_learned(node, arrays))
                beside.update(node.inputs if node.operator in BESIDE else ())
        elif node.operator in BESIDE:
            beside.update(node.inputs)
            tokens.update(node.inputs if node.operator == "Concat" else ())
        elif node.operator in PLACES and not (node.operator in NORMS and _is_neutral(node, arrays)):
            weights.update(node.inputs[place] for place in PLACES[node.operator] if place < len(node.inputs))
    begins = states(nodes)
    return {
        name
        for name, array in arrays.items()
        if (name in weights and array.size > 0 and array.ndim > 0)
        or (name in beside and (_is_channel(array.shape) or tables.repeats(array)))
        or ((name in begins or (name in images | kernels and array.ndim > 3)) and _is_learned(array))
        if not (name in tokens and (array == array.flat[:1]).all())  # padding
    }


def _is_learned(array: Any) -> bool:
    """Whether training may have made these numbers: neither all equal nor a formula's."""
    return not ((array == array.flat[:1]).all() or tables.is_table(array))


def _learned(node: Node, arrays: Mapping[str, Any]) -> Iterable[str]:
    """What a node makes a weight of that no input of the network takes part in: a learned query, on its way to keys."""
    places = (0, *PLACES[node.operator]) if node.operator in NORMS else PLACES.get(node.operator, ())
    if node.operator in BESIDE:
        yield from (name for name in node.inputs if name not in arrays)
    for name in (node.inputs[place] for place in places if place < len(node.inputs)):
        if name not in arrays or _is_learned(arrays[name]):
            yield name


def states(nodes: Sequence[Node]) -> set[str]:
    """The values that a recurrence begins with, an RNN or a loop, also before they are given another shape."""
    found = set[str]()
    for node in reversed(nodes):
        if node.operator in MOVES:
            found.update(node.inputs[:1] if node.outputs[0] in found else ())
        elif node.body is not None and node.enters:
            found.update(node.inputs[node.body.before :][: node.body.carried])
        for place in STATES.get(node.operator, ()):
            found.update(node.inputs[place : place + 1])
    return found


def _is_neutral(node: Node, arrays: Mapping[str, Any]) -> bool:
    """Whether a normalization multiplies with ones and adds zeros: it has no weights, but the operator wants some.

    So exporters write a norm without weights, and the first part of a GroupNorm: Reshape, InstanceNormalization.
    """
    if isinstance(node.described, Written):  # weights that a file writes in nodes of their own are some
        return False
    scale, bias = (arrays.get(name) for name in (*node.inputs[1:3], "")[:2])
    return scale is not None and bool((scale == 1).all()) and (bias is None or not bias.any())


def _is_channel(shape: tuple[int, ...]) -> bool:
    return sum(length != 1 for length in shape) == 1 and 0 not in shape
