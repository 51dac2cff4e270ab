"""The graph being written: values, nodes, and the rules of ONNX that every node must keep.

Rules call `graph.add("Mul", a, b)`; the graph looks up the operator's schema at the model's opset and declines
what it does not allow: an operator that did not exist, an attribute of another version, a type it never took. So
whatever is written is valid for its opset by construction. 16-bit floats that an operator does not take are
computed in float32 and rounded once, which is what minorm does itself.
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
from minorm.onnx.graph.errors import Decline
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

# Operators that answer yes or no, whatever the type of their inputs.
BOOLEAN = frozenset(("And", "Equal", "Greater", "GreaterOrEqual", "IsNaN", "Less", "LessOrEqual", "Not", "Or", "Xor"))


@dataclass(eq=False)
class Value:
    """One tensor of the graph. `array` holds the contents of a constant; `shape` is None while not yet known."""

    shape: Shape | None
    dtype: np.dtype[Any]
    name: str | None = None
    array: Any = None
    home: str | None = None  # the state_dict key, for a parameter or buffer
    trained: bool = False  # whether it is a constant that requires grad: of a function, or kept outside the modules

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.known_shape)

    @property
    def known_shape(self) -> Shape:
        """The shape, where it must be known."""
        if self.shape is None:
            raise AssertionError(f"the rule that wrote {self.name} must say its shape")
        return self.shape


@dataclass
class Node:
    """One operation; absent optional inputs and outputs are None."""

    operator: str
    inputs: list[Value | None]
    outputs: list[Value | None]
    attributes: dict[str, Any]
    scope: str  # dotted path of the module it was written for
    name: str = ""


@dataclass
class Result:
    """Shape and type of what the call being written returned."""

    shape: Shape
    dtype: np.dtype[Any]


@dataclass
class Graph:
    """Nodes in order, and what rules need to know: the opset, the free axes, the result of the current call."""

    opset: int
    symbols: Symbols = field(default_factory=Symbols)
    scope: str = ""
    nodes: list[Node] = field(default_factory=list)
    inputs: list[Value] = field(default_factory=list)
    results: tuple[Result, ...] = ()  # of the call being written
    updated: dict[int, tuple[Value, Value]] = field(default_factory=dict)  # buffer -> (buffer, its new value)
    warnings: list[str] = field(default_factory=list)
    embedded: list[tuple[Any, list[str]]] = field(default_factory=list)  # loaded graphs inside, and what they take
    _constants: dict[Any, Value] = field(default_factory=dict)
    _lengths: dict[Length, Value] = field(default_factory=dict)

    # What rules call

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
        """Append a node; returns its output Value, or a tuple of `outputs` of them.

        shape   of the output where it is not the broadcast shape of the inputs; a tuple of shapes for several
        dtype   of the output where it is not that of the first input; a tuple for several
        also    attributes whose names are taken: shape and dtype of the Random operators
        attributes that are None are left out
        """
        attributes = {name: value for name, value in {**attributes, **(also or {})}.items() if value is not None}
        # A node reads a buffer as the calls written before have left it.
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
        """x in another element type; x itself where it has that type already."""
        dtype = np.dtype(dtype)
        return x if x.dtype == dtype else self.add("Cast", x, dtype=dtype, to=ELEMENT_TYPES[dtype][0])

    def constant(self, array: Any, dtype: Any = None, name: str = "constant") -> Value:
        """A constant tensor; equal ones of moderate size are shared."""
        array = np.asarray(array) if dtype is None else np.asarray(array, dtype)
        key = (array.shape, array.dtype, array.tobytes()) if array.nbytes <= 65536 else id(array)
        if key not in self._constants:
            self._constants[key] = Value(array.shape, array.dtype, name, array)
        return self._constants[key]

    def scalar(self, number: float, like: Value) -> Value:
        """A 0-d constant of the element type of `like`."""
        return self.constant(number, like.dtype)

    def vector(self, lengths: Sequence[Length | Value]) -> Value:
        """A 1-d int64 tensor of these lengths: a constant, or computed from the inputs' shapes where one is free.

        A length may be a Value: one that was computed already.
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
        """A free length, as an int64 tensor of shape (1,), at run time."""
        if size not in self._lengths:
            self._lengths[size] = measuring.measure(self, size)
        return self._lengths[size]

    def current(self, buffer: Value) -> Value:
        """A buffer as the calls written so far have left it."""
        return self.updated.get(id(buffer), (buffer, buffer))[1]

    def update(self, buffer: Value, new: Value) -> None:
        """Record that the model now holds `new` in this buffer; it becomes an output of the graph."""
        self.updated[id(buffer)] = (buffer, new)

    @property
    def result(self) -> Result:
        """Shape and type of the (first) result of the call being written."""
        return self.results[0]

    def warn(self, message: str) -> None:
        """Tell the user, once, something about the file that is being written."""
        if message not in self.warnings:
            self.warnings.append(message)

    def has(self, operator: str, since: int = 1) -> bool:
        """Whether the model's opset has this operator, in this version or a newer one."""
        return versions.exists(operator, self.opset) and versions.resolve(operator, self.opset) >= since

    # Undoing what a rule that then declined has added

    def mark(self) -> tuple[Any, ...]:
        """The state to come back to."""
        return len(self.nodes), len(self.warnings), dict(self._lengths), dict(self.updated)

    def reset(self, mark: tuple[Any, ...]) -> None:
        """Back to where `mark` was taken."""
        del self.nodes[mark[0] :], self.warnings[mark[1] :]
        self._lengths, self.updated = mark[2], mark[3]

    # The rules of the opset

    def _schema(self, operator: str, inputs: tuple[Value | None, ...], attributes: dict[str, Any], outputs: int) -> Any:
        try:
            since = versions.resolve(operator, self.opset)
        except LookupError as error:
            raise Decline(str(error)) from None
        schema = onnx.defs.get_schema(operator, self.opset, "")
        if schema.deprecated:
            raise Decline(f"{operator} {since} is withdrawn")
        for name, value in attributes.items():
            if name not in schema.attributes:
                raise Decline(f"{operator} {since} has no attribute {name}")
            if schema.attributes[name].type in (AttrType.FLOAT, AttrType.FLOATS):
                for number, back in changed(value):
                    self.warn(
                        f"{operator}: {name}={number!r} does not fit ONNX's float32; it will come back as {back!r}"
                    )
        if not schema.min_input <= len(inputs) <= schema.max_input:
            raise Decline(f"{operator} {since} does not take {len(inputs)} inputs")
        if outputs > schema.max_output:
            raise Decline(f"{operator} {since} does not have {outputs} outputs")
        return schema

    def _widened(self, operator: str, schema: Any, inputs: tuple[Value | None, ...]) -> list[Value | None] | None:
        """None where all element types are allowed; else the inputs, those of 16 bits cast to float32."""
        formal = schema.inputs
        wide = False
        for place, value in enumerate(inputs):
            if value is None:
                continue
            allowed = formal[min(place, len(formal) - 1)].types
            if ELEMENT_TYPES[value.dtype][1] not in allowed:
                if value.dtype not in dtypes.HALVES or "tensor(float)" not in allowed:
                    raise Decline(f"{operator} {schema.since_version} does not take {value.dtype}")
                if value.dtype == dtypes.bfloat16 and self.opset < 13:
                    raise Decline(f"bfloat16 exists in ONNX from opset 13 on; the model's opset is {self.opset}")
                wide = True
        if not wide:
            return None
        return [v if v is None or v.dtype not in dtypes.HALVES else self.cast(v, dtypes.float32) for v in inputs]


def _without_absent_tail(inputs: tuple[Value | None, ...]) -> tuple[Value | None, ...]:
    end = len(inputs)
    while end and inputs[end - 1] is None:
        end -= 1
    return inputs[:end]
