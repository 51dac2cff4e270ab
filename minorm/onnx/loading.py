"""`load`: an ONNX model in, a Module that runs, differentiates and trains out."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from minorm.autograd import no_grad
from minorm.nn import Module, Parameter
from minorm.onnx import branch, registry, roles, tensors, validation, versions
from minorm.onnx.errors import LoadError, Unsupported
from minorm.onnx.flattening import Flattener
from minorm.onnx.graph_module import GraphModule, Input, Layer, Step, layer_of, place_layers
from minorm.onnx.reading import Node
from minorm.onnx.tensors import Budget
from minorm.tensor import Tensor

Source = str | os.PathLike[str] | bytes | bytearray | memoryview | Any  # Any: an onnx.ModelProto


def load(source: Source, outputs: Sequence[str] | None = None, max_bytes: int = 2 << 30) -> GraphModule:
    """Read an ONNX model as a Module: `model(*inputs)` gives its output, or a tuple of several.

    source     a path, the file's bytes, or an onnx.ModelProto. Weights may lie in other files next to a path.
    outputs    names of any values of the graph, to cut it there: what lies behind is left out, and so are the inputs
               that only that needs. Default: the graph's outputs
    max_bytes  what the file, its weights together, or one intermediate result that the file asks for may take

    `model(*inputs)` takes the inputs that are no initializers, in the order of the graph. Every floating initializer
    through which gradient can reach an output is a Parameter under its name; the running statistics of a
    BatchNormalization are buffers under theirs. Each layer is in the mode its node says, train() and eval() switch
    all but those that are frozen, and those that were frozen when minorm exported them are so again.

    Raises LoadError (a ValueError): for a damaged file, or one error that lists every node that cannot be imported.
    """
    if isinstance(max_bytes, bool) or not isinstance(max_bytes, int) or max_bytes < 1:
        raise ValueError(f"load: max_bytes is {max_bytes!r}; expected a number of bytes, at least 1")
    model, folder = _parse(source, max_bytes)
    budget = Budget(max_bytes)
    opsets = validation.opsets_of(model)
    initializers = _initializers(model, folder, budget)
    inputs = [_input(entry) for entry in model.graph.input if entry.name not in initializers]
    nodes = list(Flattener(model, opsets, folder, budget).nodes())
    ends = _outputs(model, outputs)
    validation.check_order(nodes, _unique([entry.name for entry in inputs], initializers), ends)
    nodes = validation.needed(nodes, ends)
    if outputs is not None:
        read = {name for node in nodes for name in node.inputs} | set(ends)
        inputs = [entry for entry in inputs if entry.name in read]
    _resolve(nodes)
    for node in nodes:
        validation.check_node(node)
    validation.check_with_onnx(model)
    ours = model.producer_name == "minorm"
    kept = {f"{name}.updated": name for name in initializers if ours}
    updated = {kept[entry.name]: entry.name for entry in model.graph.output if entry.name in kept and outputs is None}
    return _Builder(nodes, inputs, ends, initializers, updated, budget).build(_frozen(model), ours)


# The file


def _parse(source: Source, max_bytes: int) -> tuple[Any, str | None]:
    """The model, and the folder where its weights may lie if they lie outside."""
    if isinstance(source, onnx.ModelProto):
        return source, None
    folder = None
    if isinstance(source, (bytes, bytearray, memoryview)):
        contents = bytes(source)
        if len(contents) > max_bytes:
            raise LoadError(f"load: the model takes {len(contents)} bytes, more than max_bytes={max_bytes}")
    elif isinstance(source, (str, os.PathLike)):
        path = os.fspath(source)
        if os.path.exists(path) and not os.path.isfile(path):
            raise LoadError(f"load: {path!r} is no ordinary file")
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > max_bytes:
                raise LoadError(f"load: {path!r} takes {size} bytes, more than max_bytes={max_bytes}")
            contents = file.read(max_bytes + 1)
        folder = os.path.dirname(os.path.abspath(path))
    else:
        raise TypeError(f"load: source is {type(source).__name__}; expected a path, bytes or an onnx.ModelProto")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(contents)
    except Exception as error:  # DecodeError of protobuf, a package without type hints
        raise LoadError(f"load: this is no ONNX model, or a damaged one: {error}") from error
    return model, folder


def _initializers(model: Any, folder: str | None, budget: Budget) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for tensor in model.graph.initializer:
        if not tensor.name or tensor.name in found:
            raise LoadError(f"load: two initializers are called {tensor.name!r}; expected every name once, and not ''")
        found[tensor.name] = tensors.read(tensor, f"initializer {tensor.name!r}", folder, budget)
    return found


def _input(entry: Any) -> Input:
    kind = entry.type.WhichOneof("value")
    if kind != "tensor_type":
        raise LoadError(f"load: input {entry.name!r} is a {kind or 'value without type'}; minorm reads tensors alone")
    dtype = tensors.element_type(entry.type.tensor_type.elem_type, f"input {entry.name!r}")
    if not entry.type.tensor_type.HasField("shape"):
        return Input(entry.name, dtype, None)
    lengths: list[int | str] = []
    for length in entry.type.tensor_type.shape.dim:
        fixed = length.WhichOneof("value") == "dim_value"
        if fixed and length.dim_value < 0:
            raise LoadError(f"load: input {entry.name!r} declares a length of {length.dim_value}")
        lengths.append(length.dim_value if fixed else length.dim_param or "?")
    return Input(entry.name, dtype, tuple(lengths))


def _outputs(model: Any, asked: Sequence[str] | None) -> list[str]:
    if asked is None:
        names = [entry.name for entry in model.graph.output]
        if not names:
            raise LoadError("load: the graph has no outputs")
        return names
    if isinstance(asked, str) or not asked:
        raise TypeError(f"load: outputs is {asked!r}; expected a list of names of values of the graph")
    return list(asked)


def _unique(inputs: Iterable[str], initializers: Mapping[str, Any]) -> list[str]:
    names = [*inputs, *initializers]
    if len(set(names)) != len(names) or "" in names:
        double = next(name for name in names if not name or names.count(name) > 1)
        raise LoadError(f"load: two inputs of the graph are called {double!r}; expected every name once, and not ''")
    return names


def _frozen(model: Any) -> list[str]:
    """The paths of the modules that were frozen when minorm exported the model."""
    for entry in model.metadata_props:
        if entry.key == "minorm.frozen" and model.producer_name == "minorm":
            try:
                paths = json.loads(entry.value)
            except (ValueError, RecursionError):
                paths = None
            if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
                raise LoadError(f"load: metadata minorm.frozen is {entry.value[:80]!r}; expected a list of names")
            return paths
    return []


# The nodes


def _resolve(nodes: Sequence[Node]) -> None:
    """Find each node's version and reader; one error lists all that have none."""
    missing = []
    for node in nodes:
        why = ""
        try:
            if node.domain:
                raise LookupError(f"domain {node.domain!r} is not ONNX's own, nor a function of the model")
            if not node.opset:
                raise LookupError("no opset of its domain is imported")
            node.since = versions.resolve(node.operator, node.opset)
            registry.reader(node.operator, node.opset)
        except LookupError as error:
            why = str(error.args[0])
            if not node.since and not node.domain and onnx.defs.has(node.operator):
                node.since = _published(node)
        if any(isinstance(v, onnx.GraphProto) for v in node.attributes.values()):
            why = "it holds a graph of its own, which minorm does not read"
        if why:
            missing.append(f"{node}: {why}")
    _refuse(missing)


