"""`fuse_norms`: replaces a norm that a graph writes as several nodes by ONNX's one operator for this norm.

    GroupNorm    GroupNormalization    from opset 21 on (18 has one scale a group, and is withdrawn)
    LayerNorm    LayerNormalization    from opset 17 on
    RMSNorm      RMSNormalization      from opset 23 on

The norms are those that `load` recognises (loading/patterns.py). A layer can check shapes when it runs, but this module
needs shapes from onnx's shape inference. If they are unknown, the nodes stay.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from minorm.devices import dtypes
from minorm.onnx.conversion import describing
from minorm.onnx.conversion.rewriting import check_node, names_of, reads_of
from minorm.onnx.graph import kinds, tensors, versions
from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.lengths import length_of
from minorm.onnx.graph.names import drop, refill
from minorm.onnx.graph.node_rewriter import Kind, graphs_of, is_node
from minorm.onnx.graph.reading import Node, attribute_values
from minorm.onnx.graph.tensors import Budget
from minorm.onnx.loading import patterns, recognition
from minorm.onnx.loading.formulas import Norm
from minorm.onnx.loading.signatures import opset_table
from minorm.onnx.loading.weights import Origin
from minorm.onnx.loading.wiring import SMALL, Held, Wiring


@dataclass
class Fusion:
    """The result of the fusion.

    made    the names of the new nodes
    left    the name of the last node of a norm that was not fused -> the reason
    """

    made: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)


def fuse(model: onnx.ModelProto) -> None:
    """Fuse the norms for `export`, and warn about norms that stay as several nodes."""
    left = fuse_norms(model).left
    if left:
        lines = "".join(f"\n  {name}: {why}" for name, why in left.items())
        warnings.warn(f"export: {len(left)} norm(s) were left unchanged:{lines}", stacklevel=6)


def fuse_norms(model: onnx.ModelProto) -> Fusion:
    """Write each recognised norm of the main graph as one node, in place; functions and branches do not change.

    Initializers keep their names and elements; an initializer with a shape such as (C, 1, 1) becomes a vector. An
    initializer without elements counts as a weight with unknown contents.
    """
    graph, found = model.graph, Fusion()
    opset = opset_table(model.opset_import, "the model").get("", 0)
    nodes = _nodes(model, opset)
    norms = list(patterns.find([node for node, _ in nodes], _wiring(model, [node for node, _ in nodes])))
    if not norms:
        return found
    known = describing.kinds(describing.skeleton(model)).get("", {})
    protos = {id(node): proto for node, proto in nodes}
    before = reads_of(graph.node)
    fuser = _Fuser(model, known, opset)
    put: dict[int, list[Any]] = {}  # id of a node to remove -> the nodes in its place
    for norm in norms:
        last = protos[id(norm.nodes[-1])]
        try:
            new = fuser.write(norm, last)
        except RuleNotApplicable as reason:
            found.left[last.name or norm.result] = str(reason)
            continue
        put |= {id(protos[id(node)]): [] for node in norm.nodes}
        put[id(last)] = new
        found.made.append(new[-1].name or norm.result)
    _replace(graph, put)
    _prune(graph, before)
    return found


def _nodes(model: Any, opset: int) -> list[tuple[Node, Any]]:
    """Return the nodes of the graph in the form that the patterns read.

    A node that no pattern may match gets the domain "another".
    """
    functions = {(f.domain, f.name) for f in model.functions}
    found = []
    for proto in model.graph.node:
        foreign = not is_node(proto) or (proto.domain, proto.op_type) in functions or bool(list(graphs_of(proto)))
        given = {} if foreign else {a.name: a for a in proto.attribute}
        values = attribute_values(given, f"node {proto.name!r}", None, Budget())
        domain, names = "another" if foreign else "", (tuple(proto.input), tuple(proto.output))
        node = Node(proto.op_type, domain, proto.name, opset, *names, values)
        try:
            node.since = 0 if foreign else versions.resolve(proto.op_type, opset)
        except LookupError:
            node.domain = "another"
        if node.since:
            check_node(proto, onnx.defs.get_schema(proto.op_type, node.since, ""))
        found.append((node, proto))
    return found


def _wiring(model: Any, nodes: Sequence[Node]) -> Wiring:
    graph = model.graph
    arrays = {tensor.name: array for tensor in graph.initializer if (array := _array(tensor)) is not None}
    ends = {entry.name for entry in graph.output}
    for proto in graph.node:
        for _, inner in graphs_of(proto):
            ends |= reads_of(inner.node) | {entry.name for entry in inner.output}
    declared = {name: array.dtype for name, array in arrays.items()}
    for entry in graph.input:
        dtype = tensors.DTYPES.get(entry.type.tensor_type.elem_type)
        if dtype is not None:
            declared.setdefault(entry.name, dtype)
    types = kinds.types([node for node in nodes if not node.domain], declared)
    learned = recognition.learned(Origin.of(model))
    return Wiring(nodes, ends, arrays, learned, recognition.ranks_of(model), types)


CONTENTS = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data")


def _array(tensor: Any) -> Any:
    """Return the array of a small initializer, NaNs for a large initializer of floats, and None otherwise."""
    filled = tensor.HasField("raw_data") or any(len(getattr(tensor, field)) for field in CONTENTS)
    if math.prod(tensor.dims) <= SMALL and filled and tensor.data_location != TensorProto.EXTERNAL:
        return tensors.read(tensor, f"initializer {tensor.name!r}", None, Budget())
    dtype = tensors.DTYPES.get(tensor.data_type)
    if dtype is None or not dtypes.is_float(dtype):
        return None
    return np.broadcast_to(np.array(np.nan, dtype), tuple(tensor.dims))


class _Fuser:
    """Writes norms as nodes."""

    def __init__(self, model: Any, known: Mapping[str, Kind], opset: int) -> None:
        self.graph, self.known, self.opset = model.graph, known, opset
        self.taken = set(names_of(model))
        self.initializers = {tensor.name: tensor for tensor in model.graph.initializer}
        self.fixed = {entry.name for entry in model.graph.input}  # a caller of the model may set these

    def write(self, norm: Norm, last: Any) -> list[Any]:
        """Return the nodes that replace a norm; raise RuleNotApplicable if they might compute something else."""
        operator, since = recognition.OPERATORS[norm.kind]
        if self.opset < since:
            raise RuleNotApplicable(
                f"{operator} of this form exists from opset {since} on; the model's opset is {self.opset}"
            )
        kind = self._kind(norm.x)
        assert kind.shape is not None
        dtype = tensors.DTYPES.get(kind.elem)
        if dtype is None or not dtypes.is_float(dtype) or dtype == dtypes.float64:
            raise RuleNotApplicable(
                f"{operator} computes in float32, and {norm.x!r} is {dtype or 'of an unknown type'}"
            )
        if norm.kind == "GroupNorm":
            size: tuple[int, ...] = (self._channels(norm, kind.shape),)
            attributes: dict[str, Any] = {"num_groups": norm.groups[1]}
        else:
            size = self._tail(norm, kind.shape)
            attributes = {"axis": -len(norm.axes)}
        before: list[Any] = []
        given = [self._parameter(norm.weight, size, kind.elem, "ones", before)]
        if norm.kind == "GroupNorm" or norm.bias is not None:
            given.append(self._parameter(norm.bias, size, kind.elem, "zeros", before))
        node = helper.make_node(
            operator, [norm.x, *given], [norm.result], name=last.name, epsilon=norm.eps, **attributes
        )
        node.metadata_props.extend(last.metadata_props)
        return [*before, node]

    def _kind(self, name: str) -> Kind:
        kind = self.known.get(name, Kind())
        entry = next((entry for entry in self.graph.input if entry.name == name), None)
        if kind.shape is None and entry is not None and entry.type.tensor_type.HasField("shape"):
            dims = entry.type.tensor_type.shape.dim
            shape = tuple(None if (n := length_of(dim)) == "" else n for dim in dims)
            kind = Kind(entry.type.tensor_type.elem_type, shape)
        if kind.shape is None:
            raise RuleNotApplicable(f"the number of axes of {name!r} is not known")
        return kind

    def _channels(self, norm: Norm, shape: Sequence[Any]) -> int:
        """Return the number of channels of x; raise an error unless the nodes surely split channels into groups."""
        target = shape if norm.shape is None else norm.shape
        size = shape[1] if len(shape) > 2 else None
        same = len(target) == len(shape) and all(
            n in (0, patterns.BEHIND, m) for n, m in zip(target, shape, strict=True)
        )
        if not isinstance(size, int) or size < 1 or size % norm.groups[1] or not same:
            raise RuleNotApplicable(
                f"{norm.x!r} has the shape {shape}; the nodes may not split its channels into groups"
            )
        rest, inner = norm.groups[2:], shape[1:]
        whole = all(isinstance(n, int) for n in inner) and math.prod(inner) == norm.groups[1] * math.prod(rest)
        if norm.groups[0] not in (0, shape[0]) or not (whole or rest == (patterns.BEHIND,)):
            raise RuleNotApplicable(
                f"the groups of {norm.x!r}, of shape {shape}, may not have the lengths {norm.groups}"
            )
        channels = (size, *(1,) * (len(shape) - 2))
        if norm.per_group and norm.groups[1] != size:
            raise RuleNotApplicable(
                f"its weights are one number for each of {norm.groups[1]} groups, not of {size} channels"
            )
        for held in (norm.weight, norm.bias) if not norm.per_group else ():
            if held is not None and held.shape not in (channels, (1, *channels)):
                raise RuleNotApplicable(
                    f"{held.name!r} has the shape {held.shape}; expected one number for each of {size} channels"
                )
        return size

    def _tail(self, norm: Norm, shape: Sequence[Any]) -> tuple[int, ...]:
        """Return the lengths of the norm's axes.

        Raise an error if these axes are not the last axes, or if the weights do not fit the lengths.
        """
        count, rank = len(norm.axes), len(shape)
        tail = tuple(shape[rank - count :])
        if sorted(axis % rank for axis in norm.axes if -rank <= axis < rank) != list(range(rank - count, rank)):
            raise RuleNotApplicable(f"axes {norm.axes} are not the last of the {rank} axes of {norm.x!r}")
        if not all(isinstance(n, int) for n in tail):
            raise RuleNotApplicable(f"the lengths of the last axes of {norm.x!r} are not known")
        if any(held is not None and held.shape != tail for held in (norm.weight, norm.bias)):
            raise RuleNotApplicable(
                f"the weight or the bias does not have the shape {tail} of the last axes of {norm.x!r}"
            )
        return tail

    def _parameter(self, held: Held | None, shape: tuple[int, ...], elem: int, absent: str, before: list[Any]) -> str:
        """Return the name of a weight or bias with this shape.

        If the norm has no such parameter, its value is a new Constant of ones or zeros (`absent`). If the parameter has
        another shape, it is reshaped. The nodes for this are added to `before`.
        """
        if held is None:
            array = (np.ones if absent == "ones" else np.zeros)(shape, tensors.DTYPES[elem])
            name = self._fresh(absent)
            tensor = numpy_helper.from_array(array, name)
            before.append(helper.make_node("Constant", [], [name], name=self._fresh(f"{name}_node"), value=tensor))
            return name
        tensor = self.initializers.get(held.name)
        if tensor is not None and tuple(tensor.dims) == shape:
            return held.name
        readers = sum(held.name in node.input for node in self.graph.node)
        if tensor is not None and readers == 1 and tuple(tensor.dims) == held.shape and held.name not in self.fixed:
            del tensor.dims[:]
            tensor.dims.extend(shape)
            return held.name
        name, target = self._fresh(f"{held.name}_vector"), self._fresh("shape")
        lengths = numpy_helper.from_array(np.array(shape, np.int64), target)
        before.append(helper.make_node("Constant", [], [target], name=self._fresh(f"{target}_node"), value=lengths))
        before.append(helper.make_node("Reshape", [held.name, target], [name], name=self._fresh(f"{name}_node")))
        return name

    def _fresh(self, hint: str) -> str:
        name, number = hint, 1
        while name in self.taken:
            number += 1
            name = f"{hint}_{number}"
        self.taken.add(name)
        return name


def _replace(graph: Any, put: Mapping[int, list[Any]]) -> None:
    refill(graph.node, (new for node in graph.node for new in put.get(id(node), [node])))


def _prune(graph: Any, before: set[str]) -> None:
    """Remove nodes and initializers that no node reads any more, and the descriptions of values that are gone."""
    ends = {entry.name for entry in graph.output}
    readers = Counter(ends)
    for node in graph.node:
        readers.update(reads_of([node]))
    for index in range(len(graph.node) - 1, -1, -1):
        node = graph.node[index]
        if before.intersection(node.output) and not any(readers[name] for name in node.output):
            readers.subtract(reads_of([node]))
            del graph.node[index]
    read = {name for name, count in readers.items() if count}
    given = read.union(entry.name for entry in graph.input)
    drop(graph.initializer, lambda tensor: tensor.name in before and tensor.name not in given)
    there = read.union(name for node in graph.node for name in node.output)
    drop(graph.value_info, lambda entry: entry.name not in there)
