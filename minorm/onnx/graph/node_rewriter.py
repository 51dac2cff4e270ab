"""Give a conversion rule the node that it converts to another opset, and methods that change the node.

    @converts("Clip", 6, 11)                                       # from version 6 to 11: attributes become inputs
    def clip_11(d: NodeRewriter) -> None:
        for place, name in ((1, "min"), (2, "max")):
            if d.has(name):
                d.feed(place, d.constant(d.take(name), d.elem(d.input(0)), name))

A rule changes `d.node` in place. A rule can also add nodes before `d.node` (`emit`) or after `d.node` (`divert`, then
`after`), or replace `d.node` by other nodes (`replace`). The added nodes always have the opset LANGUAGE (18).
Afterwards, these nodes are converted to the target like all other nodes. A rule that cannot convert its node raises
RuleNotApplicable("why"). One error names all these nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.support.safe_names import printable

LANGUAGE = 18  # the opset of the nodes that rules emit
FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)
CONSTANT_1 = FLOATS[:3]  # the types that Constant takes before version 9
HALVES = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
TRUTHS = ("Greater", "Less", "Equal", "GreaterOrEqual", "LessOrEqual", "Not", "And", "Or", "IsNaN")
LARGEST = 1 << 16  # the most elements of a constant that a rule may read

Shape = tuple[int | str | None, ...]


class Kind(NamedTuple):
    """The known element type (0: unknown) and shape (None: unknown rank) of a value."""

    elem: int = 0
    shape: Shape | None = None


Kinds = Mapping[str, Mapping[str, Kind]]  # kinds of the values of each graph, by the graph's path


class Values:
    """The values that the nodes of one graph can read, with their known types, shapes and fixed contents."""

    def __init__(self, kinds: Callable[[], Mapping[str, Kind]], taken: set[str], around: Values | None = None) -> None:
        self.kinds, self.taken, self.around = kinds, taken, around
        self.tensors: dict[str, Any] = {}  # TensorProtos
        self.made: dict[str, Kind] = {}  # kinds of inputs and of emitted nodes' results
        self.initializers: Any = None  # the graph's list of initializers; None for a function
        self.folded: Callable[[], Mapping[str, Any]] | None = None  # arrays that the graph computes from constants
        self.read: set[str] = set()  # names that a node or an output reads
        self.absorbed: set[str] = set() if around is None else around.absorbed  # fixed values that became attributes

    def chain(self) -> Iterator[Values]:
        """Yield this object, then the Values of the surrounding graphs."""
        values: Values | None = self
        while values is not None:
            yield values
            values = values.around

    def kind(self, name: str) -> Kind:
        """Return the known type and shape of a value; shape inference runs only if the graph does not give the type."""
        for values in self.chain():
            if name in values.made:
                return values.made[name]
            if name in values.tensors:
                tensor = values.tensors[name]
                return Kind(tensor.data_type, tuple(tensor.dims))
        return next((v.kinds()[name] for v in self.chain() if name in v.kinds()), Kind())

    def array(self, name: str) -> Any:
        """Return the contents of a value if the file fixes these contents; else None."""
        tensor = next((v.tensors[name] for v in self.chain() if name in v.tensors), None)
        if tensor is None:
            return next((v.folded()[name] for v in self.chain() if v.folded and name in v.folded()), None)
        if tensor.data_location == TensorProto.EXTERNAL or np.prod(tensor.dims) > LARGEST:
            return None
        return numpy_helper.to_array(tensor)

    def fresh(self, hint: str) -> str:
        """Return a name that the model does not use yet."""
        return fresh(hint, self.taken)


def fresh(hint: str, taken: set[str]) -> str:
    """Return a name like `hint` that is not in `taken`, and add this name to `taken`."""
    name, number = hint, 1
    while name in taken:
        number += 1
        name = f"{hint}_{number}"
    taken.add(name)
    return name


@dataclass
class NodeRewriter:
    """A node and the graph around it. `since` is the node's present version, and `opset` is the target."""

    node: Any  # a NodeProto; None once others replace it
    since: int
    opset: int
    values: Values
    translate: Callable[[Any, Values], list[Any]]  # converts a node at opset LANGUAGE to nodes at the target
    schema: Any = None  # the schema of the node's version

    def __post_init__(self) -> None:
        self.before: list[Any] = []
        self.behind: list[Any] = []
        self.label = self.node.name or next(filter(None, self.node.output), self.node.op_type)
        self.named = bool(self.node.name)
        self.notes: dict[str, Any] = {}  # facts that one step passes to a later step

    # Questions of a rule

    def input(self, place: int) -> str:
        """Return the name of an input; "" if the input is left out."""
        return str(self.node.input[place]) if place < len(self.node.input) else ""

    def output(self, place: int) -> str:
        """Return the name of an output; "" if the output is left out."""
        return str(self.node.output[place]) if place < len(self.node.output) else ""

    def has(self, name: str) -> bool:
        """Return whether the node has this attribute."""
        return any(a.name == name for a in self.node.attribute)

    def get(self, name: str, default: Any = None) -> Any:
        """Return an attribute of the node.

        For an absent attribute, return the default of the node's version, or `default` if this version has no default.
        """
        found = next((a for a in self.node.attribute if a.name == name), None)
        if found is not None and found.ref_attr_name:
            raise RuleNotApplicable(
                f"its attribute {name} comes from {found.ref_attr_name}, an attribute of the function around it"
            )
        if found is None and self.schema is not None and name in self.schema.attributes:
            given = self.schema.attributes[name].default_value
            found = given if given.type else None
        if found is None:
            return default
        value = helper.get_attribute_value(found)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else value

    def take(self, name: str, default: Any = None) -> Any:
        """Return an attribute like `get`, and remove this attribute."""
        value = self.get(name, default)
        self.drop(name)
        return value

    def kind(self, name: str) -> Kind:
        """Return the known type and shape of a value."""
        return self.values.kind(name)

    def elem(self, name: str) -> int:
        """Return the element type of a value, as a number of TensorProto."""
        elem = self.kind(name).elem
        if not elem:
            raise RuleNotApplicable(f"the element type of {name!r} is not known")
        return elem

    def shape(self, name: str) -> Shape:
        """Return the lengths of a value: a number for a fixed axis, and a name or None for a free axis."""
        shape = self.kind(name).shape
        if shape is None:
            raise RuleNotApplicable(f"the number of axes of {name!r} is not known")
        return shape

    def rank(self, name: str) -> int:
        """Return the number of axes of a value."""
        return len(self.shape(name))

    def length(self, name: str, axis: int) -> int:
        """Return the length of an axis; raise RuleNotApplicable if the length is not fixed."""
        shape = self.shape(name)
        if not -len(shape) <= axis < len(shape):
            raise RuleNotApplicable(f"{name!r} has no axis {axis}")
        n = shape[axis]
        if not isinstance(n, int):
            raise RuleNotApplicable(f"the length of axis {axis} of {name!r} is not fixed")
        return n

    def array(self, place: int) -> Any:
        """Return the contents of input `place` if the file fixes these contents; else None."""
        return self.values.array(self.input(place)) if self.input(place) else None

    def absorb(self, place: int, what: str) -> Any:
        """Remove an input that is an attribute in the target version, and return the input's contents."""
        array = self.array(place)
        if array is None:
            raise RuleNotApplicable(f"{what} is computed by nodes, but version {self.goal} needs a constant")
        self.values.absorbed.add(self.input(place))
        self.feed(place, "")
        return array

    goal = 0  # the target version of the present step

    # Changes to the node

    def set(self, name: str, value: Any) -> None:
        """Set an attribute of the node; attributes that are in alphabetical order stay in this order."""
        self.drop(name)
        names = [a.name for a in self.node.attribute]
        place = next((i for i, n in enumerate(names) if n > name), len(names)) if names == sorted(names) else len(names)
        kind = AttributeProto.INTS if value == [] else None
        self.node.attribute.insert(place, helper.make_attribute(name, value, attr_type=kind))

    def drop(self, name: str) -> None:
        """Remove an attribute."""
        for attribute in [a for a in self.node.attribute if a.name == name]:
            self.node.attribute.remove(attribute)

    def feed(self, place: int, name: str) -> None:
        """Set an input; "" leaves the input out."""
        inputs = [*self.node.input, *[""] * (place + 1 - len(self.node.input))]
        inputs[place] = name
        while inputs and not inputs[-1]:
            inputs.pop()
        del self.node.input[:]
        self.node.input.extend(inputs)

    def constant(self, value: Any, elem: int, hint: str) -> str:
        """Add a fixed tensor as a Constant node; return its name."""
        name = self.values.fresh(f"{self.label}_{hint}")
        array = np.asarray(value)
        if elem == TensorProto.STRING:
            raise RuleNotApplicable(f"the constant {value} would have to be a string")
        if elem not in TensorProto.DataType.values() or elem == TensorProto.UNDEFINED:
            raise RuleNotApplicable(f"the constant {value} would have element type {elem}, which ONNX does not have")
        tensor = numpy_helper.from_array(array.astype(helper.tensor_dtype_to_np_dtype(elem)), name)
        self.hold(tensor)
        return name

    def hold(self, tensor: Any) -> None:
        """Put a tensor into the graph as a Constant, or as an initializer if Constant does not take the type."""
        self.values.tensors[tensor.name] = tensor
        if self.opset >= 9 or tensor.data_type in CONSTANT_1:
            title = tensor.name if self.named else ""
            self.before.append(helper.make_node("Constant", [], [tensor.name], title, value=tensor))
        elif self.values.initializers is None:
            raise RuleNotApplicable("before opset 9 the function around the node cannot hold constant integers")
        else:
            self.values.initializers.append(tensor)

    def integers(self, value: Any, hint: str) -> str:
        """Add a fixed tensor of int64; return its name."""
        return self.constant(value, TensorProto.INT64, hint)

    def scalar(self, value: float, like: str, hint: str = "number") -> str:
        """Add a number of the element type of another value; return the name of the number."""
        return self.constant(value, self.elem(like), hint)

    def emit(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node of opset LANGUAGE (18) in front of this node; return the name of the new node's result.

        kind    the type and shape of the result; left out if the result has the type of the first input and the
                broadcast shape of the inputs
        to      the name of the result, if the result needs a certain name
        elem    the type to which a Cast converts
        """
        return self._emit(self.before, operator, inputs, attributes, attributes.pop("to", ""))

    def after(self, operator: str, *inputs: str, to: str, **attributes: Any) -> str:
        """Add a node after this node; the result of the new node is named `to`."""
        return self._emit(self.behind, operator, inputs, attributes, to)

    def divert(self, place: int, kind: Kind | None = None) -> str:
        """Give an output a new name, and return the new name.

        A node that is added later can compute the value with the old name from the value with the new name.
        """
        old = self.node.output[place]
        name = self.values.fresh(f"{old or self.label}_{self.node.op_type}")
        self.values.made[name] = kind or self.kind(old)
        self.node.output[place] = name
        return name

    def replace(self, operator: str, *inputs: str, place: int = 0, **attributes: Any) -> None:
        """Add a node that computes output `place` instead of this node.

        After all outputs have been replaced, the rule must set `d.node = None`.
        """
        self._emit(self.before, operator, inputs, attributes, self.output(place))

    def _emit(self, where: list[Any], operator: str, inputs: Sequence[str], attributes: Any, to: str = "") -> str:
        kind = attributes.pop("kind", None) or self._kind(operator, inputs)
        given = [*inputs]
        while given and not given[-1]:
            given.pop()
        name = to or self.values.fresh(f"{self.label}_{operator}")
        title = (self.values.fresh(f"{self.label}_{operator}") if to else name) if self.named else ""
        self.values.made.setdefault(name, kind)
        attributes = {key: value for key, value in attributes.items() if value is not None}
        if operator == "Cast":
            attributes["to"] = attributes.pop("elem")
            self.values.made[name] = Kind(attributes["to"], kind.shape)
        where += self.translate(helper.make_node(operator, given, [name], title, **attributes), self.values)
        return name

    def _kind(self, operator: str, inputs: Sequence[str]) -> Kind:
        """Return the kind of an elementwise operator's result."""
        kinds = [self.kind(name) for name in inputs if name]
        like = kinds[1 if operator == "Where" else 0] if kinds else Kind()
        elem = TensorProto.BOOL if operator in TRUTHS else like.elem
        if operator in ("Shape", "Size"):
            return Kind(TensorProto.INT64, None if operator == "Shape" else ())
        if operator.startswith("Reduce"):
            return Kind(elem, None if kinds[0].shape is None else (None,) * len(kinds[0].shape))
        shapes = [kind.shape for kind in kinds]
        if operator in ("Reshape", "Expand", "Slice", "Gather", "Concat", "Squeeze", "Unsqueeze", "Flatten", "Tile"):
            return Kind(elem)
        return Kind(elem, _broadcast([s for s in shapes if s is not None]) if None not in shapes else None)


def _broadcast(shapes: Sequence[Shape]) -> Shape:
    rank = max(map(len, shapes), default=0)
    axes = zip(*[(1,) * (rank - len(s)) + s for s in shapes], strict=True)
    return tuple(next((n for n in lengths if n != 1), 1) for lengths in axes)


def is_node(node: Any) -> bool:
    """Return whether the node is of ONNX's own domain."""
    return node.domain in ("", "ai.onnx")


def in_words(node: Any) -> str:
    """Return the words for a NodeProto in error messages: `node 'conv_1' (Conv)`."""
    return f"node {node.name or next(filter(None, node.output), '')!r} ({printable(node.op_type)})"


def graphs_of(node: Any) -> Iterator[tuple[str, Any]]:
    """Yield the graphs inside a node, each with a name."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.name, attribute.g
        for index, graph in enumerate(attribute.graphs):
            yield f"{attribute.name}.{index}", graph


def path_of(function: Any) -> str:
    """Return the key of a function in tables whose other keys are the paths of graphs, such as `/3.then_branch`."""
    return f"{function.domain}:{function.name}:{function.overload}"


def tensors_of(model: Any) -> Iterator[Any]:
    """Yield all tensors of a model and its functions: initializers, and tensors in attributes."""
    pending = [model.graph, *model.functions]
    while pending:
        holder = pending.pop()
        yield from getattr(holder, "initializer", ())
        for node in holder.node:
            for attribute in node.attribute:
                yield from [attribute.t] if attribute.HasField("t") else []
                yield from attribute.tensors
            pending += [graph for _, graph in graphs_of(node)]


def constant_of(node: Any) -> Any:
    """Return the TensorProto of a Constant node.

    Return None if the value is not numeric, or if it is an attribute of the surrounding function.
    """
    if len(node.attribute) != 1 or node.attribute[0].ref_attr_name:
        return None
    given = node.attribute[0]
    if given.name == "value":
        return given.t
    forms = {"value_float": "f", "value_floats": "floats", "value_int": "i", "value_ints": "ints"}
    if given.name not in forms:
        return None
    value = getattr(given, forms[given.name])
    elem = TensorProto.FLOAT if "float" in given.name else TensorProto.INT64
    shape, numbers = ([len(value)], list(value)) if given.name.endswith("s") else ([], [value])
    return helper.make_tensor(node.output[0], elem, shape, numbers)


def type_of(elem: int) -> str:
    """Return ONNX's name of an element type, such as `tensor(float)`."""
    known = TensorProto.DataType.Name(elem).lower() if elem in TensorProto.DataType.values() else "?"
    return f"tensor({known})"
