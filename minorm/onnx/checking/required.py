"""Find free axes whose length is determined by weights: an axis multiplied by a (1575, 12) matrix has length 1575.

A file may declare an axis free although only one length is possible. So we trace each value's axes back to the axes of
the inputs, through operators that keep the axes. If an operator combines such an axis with a weight, the weight's shape
gives the axis's length. We look only at the main graph, and compute nothing. The lengths that we find are proposals to
try.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from minorm.onnx.graph import tensors
from minorm.onnx.graph.errors import LoadError
from minorm.onnx.graph.lengths import declared_of
from minorm.onnx.graph.tensors import Budget

Axis = tuple[str, int]  # an input, and one of its axes
Length = Axis | int | None  # the length of a value's axis: an input's axis with this length, a number, or unknown
SMALL = 64  # the most elements of a tensor that is read: shapes and axes
MAX_RANK = 16

SAME = frozenset((
    "Relu", "Sigmoid", "Tanh", "Erf", "Exp", "Log", "Sqrt", "Abs", "Neg", "Cast", "Identity", "Dropout", "LeakyRelu",
    "Elu", "Selu", "Celu", "Gelu", "HardSigmoid", "HardSwish", "Mish", "Softplus", "Softsign", "Clip", "Floor", "Ceil",
    "Round", "Sign", "Sin", "Cos", "Reciprocal", "Softmax", "LogSoftmax", "Not", "QuantizeLinear", "DequantizeLinear",
    "ThresholdedRelu", "LpNormalization", "MeanVarianceNormalization", "LRN", "CumSum",
))  # fmt: skip
PAIRS = frozenset((
    "Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Sum", "Mean", "Where", "PRelu", "And", "Or", "Xor", "Equal",
    "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Mod",
))  # fmt: skip
LATER = PAIRS | {"MatMul", "Gather", "Einsum"}  # their first input may be a weight
CHANNELS = frozenset(("BatchNormalization", "InstanceNormalization"))


class Required:
    """Collects the lengths that the inputs of a graph must have, because the graph's weights require these lengths.

    fixed    axis -> its length
    equal    axis -> another axis of the same length
    """

    def __init__(self, graph: Any) -> None:
        self.fixed: dict[Axis, int] = {}
        self.equal: dict[Axis, Axis] = {}
        self.arrays: dict[str, Any] = {tensor.name: tensor for tensor in graph.initializer}
        self.values: dict[str, list[Length]] = {}
        for entry in graph.input:
            declared = declared_of(entry) if entry.type.HasField("tensor_type") else None
            if entry.name not in self.arrays and declared is not None and len(declared) <= MAX_RANK:
                # An axis of length 1 stretches to others, and says nothing about their length.
                self.values[entry.name] = [1 if n == 1 else (entry.name, i) for i, n in enumerate(declared)]
        for node in graph.node:
            self._follow(node)

    def lengths(self, labels: Mapping[str, Sequence[int | str]]) -> dict[str, list[int | str]]:
        """Return `labels` with a number for each free length that the operators require to be this number.

        Free lengths that must be equal get the same name.

        labels    for each axis of each input its length: a number, or a name if the length is free
        """
        first: dict[str, Axis] = {}
        for name, lengths in labels.items():
            for i, n in enumerate(lengths):
                if isinstance(n, str):
                    self.same(first.setdefault(n, (name, i)), (name, i))
                elif n != 1:
                    self.fixed.setdefault(self._root((name, i)), n)
        names: dict[Axis, str] = {}
        return {name: [self._length((name, i), n, names) for i, n in enumerate(ns)] for name, ns in labels.items()}

    def _length(self, axis: Axis, n: int | str, names: dict[Axis, str]) -> int | str:
        root = self._root(axis)
        return n if isinstance(n, int) else self.fixed.get(root) or names.setdefault(root, n)

    def _root(self, axis: Axis) -> Axis:
        while axis in self.equal:
            axis = self.equal[axis]
        return axis

    # The requirements of operators

    def _follow(self, node: Any) -> None:
        if node.op_type == "Constant":
            for given in node.attribute:
                if given.HasField("t"):
                    self.arrays[node.output[0]] = given.t
            return
        rule = _RULES.get(node.op_type) if not node.domain or node.domain.startswith("com.microsoft") else None
        x = self.values.get(node.input[0]) if node.input else None
        if rule is None or not node.output or not node.input or (x is None and node.op_type not in LATER):
            return
        made = rule(self, node, list(x or ()))
        if made is not None and len(made) <= MAX_RANK:
            self.values[node.output[0]] = made

    def need(self, axes: Sequence[Length], place: int, length: int) -> None:
        """Record that the axis `axes[place]` of a value must have this length."""
        if -len(axes) <= place < len(axes) and isinstance(axis := axes[place], tuple) and length > 0:
            self.fixed.setdefault(self._root(axis), length)

    def same(self, a: Length, b: Length) -> Length:
        """Record that two axes have equal lengths, and return this length.

        If one of the two lengths is 1, return the other length.
        """
        if a == 1:
            return b
        if b == 1:
            return a
        if a is None or b is None:
            return None
        if isinstance(a, int) or isinstance(b, int):
            number = a if isinstance(a, int) else b
            assert isinstance(number, int)
            self.need([a, b], 0, number)
            self.need([a, b], 1, number)
            return number
        first, second = self._root(a), self._root(b)
        if first != second:
            self.equal[second] = first
            if second in self.fixed:
                self.fixed.setdefault(first, self.fixed[second])
        return a

    def shape(self, node: Any, place: int) -> list[int] | None:
        """Return the shape of input `place` of a node if the file holds the array of this input; else None."""
        tensor = self.arrays.get(node.input[place]) if place < len(node.input) else None
        return None if tensor is None else list(tensor.dims)

    def integers(self, node: Any, name: str, place: int) -> list[int] | None:
        """Return integers, such as axes or lengths, from attribute `name` of a node, or else from its input `place`.

        Return None if the node lacks the attribute and the file does not hold a small array of integers for the input.
        """
        for given in node.attribute:
            if given.name == name:
                return list(given.ints)
        tensor = self.arrays.get(node.input[place]) if place < len(node.input) else None
        if tensor is None or math.prod(tensor.dims) > SMALL:
            return None
        try:
            array = tensors.read(tensor, f"tensor {tensor.name!r}", None, Budget())
        except LoadError:
            return None
        return array.reshape(-1).tolist() if array.dtype.kind in "iu" else None

    def number(self, node: Any, name: str, default: int) -> int:
        """Return an integer attribute."""
        return next((int(given.i) for given in node.attribute if given.name == name), default)


def _unchanged(r: Required, node: Any, x: list[Length]) -> list[Length]:
    return x


def _matmul(r: Required, node: Any, x: list[Length]) -> list[Length] | None:
    if len(node.input) < 2:
        return None
    weight, other = r.shape(node, 1), r.values.get(node.input[1])
    if weight and x:
        r.need(x, -1, weight[-2] if len(weight) > 1 else weight[0])
        return [*x[:-1], weight[-1]] if len(weight) > 1 else x[:-1]
    left = r.shape(node, 0)
    if left and other and len(other) > 1:
        r.need(other, -2, left[-1])
        return [*other[:-2], left[-2], other[-1]] if len(left) == 2 else None
    if len(x) > 1 and other and len(other) > 1:
        r.same(x[-1], other[-2])
        if len(x) == len(other):
            return [*map(r.same, x[:-2], other[:-2]), x[-2], other[-1]]
    return None


def _gemm(r: Required, node: Any, x: list[Length]) -> list[Length] | None:
    weight = r.shape(node, 1)
    if weight is None or len(weight) != 2 or len(x) != 2:
        return None
    turned, other = r.number(node, "transA", 0) != 0, r.number(node, "transB", 0) != 0
    r.need(x, 0 if turned else 1, weight[other])
    return [x[turned], weight[not other]]


def _conv(r: Required, node: Any, x: list[Length]) -> list[Length] | None:
    weight = r.shape(node, 1)
    if weight is None or len(weight) != len(x) or len(x) < 3:
        return None
    back, group = node.op_type == "ConvTranspose", r.number(node, "group", 1)
    r.need(x, 1, weight[0] if back else weight[1] * group)
    return [x[0], weight[1] * group if back else weight[0], *[None] * (len(x) - 2)]


def _channels(r: Required, node: Any, x: list[Length]) -> list[Length]:
    if len(scale := r.shape(node, 1) or []) == 1:
        r.need(x, 1, scale[0])
    return x


def _last_axes(r: Required, node: Any, x: list[Length]) -> list[Length]:
    scale = r.shape(node, 1) or []
    for i, length in enumerate(reversed(scale), 1):
        if length > 1:
            r.need(x, -i, length)
    return x


def _pair(r: Required, node: Any, _: list[Length]) -> list[Length] | None:
    values: list[list[Length]] = []
    for place, name in enumerate(node.input):
        shape = r.shape(node, place)
        if shape is None and name not in r.values:
            return None
        values.append(r.values[name] if shape is None else [*shape])
    rank = max(map(len, values))
    made: list[Length] = []
    for i in range(-rank, 0):
        axes = [value[i] for value in values if len(value) >= -i]
        made.append(functools.reduce(r.same, axes))
    return made


def _transpose(r: Required, node: Any, x: list[Length]) -> list[Length] | None:
    order = r.integers(node, "perm", len(node.input)) or list(reversed(range(len(x))))
    return [x[i] for i in order] if sorted(order) == list(range(len(x))) else None


def _unsqueeze(r: Required, node: Any, x: list[Length]) -> list[Length] | None:
    axes = r.integers(node, "axes", 1)
    if axes is None or len(x) + len(axes) > MAX_RANK:
        return None
    rank = len(x) + len(axes)
    new = {axis % rank for axis in axes}
    rest = iter(x)
    return [1 if i in new else next(rest, None) for i in range(rank)]


def _squeeze(r: Required, node: Any, x: list[Length]) -> list[Length] | None:
    axes = r.integers(node, "axes", 1)
    if axes is None or not x:
        return None
    gone = {axis % len(x) for axis in axes}
    for axis in gone:
        r.need(x, axis, 1)
    return [axis for i, axis in enumerate(x) if i not in gone]


def _reshape(r: Required, node: Any, x: list[Length]) -> list[Length] | None:
    target = r.integers(node, "shape", 1)
    if not target or len(target) > MAX_RANK:
        return None
    if len(target) > 1 and len(x) == 2 and target[0] in (0, -1) and all(n > 0 for n in target[1:]):
        r.need(x, 1, math.prod(target[1:]))
    return [x[i] if n == 0 and i < len(x) else n if n > 0 else None for i, n in enumerate(target)]


def _flatten(r: Required, node: Any, x: list[Length]) -> list[Length] | None:
    if r.number(node, "axis", 1) != 1 or not x:
        return None
    rest = x[1:]
    return [x[0], rest[0] if len(rest) == 1 else None]


def _recurrent(r: Required, node: Any, x: list[Length]) -> list[Length] | None:
    if len(weight := r.shape(node, 1) or []) == 3 and len(x) == 3:
        r.need(x, 2, weight[2])
        return None if r.number(node, "layout", 0) else [x[0], weight[0], x[1], None]
    return None


def _reduce(r: Required, node: Any, x: list[Length]) -> list[Length] | None:
    axes = r.integers(node, "axes", 1)
    if axes is None or not x:
        return None
    gone = {axis % len(x) for axis in axes}
    if r.number(node, "keepdims", 1):
        return [1 if i in gone else axis for i, axis in enumerate(x)]
    return [axis for i, axis in enumerate(x) if i not in gone]


def _concat(r: Required, node: Any, x: list[Length]) -> list[Length] | None:
    place = r.number(node, "axis", 1) % max(len(x), 1)
    made = list(x)
    for name in node.input[1:]:
        other = r.values.get(name)
        if other is None or len(other) != len(x):
            return [axis if i != place else None for i, axis in enumerate(made)] if name in r.arrays else None
        made = [r.same(a, b) if i != place else None for i, (a, b) in enumerate(zip(made, other, strict=True))]
    return [axis if i != place else None for i, axis in enumerate(made)]


def _pool(r: Required, node: Any, x: list[Length]) -> list[Length]:
    return [*x[:2], *[None] * (len(x) - 2)]


def _gather(r: Required, node: Any, x: list[Length]) -> list[Length] | None:
    table, places = r.shape(node, 0), r.values.get(node.input[1]) if len(node.input) > 1 else None
    if table and places is not None and not r.number(node, "axis", 0):
        return [*places, *table[1:]]
    return None


def _einsum(r: Required, node: Any, x: list[Length]) -> list[Length] | None:
    equation = next((given.s for given in node.attribute if given.name == "equation"), b"")
    terms, arrow, result = equation.decode("ascii", "replace").replace(" ", "").partition("->")
    letters: dict[str, Length] = {}
    if not arrow or "." in terms or len(terms) > 8 * MAX_RANK or len(terms.split(",")) != len(node.input):
        return None
    for place, term in enumerate(terms.split(",")):
        shape = r.shape(node, place)
        axes = r.values.get(node.input[place]) if shape is None else [*shape]
        for letter, axis in zip(term, axes or (), strict=False):
            letters[letter] = r.same(letters[letter], axis) if letter in letters else axis
    return [letters.get(letter) for letter in result]


_RULES: Mapping[str, Callable[[Required, Any, list[Length]], list[Length] | None]] = {
    **dict.fromkeys(SAME, _unchanged),
    **dict.fromkeys(PAIRS, _pair),
    **dict.fromkeys(CHANNELS, _channels),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"), _last_axes),
    **dict.fromkeys(("MatMul", "FusedMatMul"), _matmul),
    **dict.fromkeys(("Gemm", "FusedGemm"), _gemm),
    **dict.fromkeys(("Conv", "ConvTranspose", "FusedConv"), _conv),
    **dict.fromkeys(("RNN", "GRU", "LSTM"), _recurrent),
    **dict.fromkeys(("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2"), _reduce),
    **dict.fromkeys(("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"), _pool),
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Concat": _concat,
    "Gather": _gather,
    "Einsum": _einsum,
}
