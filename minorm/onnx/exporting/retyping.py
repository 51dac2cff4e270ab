"""Convert a whole ModelProto to another float type. The loaded module's `to(mn.float16)` has the same effect.

All floats that nodes read or make as data get the new type: inputs, outputs, tensors, and the types that Casts and
other nodes name. Values computed from shapes and constants alone keep the types of the file, because float16 cannot
count to 2049; nodes that compute with data read such values through a Cast. If ONNX prescribes a type for an input, a
Cast converts back to the prescribed type. `float_types.py` finds the types that a node needs, and `retyped_values.py`
provides a value in several types.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import onnx
from onnx import TensorProto

from minorm.onnx.exporting.float_types import (
    NAMED,
    ONNXRUNTIME_LACKS,
    Given,
    Signature,
    compute_in_double,
    constant_type,
    name_type,
    nameable,
    named_type,
)
from minorm.onnx.exporting.retyped_functions import Functions
from minorm.onnx.exporting.retyped_values import Scope, Value, describe, make_in, tensor_type
from minorm.onnx.graph.errors import ExportError, RuleNotApplicable
from minorm.onnx.graph.model_graph import ELEMENT_TYPES
from minorm.onnx.graph.names import names_of, reads_of
from minorm.onnx.graph.node_rewriter import FLOATS, HALVES, Kind, Kinds, constant_of, graphs_of, in_words, is_node
from minorm.onnx.graph.tensors import DTYPES, text
from minorm.onnx.loading.exchange.stand_in import is_layer
from minorm.onnx.loading.signatures import opset_table

MEASURES = ("Shape", "Size")
_NOTHING: Mapping[str, Value] = {}
LAYERS = ("BatchNormalization", "Dropout", "Bernoulli", "Multinomial")  # results of these and Random... are always data


def retype(
    model: Any,
    dtype: Any,
    kinds: Kinds,
    held: Collection[str] = (),
    runnable: bool = False,
) -> list[str]:
    """Convert all floats of the network to `dtype`, in place; return nodes of a float64 model that compute in float32.

    kinds       the types of all values from shape inference; needed only where a node does not tell the type
    held        the initializers and Constants of the graph that are Parameters or buffers; their contents are already
                in the new type. Tensors inside functions and branches count as held if they have the new type. All
                other tensors are constants, and nodes that read only constants compute as before
    runnable    True to put Casts to float32 into a float64 model, around operators that onnxruntime has only in
                float32, such as Conv. Then the model runs in onnxruntime, with the precision of float32. If False, the
                file computes exactly as the module does, but only minorm may be able to run it

    Raise ExportError if nodes have no form in the new type; the error names all these nodes.
    """
    retyper = Retyper(model, ELEMENT_TYPES[dtype][0], kinds, held, runnable)
    retyper.retype()
    return retyper.narrowed


class Retyper:
    """Walks the model once to find in which type each node reads each value; then Scope.finish changes the model."""

    def __init__(self, model: Any, goal: int, kinds: Kinds, held: Collection[str], runnable: bool) -> None:
        self.model, self.goal, self.kinds, self.held = model, goal, kinds, held
        self.lacking = ONNXRUNTIME_LACKS[goal] if goal in HALVES or runnable else {}
        self.taken = {text(name, "the name of a value") for name in names_of(model)}
        self.functions = Functions(model, self._nodes, self._opset, self.taken)
        self.refused: list[str] = []  # nodes, and why
        self.narrowed: list[str] = []  # nodes that do not compute in float64

    def retype(self) -> None:
        """Convert the model."""
        scope = Scope(self.model.graph, "", self._opset(self.model.opset_import, "the model"))
        self._graph(scope)
        self._nodes(scope)
        for place, entry in enumerate(scope.holder.output):
            self._end(scope, place, entry)
        if self.refused:
            count = f"{len(self.refused)} node{'s' if len(self.refused) > 1 else ''} cannot be written"
            raise ExportError(f"export: {count} in {DTYPES[self.goal]}:\n  " + "\n  ".join(self.refused))
        scope.finish(self.taken)
        self.functions.write()

    def _opset(self, imports: Any, what: str) -> int:
        opset = opset_table(imports, what).get("", 0)
        if self.goal == TensorProto.BFLOAT16 and 0 < opset < 13:
            raise ExportError(f"export: bfloat16 exists in ONNX from opset 13 on; {what} has opset {opset}")
        return opset

    def _float(self, elem: int) -> int:
        """Return the new type for data of this type; 0 if it is not a float type."""
        return self.goal if elem in FLOATS else 0

    # Graphs

    def _graph(
        self, scope: Scope, given: Mapping[str, Value] | None = None, silent: bool = False, data: int = 0
    ) -> None:
        """Record the initial values of a graph: its inputs and initializers.

        given     the values that the inputs have when the graph begins, as far as they are known
        silent    True if the inputs are computed from shapes and constants alone; if False, floats have the type `data`
        """
        own = {tensor.name for tensor in scope.holder.initializer}
        for entry in scope.holder.input:
            if entry.name not in own:
                like = (given or {}).get(entry.name)
                elem = tensor_type(entry).elem_type or (like.elem if like else 0) or self._kind(scope, entry.name)
                elem = (data or self.goal) if elem in FLOATS and not silent else elem
                sequence = entry.type.WhichOneof("value") == "sequence_type"
                scope.make(entry.name, elem, silent=silent, sequence=sequence)
        for tensor in scope.holder.initializer:
            if (not scope.path and tensor.name in self.held) or self._is_state(scope, tensor.data_type):
                tensor.data_type = self._float(tensor.data_type) or tensor.data_type
                scope.make(tensor.name, tensor.data_type)
            else:
                free = tensor if tensor.data_type in FLOATS else None
                scope.make(tensor.name, tensor.data_type, silent=True, free=free)

    def _is_state(self, scope: Scope, elem: int) -> bool:
        """Return True if a tensor inside a node or function is a Parameter or buffer: its type is new already."""
        return bool(scope.path) and elem == self.goal

    def _end(self, scope: Scope, place: int, entry: Any) -> None:
        """Record an output of the model; a float output gets the wanted type and keeps its name."""
        value = scope.find(entry.name) or scope.make(entry.name, 0)
        value.end = self._float(value.elem)
        scope.read(scope.holder.output, place, value, value.end)
        describe(entry, value.end)

    def _kind(self, scope: Scope, name: str) -> int:
        return self.kinds.get(scope.path, {}).get(name, Kind()).elem

    # Nodes

    def _nodes(self, scope: Scope) -> None:
        for place, node in enumerate(scope.holder.node):
            try:
                self._node(scope, place, node)
            except RuleNotApplicable as why:
                self.refused.append(f"{in_words(node)}: {why}")

    def _node(self, scope: Scope, place: int, node: Any) -> None:
        key = (node.domain, node.op_type, node.overload)
        if key in self.functions:
            self._call(scope, place, node, key)
        elif is_layer(node):
            self._layer(scope, place, node)
        elif not is_node(node):
            raise RuleNotApplicable(f"the domain of the operator is {node.domain!r}, so its meaning is not known")
        elif node.op_type == "Constant":
            self._constant(scope, place, node)
        elif any(graphs_of(node)):
            self._holder(scope, place, node)
        else:
            self._plain(scope, place, node)

    def _layer(self, scope: Scope, place: int, node: Any) -> None:
        """Record an inserted layer; its floats have the module's type."""
        for i, name in enumerate(node.input):
            value = scope.find(name)
            if value is not None:
                scope.read(node.input, i, value, self._float(value.elem) or value.elem)
        scope.make(node.output[0], self.goal, place=place)

    def _constant(self, scope: Scope, place: int, node: Any) -> None:
        name, elem = node.output[0], constant_type(node, scope.passed)
        literal = constant_of(node) is not None and elem in FLOATS
        if not scope.path and name in self.held and literal:
            if not node.attribute[0].HasField("t"):
                make_in(node, self.goal)
            node.attribute[0].t.data_type = self.goal
            scope.make(name, self.goal, place=place)
        elif self._is_state(scope, elem):
            scope.make(name, elem, place=place)
        else:
            scope.make(name, elem, silent=not scope.conditional, place=place, free=node if literal else None)

    def _plain(self, scope: Scope, place: int, node: Any) -> None:
        schema = _schema(node.op_type, scope.opset)
        inputs = [scope.find(name) for name in node.input]
        steady = all(value is None or value.silent for value in inputs) and not node.op_type.startswith("Random")
        steady = steady and node.op_type not in LAYERS
        named = named_type(node, scope.passed)
        given = [Given() if value is None else value.given for value in inputs]
        silent = node.op_type in MEASURES or (steady and not scope.conditional)
        free = self._is_free(node, named, given) if steady else None
        wanted = 0 if silent or free else self.goal
        guess = functools.partial(self._kind, scope)
        types = Signature(node, schema, given, wanted, named, guess, self.lacking).types()
        if silent and not free and any(made.sequence and made.elem in FLOATS for made in types.makes):
            silent, wanted = False, self.goal  # there is no Cast of a sequence
            types = Signature(node, schema, given, self.goal, named, guess, self.lacking).types()
        for i, value in enumerate(inputs):
            if value is not None:
                scope.read(node.input, i, value, 0 if node.op_type in MEASURES else types.reads[i])
        if types.names:
            name_type(node, types.names)
        if wanted == TensorProto.DOUBLE:
            compute_in_double(node, schema)
            if any(made.elem in FLOATS and made.elem != wanted for made in types.makes):
                self.narrowed.append(in_words(node))
        for i, made in enumerate(types.makes):
            if node.output[i]:
                rounded = made.elem if made.rounded else 0
                scope.make(
                    node.output[i], self.goal if rounded else made.elem, silent=silent, sequence=made.sequence,
                    place=place, output=i, free=free, may=nameable(schema), rounded=rounded,
                )  # fmt: skip

    def _is_free(self, node: Any, named: int | None, given: Sequence[Given]) -> Any:
        """Return the node if it can make its result in any float type; else None.

        A Cast from one float type to another is not such a node, since it must round to the type in the file.
        """
        name, default, like = NAMED.get(node.op_type, ("", 0, None))
        if not name or like is not None or (named or default) not in FLOATS or any(g.elem in FLOATS for g in given):
            return None
        return None if any(attribute.ref_attr_name for attribute in node.attribute) else node

    # Graphs inside nodes

    def _holder(self, scope: Scope, place: int, node: Any) -> None:
        """Record an If, Loop or Scan; its floats are silent if all values that it and its graphs read are silent."""
        inputs = [scope.find(name) for name in node.input]
        graphs = list(graphs_of(node))
        branches = node.op_type == "If"
        seen = [value for value in inputs if value is not None]
        if not branches:
            around = {n for n in reads_of([node]) if n} - {n for _, g in graphs for n in _own(g)}
            seen += [value for value in map(scope.find, sorted(around)) if value is not None]
        silent = not scope.conditional and all(value.silent for value in seen)
        data = self.goal if self.goal in nameable(_schema(node.op_type, scope.opset)) else TensorProto.FLOAT
        for i, value in enumerate(inputs):
            if value is not None and value.elem in FLOATS:
                scope.read(node.input, i, value, value.elem if silent else data)
            elif value is not None:
                scope.read(node.input, i, value)
        results: list[list[Value]] = []
        for name, graph in graphs:
            conditional = scope.conditional or (branches and not silent)
            inner = Scope(graph, f"{scope.path}/{place}.{name}", scope.opset, scope, conditional, scope.passed)
            given = {e.name: v for e, v in zip(graph.input, inputs, strict=False) if v is not None}
            self._graph(inner, given, silent, data)
            self._nodes(inner)
            results.append([inner.find(entry.name) or inner.make(entry.name, 0) for entry in graph.output])
        silent = silent and all(value.silent for values in results for value in values)
        for (_, graph), inner, values in zip(graphs, scope.inner[-len(graphs) :], results, strict=True):
            for i, value in enumerate(values):
                elem = 0 if value.elem not in FLOATS else value.elem if silent else data
                inner.read(graph.output, i, value, elem)
                describe(graph.output[i], elem)
        made = results[0][1:] if node.op_type == "Loop" else results[0]  # without its condition
        if len(made) < len(node.output) or any(len(values) != len(results[0]) for values in results):
            raise RuleNotApplicable("its graphs have different numbers of outputs")
        rounded = data if data != self.goal and not silent else 0
        for i, (name, value) in enumerate(zip(node.output, made, strict=False)):
            floats = value.elem in FLOATS and not silent
            elem = self.goal if floats else value.elem
            if name:
                scope.make(
                    name, data if value.sequence and floats else elem, silent=silent, sequence=value.sequence,
                    place=place, output=i, rounded=rounded if floats and not value.sequence else 0,
                )  # fmt: skip

    # Functions

    def _call(self, scope: Scope, place: int, node: Any, key: tuple[str, str, str]) -> None:
        inputs = [scope.find(name) for name in node.input]
        passed = {}
        for attribute in node.attribute:
            outer = scope.passed.get(attribute.ref_attr_name) if attribute.ref_attr_name else attribute
            if outer is not None:
                passed[attribute.name] = outer
        variant = self.functions.variant(key, inputs, passed, scope.conditional)
        node.op_type = variant.name
        for i, value in enumerate(inputs):
            if value is not None:
                scope.read(node.input, i, value, variant.reads[i])
        for i, name in enumerate(node.output):
            made, silent = variant.makes[i]
            if name:
                scope.make(name, made.elem, silent=silent, sequence=made.sequence, place=place, output=i)


def _own(graph: Any) -> set[str]:
    """Return the names of all values that are made in a graph, or in the graphs inside its nodes."""
    found = {entry.name for entry in (*graph.input, *graph.initializer)}
    for node in graph.node:
        found.update(node.output)
        for _, inner in graphs_of(node):
            found |= _own(inner)
    return found


@functools.cache
def _schema(operator: str, opset: int) -> Any:
    try:
        return onnx.defs.get_schema(operator, opset, "")
    except onnx.defs.SchemaError:
        raise RuleNotApplicable(f"opset {opset} has no such operator") from None