def _published(node: Node) -> int:
    try:
        return int(onnx.defs.get_schema(node.operator, node.opset, "").since_version)
    except onnx.defs.SchemaError:
        return 0


def _refuse(missing: Sequence[str]) -> None:
    if missing:
        raise LoadError(f"load: {len(missing)} node(s) cannot be imported:\n  " + "\n  ".join(missing))


class _Builder:
    """Calls the readers in order; what depends on constants alone is computed now, the rest becomes steps."""

    def __init__(
        self,
        nodes: Sequence[Node],
        inputs: Sequence[Input],
        outputs: Sequence[str],
        initializers: Mapping[str, Any],
        updated: Mapping[str, str],
        budget: Budget,
    ) -> None:
        self.nodes, self.inputs, self.outputs, self.budget = nodes, inputs, outputs, budget
        self.used = frozenset(
            name for node in nodes for name in (*node.inputs, *(guard for guard, _ in node.guards))
        ) | set(outputs)
        for node in nodes:
            node.used = self.used
        self.roles = roles.assign(nodes, initializers, outputs, updated)
        self.slots: dict[str, int] = {}
        self.steps: list[Step] = []
        self.layers: list[tuple[Node, Module]] = []
        trained = self.roles.parameters
        self.parameters = {name: Parameter(array) for name, array in initializers.items() if name in trained}
        self.constants: dict[str, Any] = {n: a for n, a in initializers.items() if n not in self.parameters}
        self.initializers = initializers
        self.buffers = {
            name: Tensor(np.array(initializers[origin]))
            for name, origin in self.roles.buffers.items()
            if origin in initializers
        }
        for name in self.buffers:
            self.constants.pop(name, None)
        self.shapes = set(self.constants)  # values that depend on shapes and constants alone

    def build(self, frozen: Sequence[str], ours: bool) -> GraphModule:
        """The finished module."""
        missing = []
        for entry in self.inputs:
            self._slot(entry.name)
        for node in self.nodes:
            node.constants = self.constants
            try:
                self._add(node)
            except Unsupported as error:
                missing.append(f"{node}: {error}")
            except LoadError:
                raise
            except ValueError as error:
                raise LoadError(f"load: {node}: {error}") from error
        _refuse(missing)
        for name in self.outputs:
            self._slot(name)
        constants = {name: Tensor(self.constants[name]) for name in self.slots if name in self.constants}
        model = GraphModule(
            self.inputs, self.outputs, self.steps, self.slots, {**self.parameters, **self.buffers}, constants
        )
        place_layers(model, [(_path(node, ours), layer) for node, layer in self.layers], self.parameters)
        _set_modes(model, self.layers, frozen, self.parameters, trains=bool(self.roles.updates))
        for name, new in self.roles.updates.items():
            model.updates.append((self.buffers[name], self.slots[new], layer_of(model, name)))
        for name in self.roles.snapshots:
            model.snapshots.append((self.buffers[name], self.slots[_before(name)]))
        return model

    def _add(self, node: Node) -> None:
        for name in node.statistics:
            if name not in self.buffers:  # it comes out of a Constant node, whose array is there only now
                self.buffers[name] = Tensor(np.array(self.constants[self.roles.buffers[name]]))
                self.constants.pop(name, None)
        guards = [(name, value) for name, value in node.guards if name not in self.constants]
        if any(bool(self.constants[name]) != value for name, value in node.guards if name in self.constants):
            return  # in a branch that is never taken
        names = [_before(name) if name in self.roles.snapshots else name for name in node.inputs]
        if node.operator == "If" and names[0] in self.constants:
            names = branch.without_the_other(names, bool(self.constants[names[0]]))
        for place, name in zip(roles.STATISTICS.get(node.operator, ()), node.statistics, strict=False):
            names[place] = name
        operation = registry.READERS[node.operator, node.since].rule(node)
        known = not isinstance(operation, Module)
        fixed = known and not guards and all(name in self.constants for name in names if name)
        if fixed and self._compute(node, operation, names):
            return
        read = [name for name in (*names, *(guard for guard, _ in guards)) if name]
        silent = known and (node.operator in ("Shape", "Size") or all(name in self.shapes for name in read))
        if silent:
            self.shapes.update(node.outputs)
        inputs = [self._slot(name) if name else None for name in names]
        outputs = [self._slot(name) if name in self.used else None for name in node.outputs]
        self.steps.append(
            Step(operation, inputs, outputs, str(node), silent, [(self._slot(name), value) for name, value in guards])
        )
        if isinstance(operation, Module):
            self.layers.append((node, operation))
        if isinstance(operation, Layer):
            operation.uses = [self.parameters[name] for name in names if name in self.parameters]

    def _slot(self, name: str) -> int:
        return self.slots.setdefault(name, len(self.slots))

    def _compute(self, node: Node, operation: Any, names: Sequence[str]) -> bool:
        """A node that depends on constants alone, computed now; False where the result is no Tensor but a sequence."""
        values: list[Any] = [Tensor(self.constants[name]) if name else None for name in names]
        first = len(values)
        values += [None] * len(node.outputs)
        step = Step(operation, list(range(first)), list(range(first, len(values))), str(node), True)
        try:
            with no_grad(), np.errstate(all="ignore"):
                step.run(values)
        except ValueError as error:
            raise LoadError(f"load: {error}") from error
        if any(isinstance(value, list) for value in values[first:]):
            return False
        for name, value in zip(node.outputs, values[first:], strict=True):
            if name in self.used and value is not None:
                self.budget.take(value.data.nbytes, f"the result of {node}")
                self.constants[name] = value.data
                self.shapes.add(name)
        return True


