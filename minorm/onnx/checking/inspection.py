"""Inspect a file: its nodes and their parameters, whether minorm runs and trains each node, and its normalizations.

Files that `load` refuses are inspected too; then the result has the reason for each node that minorm cannot run.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from minorm.devices import dtypes
from minorm.onnx.checking import absent, duplicate_weights, layers, lint
from minorm.onnx.checking.layers import LayerRow
from minorm.onnx.checking.profiling import Seen
from minorm.onnx.graph import encoding, registry, tensors, versions
from minorm.onnx.graph.errors import LoadError, Unsupported
from minorm.onnx.graph.lengths import length_of
from minorm.onnx.graph.node_layers import NormLayer
from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.tensors import Budget
from minorm.onnx.graph.weights_folder import Folder
from minorm.onnx.loading import resolving, validation
from minorm.onnx.loading.flattening import Flattener
from minorm.onnx.loading.graph_inputs import Input
from minorm.onnx.loading.graph_module import GraphModule
from minorm.onnx.loading.judging.judge import ROLES
from minorm.onnx.loading.judging.naming import Origin
from minorm.onnx.loading.load import load_whole
from minorm.onnx.loading.signatures import opset_table
from minorm.serialization import limits


@dataclass(frozen=True)
class Row:
    """Describes one node; `why` says why minorm does not run the node.

    `since` is the version of the node's operator, or 0 if the operator is unknown.
    """

    node: str
    operator: str
    since: int
    runs: bool
    trains: bool  # True if gradient flows through it, to its parameters or to earlier nodes
    parameters: int  # the count of numbers in parameters that no earlier node reads
    why: str = ""
    values: tuple[str, ...] = ()  # the names of its results


@dataclass(frozen=True)
class Weight:
    """Describes a Parameter that `load` makes: name, shape, the operators that read it, and the number of elements."""

    name: str
    shape: tuple[int, ...]
    readers: tuple[str, ...]
    count: int


@dataclass(frozen=True)
class TensorRole:
    """Describes a tensor of the file: its role in `load` (a Parameter, a buffer or a constant) and the reason."""

    name: str
    role: str
    shape: tuple[int, ...]
    why: str


@dataclass(frozen=True)
class Inspection:
    """Holds a file's facts, nodes and normalizations. `module` is the loaded graph with all outputs of the file."""

    facts: dict[str, Any]
    rows: list[Row]
    norms: list[lint.Norm]
    proto: onnx.ModelProto
    inputs: list[Input]  # empty, if some are not tensors of minorm's types
    module: GraphModule | None
    error: str = ""  # the reason why `load` refused the file
    unsupported: list[Row] = field(default_factory=list)
    cuts: tuple[str, ...] = ()  # values at which `load(outputs=[...])` can cut, in front of unsupported nodes
    weights: list[Weight] = field(default_factory=list)  # tensors that would train
    tensors: list[TensorRole] = field(default_factory=list)  # all tensors; the ones that train come first
    folded: list[str] = field(default_factory=list)  # convolutions with a folded BatchNorm
    written_out: list[str] = field(default_factory=list)  # BatchNorms written as a product and a sum
    quantized: int = 0  # the count of integer weights, if there are no others
    twice: dict[str, str] = field(default_factory=dict)  # copies of weights -> the original
    merged: list[str] = field(default_factory=list)  # weights that several modules share
    nodes: list[Node] = field(default_factory=list)  # the nodes of `rows`

    def layers(self, seen: Seen) -> list[LayerRow]:
        """Return the layers of the model. `seen` has the results of a run (profiling.py); it may be empty."""
        if self.module is not None:
            held = layers.sizes(self.module)
        else:
            floats = {t.name: math.prod(t.dims) for t in self.proto.graph.initializer if _is_float(t.data_type)}
            held = {str(name): ("fixed", size, False) for name, size in floats.items() if size > 1}
        known = {tensor.name for tensor in self.proto.graph.initializer}
        inputs = [entry.name for entry in self.proto.graph.input if entry.name not in known]
        return layers.of(self.nodes, inputs, held, seen)


