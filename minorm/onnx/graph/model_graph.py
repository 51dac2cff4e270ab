"""Build the graph that a file will hold, from values and nodes, and check each node against ONNX's schemas.

Rules call `graph.add("Mul", a, b)`. The graph looks up the operator's schema at the model's opset. The graph refuses an
operator that this opset lacks, an attribute that this version lacks, and a type that no version of the operator takes.
So every written node is valid for its opset. If an operator does not take 16-bit floats, the nodes compute in float32
and round once, as minorm itself does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from minorm.devices import dtypes
from minorm.onnx.graph import measuring, versions
from minorm.onnx.graph.decimals import changed
from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.sizes import Length, Shape, Size, Symbols, broadcast

ELEMENT_TYPES = {
    dtypes.float16: (TensorProto.FLOAT16, "tensor(float16)"),
    dtypes.bfloat16: (TensorProto.BFLOAT16, "tensor(bfloat16)"),
    dtypes.float32: (TensorProto.FLOAT, "tensor(float)"),
    dtypes.float64: (TensorProto.DOUBLE, "tensor(double)"),
    dtypes.bool: (TensorProto.BOOL, "tensor(bool)"),
    **{
        np.dtype(name): (getattr(TensorProto, name.upper()), f"tensor({name})")
        for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
    },
}

AttrType = onnx.defs.OpSchema.AttrType

# Operators with bools as results, for any type of their inputs
BOOLEAN = frozenset(("And", "Equal", "Greater", "GreaterOrEqual", "IsNaN", "Less", "LessOrEqual", "Not", "Or", "Xor"))


@dataclass(eq=False)
class Value:
    """A tensor of the graph. `array` holds the contents of a constant; `shape` is None if it is unknown."""

    shape: Shape | None
    dtype: np.dtype[Any]
    name: str | None = None
    array: Any = None
    home: str | None = None  # the state_dict key, for a parameter or buffer
    trained: bool = False  # True for a constant that requires grad, from a function or from outside the modules

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.known_shape)

    @property
    def known_shape(self) -> Shape:
        """The shape; raises AssertionError if it is unknown."""
        if self.shape is None:
            raise AssertionError(f"the rule that wrote {self.name} must say its shape")
        return self.shape


@dataclass
class Node:
    """An operation; absent optional inputs and outputs are None."""

    operator: str
    inputs: list[Value | None]
    outputs: list[Value | None]
    attributes: dict[str, Any]
    scope: str  # dotted path of the module that it was written for
    name: str = ""


@dataclass
class Result:
    """Holds the shape and the type of one result of the call that is being written."""

    shape: Shape
    dtype: np.dtype[Any]


@dataclass
class Graph:
    """Holds the nodes in order; gives rules the opset, the free axes and the results of the call being written."""

    opset: int
    symbols: Symbols = field(default_factory=Symbols)
    scope: str = ""
    nodes: list[Node] = field(default_factory=list)
    inputs: list[Value] = field(default_factory=list)
    results: tuple[Result, ...] = ()  # the results of the current call
    updated: dict[int, tuple[Value, Value]] = field(default_factory=dict)  # buffer -> (buffer, its new value)
    warnings: list[str] = field(default_factory=list)
    embedded: list[tuple[Any, list[str]]] = field(default_factory=list)  # loaded graphs inside, with their input names
    _constants: dict[Any, Value] = field(default_factory=dict)
    _lengths: dict[Length, Value] = field(default_factory=dict)

    # Methods that rules call

    def add(
        self,
        operator: str,
        *inputs: Value | None,
        outputs: int = 1,
        shape: Any = None,
        dtype: Any = None,
        also: Mapping[str, Any] | None = None,
        **attributes: Any,
    ) -> Any:
        """Append a node; return its output Value, or a tuple of `outputs` Values.

        shape   the output's shape, if it is not the broadcast shape of the inputs; a tuple of shapes for several
                outputs
        dtype   the output's type, if it is not the type of the first input; a tuple for several outputs
        also    attributes whose names are also parameters of this method, such as shape and dtype of RandomNormal
        Attributes that are None are left out.
        """
        attributes = {name: value for name, value in {**attributes, **(also or {})}.items() if value is not None}
        # A node reads a buffer's value after the calls written before.
        inputs = _without_absent_tail(tuple(None if v is None else self.current(v) for v in inputs))
        schema = self._schema(operator, inputs, attributes, outputs)
        wide = self._widened(operator, schema, inputs)
        if dtype is None:
            dtype = dtypes.bool if operator in BOOLEAN else next(v.dtype for v in inputs if v is not None)
        types = dtype if isinstance(dtype, tuple) else (dtype,) * outputs
        if shape is None:
            shape = broadcast(*[v.known_shape for v in inputs if v is not None])
        shapes = shape if outputs > 1 else (shape,)
        results = [Value(s, np.dtype(t)) for s, t in zip(shapes, types, strict=True)]
        if wide is None:
            self.nodes.append(Node(operator, list(inputs), list(results), attributes, self.scope))
        else:
            inner = [Value(v.shape, dtypes.float32 if v.dtype in dtypes.HALVES else v.dtype) for v in results]
            self.nodes.append(Node(operator, wide, list(inner), attributes, self.scope))
            for result, value in zip(results, inner, strict=True):
                self.nodes.append(Node("Cast", [value], [result], {"to": ELEMENT_TYPES[result.dtype][0]}, self.scope))
        return results[0] if outputs == 1 else tuple(results)

    def cast(self, x: Value, dtype: Any) -> Value:
        """Cast x to another element type; return x itself if it has that type already."""
        dtype = np.dtype(dtype)
        return x if x.dtype == dtype else self.add("Cast", x, dtype=dtype, to=ELEMENT_TYPES[dtype][0])

    def constant(self, array: Any, dtype: Any = None, name: str = "constant") -> Value:
        """Return a constant tensor; equal constants of up to 64 KiB are one tensor."""
        array = np.asarray(array) if dtype is None else np.asarray(array, dtype)
        key = (array.shape, array.dtype, array.tobytes()) if array.nbytes <= 65536 else id(array)
        if key not in self._constants:
            self._constants[key] = Value(array.shape, array.dtype, name, array)
        return self._constants[key]

    def scalar(self, number: float, like: Value) -> Value:
        """Return a 0-d constant of the element type of `like`."""
        return self.constant(number, like.dtype)

    def vector(self, lengths: Sequence[Length | Value]) -> Value:
        """Write a 1-d int64 tensor of these lengths.

        If all lengths are fixed, the tensor is a constant. If a length is free, nodes compute the tensor from the
        inputs' shapes. A length may also be a Value that the graph has already.
        """
        if not any(isinstance(n, (Size, Value)) for n in lengths):
            return self.constant([int(n) for n in lengths], np.int64, "shape")  # type: ignore[arg-type]
        parts = [self._part(n) for n in lengths]
        return parts[0] if len(parts) == 1 else self.add("Concat", *parts, shape=(len(parts),), axis=0)

    def _part(self, length: Length | Value) -> Value:
        if isinstance(length, Value):
            return length
        return self.length(length) if isinstance(length, Size) else self.constant([length], np.int64, "length")

    def length(self, size: Size) -> Value:
        """Write a free length as an int64 tensor of shape (1,), computed at run time."""
        if size not in self._lengths:
            self._lengths[size] = measuring.measure(self, size)
        return self._lengths[size]

    def current(self, buffer: Value) -> Value:
        """Return the Value that a buffer has after all calls that are written so far."""
        return self.updated.get(id(buffer), (buffer, buffer))[1]

    def update(self, buffer: Value, new: Value) -> None:
        """Record that the model now holds `new` in this buffer; `new` becomes an output of the graph."""
        self.updated[id(buffer)] = (buffer, new)

    @property
    def result(self) -> Result:
        """The shape and type of the first result of the call that is being written."""
        return self.results[0]

    def warn(self, message: str) -> None:
        """Record a warning for the user about the file being written; a repeated message is recorded only once."""
        if message not in self.warnings:
            self.warnings.append(message)

    def has(self, operator: str, since: int = 1) -> bool:
        """Return whether the model's opset has this operator in version `since` or a newer version."""
        return versions.exists(operator, self.opset) and versions.resolve(operator, self.opset) >= since

    # Undo the additions of a rule that raises RuleNotApplicable afterwards

    def mark(self) -> tuple[Any, ...]:
        """Return a mark of the present state, to which `reset` can go back."""
        return len(self.nodes), len(self.warnings), dict(self._lengths), dict(self.updated)

    def reset(self, mark: tuple[Any, ...]) -> None:
        """Go back to the state that the graph had when `mark` was made."""
        del self.nodes[mark[0] :], self.warnings[mark[1] :]
        self._lengths, self.updated = mark[2], mark[3]

    # The rules of the opset

    def _schema(self, operator: str, inputs: tuple[Value | None, ...], attributes: dict[str, Any], outputs: int) -> Any:
        try:
            since = versions.resolve(operator, self.opset)
        except LookupError as error:
            raise RuleNotApplicable(str(error)) from None
        schema = onnx.defs.get_schema(operator, self.opset, "")
        if schema.deprecated:
            raise RuleNotApplicable(f"{operator} {since} is deprecated")
        for name, value in attributes.items():
            if name not in schema.attributes:
                raise RuleNotApplicable(f"{operator} {since} has no attribute {name}")
            if schema.attributes[name].type in (AttrType.FLOAT, AttrType.FLOATS):
                for number, back in changed(value):
                    self.warn(f"{operator}: {name}={number!r} does not fit ONNX's float32; the file will hold {back!r}")
        if not schema.min_input <= len(inputs) <= schema.max_input:
            raise RuleNotApplicable(f"{operator} {since} does not take {len(inputs)} inputs")
        if outputs > schema.max_output:
            raise RuleNotApplicable(f"{operator} {since} does not have {outputs} outputs")
        return schema

    def _widened(self, operator: str, schema: Any, inputs: tuple[Value | None, ...]) -> list[Value | None] | None:
        """If the operator does not take 16-bit floats, return all inputs, with 16-bit floats cast to float32.

        Return None if the operator takes the types of all inputs.
        """
        formal = schema.inputs
        wide = False
        for place, value in enumerate(inputs):
            if value is None:
                continue
            allowed = formal[min(place, len(formal) - 1)].types
            if ELEMENT_TYPES[value.dtype][1] not in allowed:
                if value.dtype not in dtypes.HALVES or "tensor(float)" not in allowed:
                    raise RuleNotApplicable(f"{operator} {schema.since_version} does not take {value.dtype}")
                if value.dtype == dtypes.bfloat16 and self.opset < 13:
                    raise RuleNotApplicable(
                        f"bfloat16 exists in ONNX from opset 13 on; the model's opset is {self.opset}"
                    )
                wide = True
        if not wide:
            return None
        return [v if v is None or v.dtype not in dtypes.HALVES else self.cast(v, dtypes.float32) for v in inputs]


def _without_absent_tail(inputs: tuple[Value | None, ...]) -> tuple[Value | None, ...]:
    end = len(inputs)
    while end and inputs[end - 1] is None:
        end -= 1
    return inputs[:end]