def _before(name: str) -> str:
    """What a buffer that its layer changes was before, for the other nodes."""
    return f"{name} before"


def _path(node: Node, ours: bool) -> str:
    """Where a layer is put: what its tensors' names begin with, or the module it was exported from, or its name."""
    prefixes = {name.rpartition(".")[0] for name in (*node.statistics, *node.inputs[1:3]) if name}
    if len(prefixes) == 1 and (prefix := prefixes.pop()):
        return prefix
    if ours and _scope(node):
        return _scope(node)
    return node.name.replace(".", "_") or f"{node.operator}_{next(filter(None, node.outputs), '')}".replace(".", "_")


def _set_modes(
    model: GraphModule,
    layers: Sequence[tuple[Node, Module]],
    frozen: Sequence[str],
    parameters: Mapping[str, Parameter],
    trains: bool,
) -> None:
    """Each layer is in the mode its reader gave it, and the graph trains if one of them does; then freeze."""
    modes = [(layer, layer.training) for _, layer in layers]
    model.train(trains or any(mode for _, mode in modes))
    for layer, mode in modes:
        layer.training = mode
    for path, module in model.named_modules():
        module.frozen = path in frozen
    for node, layer in layers:
        layer.frozen |= _scope(node) in frozen
    for name, parameter in parameters.items():
        parameter.requires_grad = name.rpartition(".")[0] not in frozen


def _scope(node: Node) -> str:
    """The path of the module that minorm exported the node from."""
    return node.name.rpartition("/")[0]