def inspect(
    path: str | os.PathLike[str], max_bytes: int = limits.ONNX, external_root: Any = None, operation: str = "check"
) -> Inspection:
    """Inspect an ONNX file; raise LoadError if the file is not an ONNX file.

    max_bytes, external_root    as in `load`
    operation                   the name of the caller, for errors
    """
    proto, folder = _read(path, max_bytes, operation), Folder.of(path, external_root)
    module, refused = None, LoadError("")
    try:
        module = load_whole(proto, max_bytes, folder)
    except LoadError as reason:
        refused = reason
    nodes = _nodes(proto, folder, max_bytes)
    find = _Arrays(proto, nodes, folder, max_bytes)
    rows = _rows(nodes, proto, module, refused.unsupported, find)
    unsupported = [row for row in rows if row.why]
    norms = _norms(nodes, proto, find, module)
    facts, weights = _facts(proto, path, module), _weights(nodes, module)
    trained = {} if module is None else {name: p.numpy() for name, p in module.named_parameters()}
    origin = Origin.of(proto)
    return Inspection(
        facts, rows, norms, proto, _inputs(proto), module,
        error=str(refused).removeprefix("load: "), unsupported=unsupported, cuts=refused.cuts, weights=weights,
        tensors=_tensor_roles(proto, nodes, module),
        folded=absent.folded(proto), written_out=absent.written_out(proto),
        quantized=0 if module is None or weights else absent.quantized(proto),
        twice=duplicate_weights.twice(trained, origin),
        merged=duplicate_weights.merged(proto, trained, origin), nodes=nodes,
    )  # fmt: skip


def _read(path: str | os.PathLike[str], max_bytes: int, operation: str) -> onnx.ModelProto:
    proto = encoding.read(path, operation, max_bytes)
    if not proto.graph.node and not proto.graph.output:
        raise LoadError(f"{operation}: {os.fspath(path)!r} is no ONNX model: it has no graph")
    return proto


def _nodes(proto: onnx.ModelProto, folder: str, max_bytes: int) -> list[Node]:
    """Return the nodes after functions and branches are flattened, as in `load`.

    If flattening fails, return the nodes of the main graph, as they are in the file.
    """
    try:
        opsets = opset_table(proto.opset_import, "the model") or {"": 1}
        nodes = Flattener(proto, opsets, folder, Budget(max_bytes)).nodes()
    except LoadError:
        opsets = {_text(entry.domain).replace("ai.onnx", ""): entry.version for entry in proto.opset_import} or {"": 1}
        nodes = []
        for n in proto.graph.node:
            operator, domain, name = map(_text, (n.op_type, n.domain, n.name))
            inputs, outputs = (tuple(map(_text, names)) for names in (n.input, n.output))
            nodes.append(Node(operator, domain, name, opsets.get(domain, 0), inputs, outputs, {}))
    used = frozenset(name for node in nodes for name in node.inputs) | {entry.name for entry in proto.graph.output}
    for node in nodes:
        node.used = used
        try:
            node.since = versions.resolve(node.operator, node.opset) if not node.domain else 0
        except LookupError:
            node.since = resolving.published(node) if onnx.defs.has(node.operator) else 0
    return nodes


class _Arrays:
    """Finds the array of a value that is constant in the file: an initializer, a Constant, or an Identity of these."""

    def __init__(self, proto: onnx.ModelProto, nodes: Sequence[Node], folder: str, max_bytes: int) -> None:
        self.tensors = {tensor.name: tensor for tensor in proto.graph.initializer}
        self.folder, self.max_bytes = folder, max_bytes
        self.made = {n.outputs[0]: n for n in nodes if n.operator in ("Constant", "Identity") and n.outputs}

    def __call__(self, name: str) -> Any:
        for _ in range(8):  # an Identity may follow another
            node = self.made.get(name)
            if node is None:
                break
            if node.operator == "Constant":
                return next((v for v in node.attributes.values() if isinstance(v, np.ndarray)), None)
            name = node.inputs[0] if node.inputs else ""
        if name not in self.tensors:
            return None
        try:
            return tensors.read(self.tensors[name], name, self.folder, Budget(self.max_bytes))
        except LoadError:
            return None


