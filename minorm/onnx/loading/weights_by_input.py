"""Which of a file's float tensors stand where an operator has its weights.

Perhaps behind a Transpose or a Reshape; or beside values of the network, one number a channel; or where a recurrence
begins. Values of the network are what depends on its inputs. A learned query meets weights before it meets those, and a
learned image is what a convolution begins with. Numbers that are all equal, or that have a formula, nobody learned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from minorm.onnx.graph.kinds import sources
from minorm.onnx.graph.node_layers import Written
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
    live, learned = set(inputs), _Learned(arrays)
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
                weights.update(learned.through(node))
                beside.update(node.inputs if node.operator in BESIDE else ())
        elif node.operator in BESIDE:
            beside.update(node.inputs)
            tokens.update(node.inputs if node.operator == "Concat" else ())
        elif node.operator in PLACES and not (node.operator in NORMS and learned.is_neutral(node)):
            weights.update(node.inputs[place] for place in PLACES[node.operator] if place < len(node.inputs))
    begins, shared = states(nodes), images | kernels
    return {
        name
        for name, array in arrays.items()
        if (name in weights and array.size > 0 and array.ndim > 0)
        or (name in beside and (_is_channel(array.shape) or tables.repeats(array)))
        or ((name in begins or (name in shared and array.ndim > 3)) and learned[name])
        if not (name in tokens and (array == array.flat[:1]).all())  # padding
    }


class _Learned(dict[str, bool]):
    """name -> whether training may have made these numbers: neither all equal nor a formula's.

    Each array is looked at once, however many nodes read it.
    """

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        super().__init__()
        self.arrays = arrays
        self.neutral: dict[tuple[str, float], bool] = {}  # whether all of an array is this number

    def __missing__(self, name: str) -> bool:
        array = self.arrays[name]
        self[name] = not ((array == array.flat[:1]).all() or tables.is_table(array))
        return self[name]

    def through(self, node: Node) -> Iterable[str]:
        """Inputs that a node makes a weight from without an input of the network: a learned query that becomes keys."""
        places = (0, *PLACES[node.operator]) if node.operator in NORMS else PLACES.get(node.operator, ())
        if node.operator in BESIDE:
            yield from (name for name in node.inputs if name not in self.arrays)
        for name in (node.inputs[place] for place in places if place < len(node.inputs)):
            if name not in self.arrays or self[name]:
                yield name

    def is_neutral(self, node: Node) -> bool:
        """Whether a normalization multiplies with ones and adds zeros: it has no weights, but the operator wants some.

        So exporters write a norm without weights, and the first part of a GroupNorm: Reshape, InstanceNormalization.
        """
        if isinstance(node.described, Written):  # weights that a file writes in nodes of their own are some
            return False
        scale, bias = (*node.inputs[1:3], "")[:2]
        return scale in self.arrays and self._is_all(scale, 1) and (bias not in self.arrays or self._is_all(bias, 0))

    def _is_all(self, name: str, number: float) -> bool:
        if (name, number) not in self.neutral:
            self.neutral[name, number] = bool((self.arrays[name] == number).all())
        return self.neutral[name, number]


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


def _is_channel(shape: tuple[int, ...]) -> bool:
    return sum(length != 1 for length in shape) == 1 and 0 not in shape
