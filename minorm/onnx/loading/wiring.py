"""Answer questions about a flat list of nodes: which node makes a value, which nodes read it, which numbers are fixed.

This module is for code that looks at several nodes at once. It makes only views of the file's tensors, and copies of
small tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from minorm.devices import dtypes
from minorm.onnx.graph.decimals import shortest
from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.tensors import DTYPES, MAX_RANK

SMALL = 1 << 16  # the most elements of a tensor that we look into
STEPS = 8  # the most nodes between a value and its tensor
REPEATED = ("Sub", "ReduceMean", "Reshape", "Cast")  # operators that exporters write twice
MOVES = ("Unsqueeze", "Squeeze", "Reshape", "Identity", "Cast", "CastLike")


class Held(NamedTuple):
    """Gives the name of a tensor of the file, and the shape in which a node reads the tensor."""

    name: str
    shape: tuple[int, ...]


class Wiring:
    """Knows which nodes make and read each value of `nodes`, and which values are fixed numbers.

    ends      values that are also read outside of `nodes`: outputs of the graph, and conditions
    arrays    initializers by name
    learned   a function that returns True for the name of an initializer that is certainly a weight, not a fixed number
    ranks     the number of axes by name, for the values whose shapes the file declares
    types     the type by name, for the values whose types are certain
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        ends: Iterable[str],
        arrays: Mapping[str, Any],
        learned: Callable[[str], bool],
        ranks: Mapping[str, int],
        types: Mapping[str, Any],
    ) -> None:
        self.arrays, self.learned, self.ranks, self.types = arrays, learned, ranks, types
        self._views: dict[tuple[str, int], Any] = {}  # a cache, so that a value with many readers is computed once
        self.ends = {*ends, *(condition for node in nodes for condition, _ in node.conditions)}
        self.makers = {name: node for node in nodes for name in node.outputs if name}
        self.readers: dict[str, list[Node]] = {}
        for node in nodes:
            for name in filter(None, node.inputs):
                self.readers.setdefault(name, []).append(node)

    # Nodes

    def maker(self, name: str, *operators: str) -> Node | None:
        """Return the node that computes a value if this node has one of `operators`; else None."""
        node = self.makers.get(name)
        return node if node is not None and _is_one_of(node, operators) else None

    def reader(self, name: str, *operators: str) -> Node | None:
        """Return the only reader of a value if this reader has one of `operators`; else None.

        A CastLike does not count as a reader if it uses only the type of the value and if only the reader needs the
        result.
        """
        readers = self.readers.get(name, [])
        if len(readers) > 1:
            among = set(map(id, readers))
            readers = [node for node in readers if not self.is_like(node, name, among)]
        if name in self.ends or len(readers) != 1:
            return None
        return readers[0] if _is_one_of(readers[0], operators) else None

    def is_like(self, node: Node, name: str, among: Collection[int]) -> bool:
        """Return True if a node casts another value to the type of `name` for a single reader, which is in `among`."""
        if node.operator != "CastLike" or node.inputs[0] == name or node.outputs[0] in self.ends:
            return False
        readers = self.readers.get(node.outputs[0], [])
        return len(readers) == 1 and id(readers[0]) in among

    def is_private(self, nodes: Collection[Node], result: str) -> bool:
        """Return True if `nodes` have the same conditions, and no other node reads their values except `result`."""
        inside = {id(node) for node in nodes}
        made = [name for node in nodes for name in node.outputs if name and name != result]
        return len({node.conditions for node in nodes}) == 1 and all(
            name not in self.ends and all(id(reader) in inside for reader in self.readers.get(name, []))
            for name in made
        )

    def same(self, a: str, b: str, depth: int = 3) -> bool:
        """Return True if two values are the same value, or if the graph computes them in the same way."""
        if a == b:
            return True
        first, second = self.makers.get(a), self.makers.get(b)
        if first is None or second is None or not depth or not _are_alike(first, second):
            return self._equal_numbers(a, b)
        return all(self.same(*pair, depth - 1) for pair in zip(first.inputs, second.inputs, strict=True))

    def _equal_numbers(self, a: str, b: str) -> bool:
        x, y = self.array(a), self.array(b)
        return x is not None and y is not None and x.dtype == y.dtype and np.array_equal(x, y)

    # Numbers

    def array(self, name: str) -> Any:
        """Return the array of a value if the file fixes the value and the array is small; else None."""
        base = self._base(name)
        if base in self.arrays and dtypes.is_float(self.arrays[base].dtype) and self.learned(base):
            return None
        array = self._view(name, STEPS)
        return array if array is not None and array.size <= SMALL else None

    def _base(self, name: str) -> str:
        """Return the value from which this value comes only by moves of axes and by Casts that keep the type."""
        for _ in range(STEPS):
            node = None if name in self.arrays else self.maker(name, *MOVES)
            if node is None:
                break
            if node.operator == "Identity" and "." in name:  # a separate tensor, which a tool found equal to another
                break
            if node.operator.startswith("Cast") and not self.keeps_type(node):
                break
            name = node.inputs[0]
        return name

    def keeps_type(self, node: Node) -> bool:
        """Return whether a Cast or CastLike leaves the type of its input unchanged."""
        like = DTYPES.get(node.attributes.get("to")) if node.operator == "Cast" else self.types.get(node.inputs[1])
        return like is not None and like == self.types.get(node.inputs[0])

    def _view(self, name: str, steps: int) -> Any:
        if name in self.arrays:
            return self.arrays[name]
        if (name, steps) not in self._views:
            self._views[name, steps] = self._made(name, steps)
        return self._views[name, steps]

    def _made(self, name: str, steps: int) -> Any:
        node = self.makers.get(name)
        if node is None or node.domain or not steps:
            return None
        if node.operator == "Constant":
            return _constant(node)
        count = 1 if node.operator in ("Cast", "CastLike") else len(node.inputs)
        given = [self._view(n, steps - 1) for n in node.inputs[:count] if n] if node.operator in _FOLDS else []
        if not given or any(x is None for x in given):
            return None
        try:
            return _FOLDS[node.operator](node, *given)
        except (ValueError, TypeError, IndexError, KeyError, OverflowError):  # damaged, or too large: load says so
            return None

    def number(self, name: str) -> float | None:
        """Return a float that the file fixes, in its shortest decimal form: 1e-05, not 9.99999974737875e-06."""
        array = self.array(name)
        if array is None or array.size != 1 or not dtypes.is_float(array.dtype):
            return None
        value = float(array.reshape(-1)[0])
        return value if array.dtype == dtypes.float64 else shortest(value)

    def integers(self, name: str) -> list[int] | None:
        """Return the integers of a vector that the file fixes."""
        array = self.array(name)
        if array is None or array.ndim > 1 or array.dtype.kind != "i" or array.size > 2 * MAX_RANK:
            return None
        return [int(n) for n in array.reshape(-1)]

    def axes(self, node: Node) -> list[int] | None:
        """Return the axes of a reduction, an Unsqueeze or a Squeeze; None if they are missing or not fixed."""
        given = node.attributes.get("axes")
        if given is None and node.has(1):
            return self.integers(node.inputs[1])
        return None if given is None else [int(n) for n in given]

    def held(self, name: str) -> Held | None:
        """Return the float tensor of the file that a value comes from; axes of length 1 may be added or removed."""
        view = self._view(name, STEPS)
        if view is None or not dtypes.is_float(view.dtype):
            return None
        base = self._base(name)
        return Held(base, view.shape) if base in self.arrays or self.maker(base, "Constant", "Identity") else None


