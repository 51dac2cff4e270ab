"""Track in which types each value of a graph is made and read, while the graph's floats get another type.

Nodes that compute with data may read a value in one type, while shape arithmetic reads the value in another type. An
initializer, a Constant and a Cast of integers can have any type, so each gets the type in which it is read. If it is
read in a second type, a copy gets the second type. For all other values, a Cast is added after the node that makes the
value.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from onnx import AttributeProto, NodeProto, TensorProto, helper

from minorm.onnx.exporting.float_types import Given, name_type, retype_tensor
from minorm.onnx.graph.errors import ExportError
from minorm.onnx.graph.names import drop
from minorm.onnx.graph.node_rewriter import FLOATS, constant_of, fresh
from minorm.onnx.graph.tensors import DTYPES


@dataclass(eq=False)
class Value:
    """Describes one value.

    elem      the element type; for a `free` value, the type in the file
    silent    True if the value is computed from shapes and constants alone
    place     the index of the node that makes the value; -1 for inputs and initializers
    output    the index of the value among the outputs of this node
    free      a TensorProto or NodeProto that can make the value in other types too; True for an input of a function;
              otherwise None
    may       the float types in which the value can be made
    rounded   the wider type in which the node makes the value, if the node cannot make the wanted type
    end       for an output of the model, the type of this output; in this type, the value keeps its name
    """

    name: str
    elem: int
    silent: bool = False
    sequence: bool = False
    place: int = -1
    output: int = 0
    free: Any = None
    may: Collection[int] = FLOATS
    rounded: int = 0
    end: int = 0
    used: bool = False
    wanted: set[int] = field(default_factory=set)
    names: dict[int, str] = field(default_factory=dict)

    @property
    def given(self) -> Given:
        """Return the value's type as a Given, for the Signature of a node that reads it."""
        return Given(self.elem, self.sequence)

    @property
    def made(self) -> int:
        """Return the type in which the value is made."""
        found = {elem for elem in self.wanted if elem in self.may}
        if self.free is None or not found or (self.elem in found and self.end not in found):
            return self.elem
        return self.end if self.end in found else max(found, key=lambda elem: DTYPES[elem].itemsize)


