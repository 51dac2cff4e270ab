"""Find out how nodes use each float tensor of a file: as an operator's weight, as an operand, or in another way.

An operand is combined with values of the network, which are the values that depend on the network's inputs. There may
be a Transpose or a Slice between a tensor and the node that uses it. A tensor may also be a part from which nodes
compute a weight. For example, nodes multiply a learned query by weights before they combine it with values of the
network, or compute a weight-normalized kernel from a direction and a length.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from minorm.onnx.graph.kinds import sources
from minorm.onnx.graph.node_layers import Written
from minorm.onnx.graph.reading import Node

# Operator -> the inputs that are its weights.
PLACES: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("Conv", "ConvTranspose", "FusedConv", "NhwcFusedConv"), (1, 2)),
    **dict.fromkeys(
        ("BatchNormalization", "InstanceNormalization", "LayerNormalization", "GroupNormalization"), (1, 2)
    ),
    **dict.fromkeys(("RMSNormalization", "SimplifiedLayerNormalization", "PRelu", "BiasGelu", "FastGelu"), (1,)),
    **dict.fromkeys(("RNN", "GRU"), (1, 2, 3)),
    "LSTM": (1, 2, 3, 7),
    **dict.fromkeys(("Gemm", "FusedGemm"), (0, 1, 2)),
    **dict.fromkeys(("MatMul", "FusedMatMul"), (0, 1)),
    "Einsum": (0, 1, 2, 3),
    "Gather": (0,),
    "DeformConv": (1, 3),
    "SkipLayerNormalization": (2, 3, 4),
    "SkipSimplifiedLayerNormalization": (2, 3),
    "EmbedLayerNormalization": (2, 3, 4, 5, 6),
}
STATES: Mapping[str, tuple[int, ...]] = {"RNN": (5,), "GRU": (5,), "LSTM": (5, 6)}  # the inputs that are initial states
NORMS = frozenset(name for name in PLACES if name.endswith("Normalization"))
MOVES = frozenset((
    "Transpose", "Reshape", "Expand", "Tile", "Unsqueeze", "Squeeze", "Flatten", "Identity", "Cast", "CastLike",
    "Slice", "Split", "Gather", "GatherElements", "GatherND", "Pad", "DepthToSpace", "SpaceToDepth",
))  # fmt: skip
REPEATING = frozenset(("Transpose", "Reshape", "Expand", "Tile", "Unsqueeze", "Squeeze", "Flatten", "Identity", "Cast"))
ARITHMETIC = frozenset(("Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Mean", "Where"))
SHIFTS = frozenset(("Sub", "Div"))
CONVOLUTIONS = ("Conv", "ConvTranspose", "FusedConv")
LENGTHS = frozenset(("Shape", "Size"))
UNSIGNED = frozenset(("Relu", "Abs", "Exp", "Sigmoid", "Softplus", "Softmax", "Sqrt", "ReduceL2", "ReduceSumSquare"))


class Kind(enum.Enum):
    """Lists the uses that a tensor can have in the nodes that read it; the strongest comes first."""

    WEIGHT = "weight of"
    PART = "a part of the weight of"
    AFFINE = "a scale or a bias behind a layer, in"
    BESIDE = "beside values of the network in"
    TOKEN = "joined to values of the network by"
    STATE = "the initial state of"
    IMAGE = "the input of"
    NEUTRAL = "ones and zeros of a norm without weights in"
    SCALING = "shifts or scales the network's input in"
    EXPONENT = "exponent in"
    FREQUENCY = "multiplied for a sine and a cosine in"


@dataclass(frozen=True)
class Place:
    """Says how a node uses a tensor, and which node this is."""

    kind: Kind
    operator: str
    node: str

    def __str__(self) -> str:
        return f"{self.kind.value} {self.operator} {self.node!r}"


_ORDER = {kind: i for i, kind in enumerate(Kind)}


def places(nodes: Sequence[Node], inputs: Iterable[str], arrays: Mapping[str, Any]) -> dict[str, Place]:
    """Map the name of each used array to its Place; `inputs` are the inputs of the graph."""
    return _Walk(nodes, inputs, arrays).found()


class _Walk:
    """Walks from the last node to the first, and passes the Place of a result on to the inputs of its node."""

    def __init__(self, nodes: Sequence[Node], inputs: Iterable[str], arrays: Mapping[str, Any]) -> None:
        self.nodes, self.arrays = nodes, arrays
        self.learned = _Learned(arrays)
        self.live, self.raw = set(inputs), set(inputs)  # raw: the network's inputs, before a weight is applied
        self.behind: dict[str, Node] = {}  # result of an operator with weights, perhaps moved -> its node
        self.places: dict[str, Place] = {}
        self.makers: dict[str, Node] = {}
        readers: dict[str, set[str]] = {}
        for node in nodes:
            self.makers.update((name, node) for name in node.outputs)
            for name in node.inputs:
                readers.setdefault(name, set()).add(node.operator)
            if node.operator not in LENGTHS and any(name in self.live for name in node.inputs):
                self.live.update(filter(None, node.outputs))
                self._follow(node)
        # The arguments of a sine and a cosine, perhaps before a product with 2 pi.
        self.waves = {name for name, found in readers.items() if {"Sin", "Cos"} <= found}
        for node in reversed(nodes):
            if node.outputs[0] in self.waves and self._only_scales(node):
                self.waves.update(name for name in node.inputs if name in self.live)
        self.images, self.kernels = set[str](), set[str]()

    def _follow(self, node: Node) -> None:
        first = node.inputs[0]
        if node.operator in ("MatMul", "Einsum", "FusedMatMul", *CONVOLUTIONS, *NORMS):
            self.behind[node.outputs[0]] = node
        elif node.operator in REPEATING and first in self.behind:
            self.behind[node.outputs[0]] = self.behind[first]
        scales = node.operator in ("Add", "Sub", "Mul", "Div") and len(set(node.inputs) & self.live) == 1
        if scales and node.operator in ("Add", "Mul"):
            self.behind.update((node.outputs[0], self.behind[name]) for name in node.inputs if name in self.behind)
        if (node.operator in REPEATING or scales) and any(name in self.raw for name in node.inputs):
            self.raw.update(filter(None, node.outputs))

    def _only_scales(self, node: Node) -> bool:
        numbers = [self.arrays[name].size for name in node.inputs if name in self.arrays]
        return node.operator in REPEATING or (node.operator == "Mul" and numbers == [1])

    def found(self) -> dict[str, Place]:
        arrays = self.arrays
        for node in reversed(self.nodes):
            self._images(node)
            if node.body is not None:
                scanned = sources(node)[node.body.carried :] if node.enters and not node.body.heads[0] else ()
                for name, source in scanned:
                    if source is not None and name in self.places:
                        self._put(source, self.places[name])
            elif not any(name in self.live for name in node.inputs):
                self._pass_up(node)
            else:
                self._enter(node)
        begins = states(self.nodes)
        for name, array in arrays.items():
            shared = array.ndim > 3 and (name in self.images or name in self.kernels)
            if name in begins or shared:
                kind = Kind.STATE if name in begins else Kind.IMAGE
                self._put(name, Place(kind, "a recurrence" if name in begins else "a convolution", name))
        return {name: self.places[name] for name in arrays if name in self.places}

    def _images(self, node: Node) -> None:
        """Collect the tensors that a convolution reads as its image or as its kernel.

        A kernel may also be a product of two tensors, such as a weight and a style.
        """
        if node.operator in CONVOLUTIONS:
            self.images.update(node.inputs[:1])
            self.kernels.update(node.inputs[1:2])
        elif node.operator in ("Mul", "Div") and node.outputs[0] in self.kernels:
            self.kernels.update(node.inputs)
        elif node.operator in MOVES:
            for found in (self.images, self.kernels):
                found.update(node.inputs[:1] if node.outputs[0] in found else ())

    def _put(self, name: str, place: Place) -> None:
        old = self.places.get(name)
        if name and (old is None or _ORDER[place.kind] < _ORDER[old.kind]):
            self.places[name] = place

    def _pass_up(self, node: Node) -> None:
        """Pass the Place of a node's result on to the inputs of the node.

        If the node does more than move the elements of an input, an input of a weight becomes a part of this weight.
        """
        place = min(
            (self.places[name] for name in node.outputs if name in self.places),
            key=lambda place: _ORDER[place.kind],
            default=None,
        )
        if place is None:
            return
        if node.operator in MOVES:
            self._put(node.inputs[0], place)
        elif node.operator == "Concat":
            for name in node.inputs:
                self._put(name, place)
        elif not node.operator.startswith("Reduce"):  # a sum is a new tensor, so its place says nothing about its input
            weighs = place.kind in (Kind.WEIGHT, Kind.PART)
            part = replace(place, kind=Kind.PART) if weighs else place
            takes: Sequence[int] = PLACES.get(node.operator, range(len(node.inputs)))
            takes = (0, *takes) if node.operator in NORMS else takes
            for i in takes:
                if i < len(node.inputs) and not (node.operator == "Pow" and i == 1):
                    self._put(node.inputs[i], part)

    def _enter(self, node: Node) -> None:
        """Record the Places of the tensors that a node reads together with values of the network."""
        label = node.name or next(filter(None, node.outputs), "")
        operator = node.operator
        if operator in MOVES and (operator != "Gather" or node.inputs[0] in self.live):
            self._pass_up(node)
        elif operator in PLACES:
            neutral = operator in NORMS and self.learned.is_neutral(node)
            kind = Kind.NEUTRAL if neutral else Kind.WEIGHT
            if node.outputs[0] in self.waves:
                kind = Kind.FREQUENCY
            for i in PLACES[operator]:
                if i < len(node.inputs):
                    self._put(node.inputs[i], Place(kind, operator, label))
        elif operator == "Pow":
            if node.inputs[0] in self.live:
                self._put(node.inputs[1], Place(Kind.EXPONENT, operator, label))
        elif operator == "Concat" or operator in ARITHMETIC:
            for name in node.inputs:
                if name not in self.live:
                    self._put(name, Place(self._beside(node), operator, label))

    def _beside(self, node: Node) -> Kind:
        if node.operator == "Concat":
            return Kind.TOKEN
        others = [name for name in node.inputs if name in self.live]
        if node.operator == "Mul" and node.outputs[0] in self.waves:
            return Kind.FREQUENCY
        if node.operator in SHIFTS and all(name in self.raw for name in others):
            return Kind.SCALING
        if node.operator in ("Add", "Mul") and any(name in self.behind for name in others):
            return Kind.AFFINE
        return Kind.BESIDE


class _Learned:
    """Finds normalizations that multiply by ones and add zeros; each array is examined once for all its readers."""

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        self.arrays = arrays
        self.neutral: dict[tuple[str, float], bool] = {}  # (array, number) -> True if all numbers are this

    def is_neutral(self, node: Node) -> bool:
        """Return True for a normalization without weights, whose operator therefore multiplies by 1 and adds 0.

        In this way, exporters write a norm without weights, and also the first part of a GroupNorm (Reshape,
        InstanceNormalization). The answer is False for a BatchNormalization that trains, because it may belong to a
        fresh model.
        """
        trains = node.operator == "BatchNormalization" and any(node.outputs[1:])
        if trains or isinstance(node.described, Written):  # weights that a file writes in separate nodes count
            return False
        scale, bias = (*node.inputs[1:3], "")[:2]
        return scale in self.arrays and self._is_all(scale, 1) and (bias not in self.arrays or self._is_all(bias, 0))

    def _is_all(self, name: str, number: float) -> bool:
        if (name, number) not in self.neutral:
            self.neutral[name, number] = bool((self.arrays[name] == number).all())
        return self.neutral[name, number]


def states(nodes: Sequence[Node]) -> set[str]:
    """Return the initial values of RNNs and loops.

    The result also has the values from which a repeat or a cast makes such initial values.
    """
    found = set[str]()
    for node in reversed(nodes):
        if node.operator in REPEATING or node.operator == "CastLike":
            found.update(node.inputs[:1] if node.outputs[0] in found else ())
        elif node.body is not None and node.enters:
            found.update(node.inputs[node.body.before :][: node.body.carried])
        for place in STATES.get(node.operator, ()):
            found.update(node.inputs[place : place + 1])
    return found


def is_channel(shape: tuple[int, ...]) -> bool:
    """Return whether just one axis is longer than 1."""
    return sum(length != 1 for length in shape) == 1 and 0 not in shape


def is_positive(name: str, makers: Mapping[str, Node], arrays: Mapping[str, Any], depth: int = 4) -> bool:
    """Return True if the nodes that compute a value show that it is never negative."""
    if name in arrays:
        return bool((arrays[name] >= 0).all())
    node = makers.get(name)
    if node is None or not depth:
        return False
    if node.operator == "Clip":
        return (
            is_positive(node.inputs[1], makers, arrays, depth - 1)
            if node.has(1)
            else node.attributes.get("min", -1) >= 0
        )
    if node.operator in ("Cast", "Identity", "Reshape", "Pow", "ReduceMean", "ReduceSum", "GlobalAveragePool"):
        return is_positive(node.inputs[0], makers, arrays, depth - 1)
    if node.operator in ("Max", "Add", "Mul"):  # we look at only two of their inputs, to bound the time
        found = (is_positive(other, makers, arrays, depth - 1) for other in dict.fromkeys(node.inputs[:2]))
        return any(found) if node.operator == "Max" else all(found) or (node.operator == "Mul" and _is_square(node))
    return node.operator in UNSIGNED


def _is_square(node: Node) -> bool:
    return len(set(node.inputs)) == 1