def _is_one_of(node: Node, operators: Collection[str]) -> bool:
    """Return True if a node has one of these operators and does not have the old `broadcast` attribute."""
    return node.operator in operators and not node.domain and "broadcast" not in node.attributes


def _are_alike(a: Node, b: Node) -> bool:
    """Return whether two nodes compute the same function of their inputs."""
    return (
        (a.operator, a.domain, a.since, len(a.inputs), len(a.outputs), a.conditions)
        == (b.operator, b.domain, b.since, len(b.inputs), len(b.outputs), b.conditions)
        and a.operator in REPEATED
        and a.attributes.keys() == b.attributes.keys()
        and all(np.array_equal(value, b.attributes[name]) for name, value in a.attributes.items())
    )


def _constant(node: Node) -> Any:
    """Return the array of a Constant node; None for strings and the like."""
    [(name, value)] = node.attributes.items() if len(node.attributes) == 1 else [("", None)]
    dtype: Any = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64}.get(name, np.int64)
    if name in ("value_float", "value_floats", "value_int", "value_ints"):
        return np.array(value, dtype)
    return value if isinstance(value, np.ndarray) else None


# How constants move. Every result is a view, or small.


def _lengths(shape: Any) -> tuple[int, ...]:
    lengths = tuple(int(n) for n in np.reshape(shape, -1))
    if len(lengths) > MAX_RANK or math.prod(max(n, 1) for n in lengths) > SMALL:
        raise ValueError("the constant is large")
    return lengths