class Scope:
    """Holds one graph, or the body of a function, and the values that its nodes make.

    conditional  True if data decides whether the graph runs
    passed       the attributes that the call of the surrounding function passes
    """

    def __init__(
        self,
        holder: Any,
        path: str,
        opset: int,
        around: Scope | None = None,
        conditional: bool = False,
        passed: Mapping[str, Any] | None = None,
    ) -> None:
        self.holder, self.path, self.opset, self.around, self.conditional = holder, path, opset, around, conditional
        self.passed = passed or {}
        self.values: dict[str, Value] = {}
        self.inner: list[Scope] = []
        self.reads: list[tuple[Any, int, Value, int]] = []  # a reader's names, the place in them, the value, the type
        self.behind: dict[int, list[NodeProto]] = {}  # place of a node -> the nodes to put after it
        if around is not None:
            around.inner.append(self)

    def find(self, name: str) -> Value | None:
        """Return the value with this name, here or in a surrounding graph; None for an absent input."""
        scope: Scope | None = self
        while scope is not None and name:
            if name in scope.values:
                return scope.values[name]
            scope = scope.around
        return self.make(name, 0) if name else None

    def make(self, name: str, elem: int, **what: Any) -> Value:
        """Make a new value."""
        self.values[name] = Value(name, elem, **what)
        return self.values[name]

    def read(self, names: Any, place: int, value: Value, elem: int = 0) -> None:
        """Record that `names[place]` reads the value in type `elem`; 0 means the type in which the value is made."""
        value.used = True
        if elem:
            value.wanted.add(elem)
        self.reads.append((names, place, value, elem))

    def finish(self, taken: set[str]) -> None:
        """Name all values, write the new names into the nodes that read the values, and insert the new nodes."""
        scopes = [*self._all()]
        for scope in scopes:
            for value in scope.values.values():
                scope._name(value, taken)
        for scope in scopes:
            for names, place, value, elem in scope.reads:
                name = value.names[elem or value.made]
                if isinstance(names[place], str):
                    names[place] = name
                else:  # an output of a graph
                    names[place].name = name
        for scope in reversed(scopes):  # inner graphs first, because writing copies them
            for value in scope.values.values():
                scope._supply(value, taken)
            scope._write()

    def _all(self) -> Iterator[Scope]:
        """Yield this scope, then the scopes inside it."""
        pending = [self]
        while pending:
            scope = pending.pop()
            yield scope
            pending += reversed(scope.inner)

    def _name(self, value: Value, taken: set[str]) -> None:
        """Choose a name for the value in each of its types."""
        made, others = value.made, sorted(value.wanted - {value.made})
        if value.sequence and others and not value.free:
            types = f"computed in {DTYPES[made]}, but read in {DTYPES[others[0]]}"
            raise ExportError(f"export: the sequence {value.name!r} is {types}")
        for elem in (made, *others):
            own = elem == (value.end or made)
            value.names[elem] = value.name if own else fresh(f"{value.name}_{DTYPES[elem]}", taken)

    def _supply(self, value: Value, taken: set[str]) -> None:
        """Make the value in every type in which it is read."""
        made = value.made
        node = self.holder.node[value.place] if value.place >= 0 else None
        source = value.names[made]
        if node is not None:
            if value.rounded and value.used:
                source = fresh(f"{value.name}_{DTYPES[value.rounded]}", taken)
                self._cast(value, source, made)
            node.output[value.output] = source
        for elem in sorted(value.names.keys() - {made}):
            if isinstance(value.free, TensorProto):
                tensor = self.holder.initializer.add()
                tensor.CopyFrom(value.free)
                tensor.name = value.names[elem]
                make_in(tensor, elem)
            elif isinstance(value.free, NodeProto) and elem in value.may:
                copy = NodeProto()
                copy.CopyFrom(value.free)
                copy.name = copy.output[0] = value.names[elem]
                make_in(copy, elem)
                self.behind.setdefault(value.place, []).append(copy)
            else:
                self._cast(value, value.names[made], elem)
        if made != value.elem and value.free is not True:
            make_in(value.free, made)

    def _cast(self, value: Value, source: str, elem: int) -> None:
        name = value.names[elem]
        to: Any = TensorProto.DataType.Name(elem) if self.opset < 6 else elem
        self.behind.setdefault(value.place, []).append(helper.make_node("Cast", [source], [name], name, to=to))

    def _write(self) -> None:
        """Insert the new nodes, and write the new types into the descriptions of values."""
        if self.behind:
            old = list(self.holder.node)
            self.holder.node.extend(self.behind.get(-1, ()))
            for place, node in enumerate(old):
                self.holder.node.extend([node, *self.behind.get(place, ())])
            del self.holder.node[: len(old)]
        inputs = self.holder.input if hasattr(self.holder, "initializer") else ()
        for entry in inputs:
            describe(entry, self.values[entry.name].made)
        gone = set[str]()
        for entry in self.holder.value_info:
            value = self.values.get(entry.name)
            found = [elem for elem, name in value.names.items() if name == entry.name] if value is not None else []
            if value is not None and value.rounded and not value.used:
                found = [value.rounded]
            if found:
                describe(entry, found[0])
            else:
                gone.add(entry.name)
        drop(self.holder.value_info, lambda entry: entry.name in gone)


def make_in(maker: Any, elem: int) -> None:
    """Change a tensor, a Constant, or another node that names its result's type, so that the result has this type."""
    if isinstance(maker, TensorProto):
        retype_tensor(maker, elem)
    elif maker.op_type == "Constant":
        tensor = constant_of(maker)
        retype_tensor(tensor, elem)
        given = AttributeProto(name="value", type=AttributeProto.TENSOR)
        given.t.CopyFrom(tensor)
        del maker.attribute[:]
        maker.attribute.append(given)
    else:
        name_type(maker, elem)


def describe(entry: Any, elem: int) -> None:
    """Write the type `elem` into a value's description, if it is a float type and the description has a type."""
    if elem in FLOATS and entry.type.WhichOneof("value"):
        tensor_type(entry).elem_type = elem


def tensor_type(entry: Any) -> Any:
    """Return the innermost type of a description: the tensor's type, or the type of a sequence's elements."""
    kind = entry.type
    while kind.WhichOneof("value") in ("sequence_type", "optional_type"):
        kind = getattr(kind, kind.WhichOneof("value")).elem_type
    return kind.tensor_type