def _rows(
    nodes: Sequence[Node],
    proto: onnx.ModelProto,
    module: GraphModule | None,
    missing: Mapping[tuple[str, ...], str],
    find: _Arrays,
) -> list[Row]:
    floats = {t.name: math.prod(t.dims) for t in proto.graph.initializer if _is_float(t.data_type)}
    parameters = floats if module is None else {name: p.array.size for name, p in module.named_parameters()}
    active = set(parameters) | {e.name for e in proto.graph.input if _is_float(e.type.tensor_type.elem_type)}
    rows, counted = [], set[str]()
    for index, node in enumerate(nodes):
        why = missing.get(node.outputs) or _why_not(node, find, refused=module is None)
        fixed = () if why else validation.fixed_inputs(node)
        trains = not why and any(name in active and place not in fixed for place, name in enumerate(node.inputs))
        if trains:
            active.update(filter(None, node.outputs))
        if node.enters:  # the end of the body stands for the Loop
            continue
        own = [name for name in dict.fromkeys(node.inputs) if name in parameters and name not in counted]
        counted.update(own)
        label = node.name or next(filter(None, node.outputs), str(index))
        operator = f"{node.domain}.{node.operator}" if node.domain else node.operator
        count = sum(parameters[name] for name in own) if trains else 0
        values = tuple(filter(None, node.outputs))
        rows.append(Row(label, operator, node.since, not why, trains, count, why, values))
    return rows


def _text(name: Any) -> str:
    """Return a name of the file as text; protobuf gives bytes for a name that is not UTF-8."""
    return name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else str(name)


def _weights(nodes: Sequence[Node], module: GraphModule | None) -> list[Weight]:
    readers: dict[str, dict[str, None]] = {}
    for node in nodes:
        for name in filter(None, node.inputs):
            readers.setdefault(name, {})[node.operator] = None
    return [
        Weight(name, p.shape, tuple(readers.get(name, ())), p.array.size)
        for name, p in (() if module is None else module.named_parameters())
    ]


def _tensor_roles(proto: onnx.ModelProto, nodes: Sequence[Node], module: GraphModule | None) -> list[TensorRole]:
    verdicts = {} if module is None else module.verdicts
    shapes = {name: tuple(p.shape) for name, p in (() if module is None else module.named_parameters())}
    for node in nodes:
        value = node.attributes.get("value") if node.operator == "Constant" else None
        shapes.setdefault(next(iter(node.outputs), ""), tuple(getattr(value, "shape", ())))
    shapes |= {tensor.name: tuple(tensor.dims) for tensor in proto.graph.initializer}
    found = [TensorRole(name, v.role, shapes.get(name, ()), v.why) for name, v in verdicts.items()]
    return sorted(found, key=lambda tensor: ROLES.index(tensor.role))


def _is_float(kind: int) -> bool:
    dtype = tensors.DTYPES.get(kind)
    return dtype is not None and bool(dtypes.is_float(dtype))


def _why_not(node: Node, find: _Arrays, refused: bool) -> str:
    """Return why minorm cannot run this node; "" if minorm can, or if the node alone does not show the reason.

    refused    True if `load` has refused the file; then the node's reader is tried too
    """
    why = registry.why_not(node.operator, node.domain, node.opset)
    if why or not refused:
        return why
    node.constants = {name: array for name in node.inputs if name and (array := find(name)) is not None}
    try:
        registry.READERS[node.operator, node.since].rule(node)
    except Unsupported as error:
        return str(error)
    except Exception:  # noqa: BLE001  damaged, or it needs more than we know here: load's error says it
        return ""
    return ""