def _moved_axes(node: Node, axes: Sequence[Any]) -> tuple[int, ...]:
    given = node.attributes["axes"] if "axes" in node.attributes else np.reshape(axes[0], -1)
    return tuple(int(n) for n in given)


def _reshape(node: Node, x: Any, *shape: Any) -> Any:
    target = [int(n) for n in (node.attributes["shape"] if not shape else np.reshape(shape[0], -1))]
    if len(target) > MAX_RANK or (node.attributes.get("allowzero") and 0 in target):
        raise ValueError("the shape is unusual")
    return x.reshape([x.shape[i] if n == 0 else n for i, n in enumerate(target)])


def _expand(node: Node, x: Any, shape: Any) -> Any:
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, _lengths(shape)))


def _constant_of_shape(node: Node, shape: Any) -> Any:
    value = np.reshape(node.attributes.get("value", np.zeros(1, np.float32)), ())
    return np.broadcast_to(value, _lengths(shape))


def _cast(node: Node, x: Any) -> Any:
    """Cast one number. Float arrays stay unchanged: callers know their type, or only look for 0 and 1."""
    target = DTYPES[node.attributes["to"]] if node.operator == "Cast" else x.dtype
    if not dtypes.is_float(target) or not (x.size == 1 or dtypes.is_float(x.dtype)):
        raise TypeError("other numbers than floats")
    return x.astype(target) if x.size == 1 else x


def _few(*arrays: Any) -> None:
    if any(x.size > 2 * MAX_RANK or x.dtype.kind != "i" for x in arrays):
        raise ValueError("no shape or axis")


def _concat(node: Node, *parts: Any) -> Any:
    _few(*parts)
    if sum(x.size for x in parts) > 2 * MAX_RANK:
        raise ValueError("no shape or axes")
    return np.concatenate(parts)


def _sub(node: Node, a: Any, b: Any) -> Any:
    _few(a, b)
    return np.subtract(a, b)


def _range(node: Node, *bounds: Any) -> Any:
    _few(*bounds)
    numbers = range(*(int(n.reshape(())) for n in bounds))
    if len(numbers) > MAX_RANK:
        raise ValueError("no axes")
    return np.array(numbers, np.int64)


_FOLDS: Mapping[str, Any] = {
    "Identity": lambda _, x: x,
    "Unsqueeze": lambda node, x, *axes: np.expand_dims(x, _moved_axes(node, axes)),
    "Squeeze": lambda node, x, *axes: np.squeeze(x, _moved_axes(node, axes)),
    "Reshape": _reshape,
    "Expand": _expand,
    "ConstantOfShape": _constant_of_shape,
    "Cast": _cast,
    "CastLike": _cast,
    "Concat": _concat,
    "Sub": _sub,
    "Range": _range,
}