def _norms(nodes: Sequence[Node], proto: onnx.ModelProto, find: _Arrays, module: GraphModule | None) -> list[lint.Norm]:
    written = [] if module is None else [layer for layer in module.modules() if isinstance(layer, NormLayer)]
    parts = {value for layer in written for _, value in layer.how.parts}
    readers: dict[str, set[str]] = {}
    for node in nodes:
        for name in filter(None, node.inputs):
            readers.setdefault(name, set()).add(node.operator)
    outputs = {entry.name for entry in proto.graph.output}
    found = []
    for node in nodes:
        judged = node.operator in lint.OPERATORS and not node.domain and node.since and validation.is_sound(node)
        if judged and node.outputs[0] not in parts:
            label = node.name or next(filter(None, node.outputs), "")
            try:
                found.append(lint.describe(node, label, find, readers, outputs))
            except (KeyError, IndexError, TypeError, ValueError):  # damaged: load says so
                continue
    training = [norm for norm in found if norm.mode == "training"]
    others = sum(norm.mode == "inference" for norm in found)
    for norm in training if others and "minorm.training" not in {entry.key for entry in proto.metadata_props} else ():
        norm.odd.append(f"it trains, while {others} other BatchNormalization(s) do inference")
    return found + ([] if module is None else lint.written(module))


# What the file says about itself


def _inputs(proto: onnx.ModelProto) -> list[Input]:
    known = {tensor.name for tensor in proto.graph.initializer}
    found = []
    for entry in proto.graph.input:
        kind = entry.type.tensor_type
        if entry.name in known:
            continue
        if kind.elem_type not in tensors.DTYPES:
            return []
        shape = ["?" if (n := length_of(dim)) == "" else n for dim in kind.shape.dim]
        found.append(
            Input(entry.name, tensors.DTYPES[kind.elem_type], tuple(shape) if kind.HasField("shape") else None)
        )
    return found


def _facts(proto: onnx.ModelProto, path: str | os.PathLike[str], module: GraphModule | None) -> dict[str, Any]:
    known = {tensor.name for tensor in proto.graph.initializer}
    files = [e.value for t in proto.graph.initializer for e in t.external_data if e.key == "location"]
    outside = {name if isinstance(name, str) else name.decode(errors="replace") for name in files}  # bytes: not UTF-8
    numbers = sum(math.prod(t.dims) for t in proto.graph.initializer)
    opsets = [f"{entry.domain or 'ai.onnx'} {entry.version}" for entry in proto.opset_import]
    return {
        "file": os.fspath(path),
        "bytes": os.path.getsize(path),
        "external": sorted(outside),
        "producer": f"{proto.producer_name} {proto.producer_version}".strip() or "not said",
        "opset": ", ".join(opsets) or "not said",
        "ir_version": proto.ir_version,
        "inputs": [_value(entry) for entry in proto.graph.input if entry.name not in known],
        "outputs": [_value(entry) for entry in proto.graph.output],
        "initializers": len(proto.graph.initializer),
        "numbers": numbers,
        "parameters": None if module is None else sum(p.array.size for p in module.parameters()),
        "frozen": None if module is None else sum(p.array.size for p in module.parameters() if not p.requires_grad),
    }


def _value(entry: Any) -> str:
    """Describe a value in words, such as `x: float32 [batch, 1, 8, 8]`."""
    kind = entry.type.tensor_type
    if not entry.type.HasField("tensor_type"):
        return f"{entry.name}: {entry.type.WhichOneof('value') or 'of an undeclared type'}"
    code, known = kind.elem_type, onnx.TensorProto.DataType
    name = known.Name(code).lower() if code in known.values() else f"element type {code}"
    dtype = str(tensors.DTYPES.get(code) or name)
    shape = ["?" if (n := length_of(dim)) == "" else str(n) for dim in kind.shape.dim]
    return f"{entry.name}: {dtype} [{', '.join(shape)}]" if kind.HasField("shape") else f"{entry.name}: {dtype}"
