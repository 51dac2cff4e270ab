"""From checked nodes to a GraphModule: find the readers, call them in order, put what they return in its place.

What depends on constants alone is computed now; what depends on shapes alone is kept out of the sight of export.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from minorm.autograd import no_grad
from minorm.nn import Module, Parameter
from minorm.onnx.graph import kinds, registry, versions
from minorm.onnx.graph.errors import LoadError, Unsupported
from minorm.onnx.graph.layer import Layer
from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.scope import Scope
from minorm.onnx.graph.tensors import Budget
from minorm.onnx.loading import roles, weights
from minorm.onnx.loading.graph_module import GraphModule, Input, Step, layer_of, place_layers
from minorm.onnx.operators import branch
from minorm.tensor import Tensor


def resolve(nodes: Sequence[Node]) -> None:
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
                node.since = published(node)
        if any(isinstance(v, onnx.GraphProto) for v in node.attributes.values()):
            why = "it holds a graph of its own, which minorm does not read"
        if why:
            missing.append((node, why))
    _refuse(missing)


def published(node: Node) -> int:
    """The since-version of an operator that minorm does not know; 0 where ONNX does not either."""
    try:
        return int(onnx.defs.get_schema(node.operator, node.opset, "").since_version)
    except onnx.defs.SchemaError:
        return 0


def _refuse(missing: Sequence[tuple[Node, str]]) -> None:
    if missing:
        lines = [f"{node}: {why}" for node, why in missing]
        raise LoadError(
            f"load: {len(missing)} node(s) cannot be imported:\n  " + "\n  ".join(lines),
            {node.outputs: why for node, why in missing},
        )


class Builder:
    """Calls the readers in order; what depends on constants alone is computed now, the rest becomes steps."""

    def __init__(
        self,
        nodes: Sequence[Node],
        inputs: Sequence[Input],
        outputs: Sequence[str],
        initializers: Mapping[str, Any],
        updated: Mapping[str, str],
        budget: Budget,
        source: weights.Origin,
        trainable: weights.Trainable = None,
    ) -> None:
        self.nodes, self.inputs, self.outputs, self.budget = nodes, inputs, outputs, budget
        self.ends = [*outputs, *(name for name in updated.values() if name not in set(outputs))]
        self.used = frozenset(
            name for node in nodes for name in (*node.inputs, *(guard for guard, _ in node.guards))
        ) | set(self.ends)
        declared = {entry.name: entry.dtype for entry in inputs}
        types = kinds.types(nodes, {**declared, **{name: array.dtype for name, array in initializers.items()}})
        for node in nodes:
            node.used, node.types = self.used, types
        self.roles = roles.assign(nodes, declared, initializers, self.ends, updated, source, trainable)
        self.slots: dict[str, int] = {}
        self.steps: list[Step] = []
        self.layers: list[tuple[Node, Module]] = []
        self.parameters: dict[str, Parameter] = {}
        held = self.roles.parameters.keys() - initializers.keys()  # by a Constant, or the Identity of an equal tensor
        for name, array in self.roles.parameters.items():
            if name in held:
                budget.take(array.nbytes, f"the parameter {name!r}")
            self.parameters[name] = Parameter(np.array(array) if name in held else array)
        self.expanded: dict[str, Any] = {}  # name -> the shape that the nodes read
        for name, array in self.roles.parameters.items() if trainable is None else ():
            if weights.expanded(name, array, source):
                self.parameters[name], self.expanded[name] = Parameter(np.array(array[:1])), array.shape
        self.nodes = [node for node in nodes if not held.intersection(node.outputs)]
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
        for name, shape in self.expanded.items():
            label = f"the Expand of {name!r}"
            self.steps.append(Step(_expansion(shape), [self._slot(name)], [self._slot(_whole(name))], label, False))
        for node in self.nodes:
            node.constants = self.constants
            try:
                self._add(node)
            except Unsupported as error:
                missing.append((node, str(error)))
            except LoadError:
                raise
            except ValueError as error:
                raise LoadError(f"load: {node}: {error}") from error
        _refuse(missing)
        for name in self.ends:
            self._slot(name)
        constants = {name: Tensor(self.constants[name]) for name in self.slots if name in self.constants}
        model = GraphModule(
            self.inputs,
            self.outputs,
            self.ends,
            self.steps,
            self.slots,
            {**self.parameters, **self.buffers},
            constants,
            self.budget,
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
        names = [_whole(name) if name in self.expanded else name for name in names]
        if node.operator == "If" and names[0] in self.constants:
            names = branch.without_the_other(names, bool(self.constants[names[0]]))
        for place, name in zip(roles.places(node), node.statistics, strict=False):
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
        # Identity(norm.bias) may be what a merging tool made of the running mean: that is a buffer now, not its result.
        made = [name if name not in self.roles.buffers else "" for name in node.outputs]
        outputs = [self._slot(name) if name in self.used else None for name in made]
        if not any(made):
            return
        conditions = [(self._slot(name), value) for name, value in guards]
        scope = Scope(node.scope) if node.scope else None
        step = Step(
            operation, inputs, outputs, str(node), silent, scope, conditions,
            precise=_precise(node), operator=_checked(node),
        )  # fmt: skip
        self.steps.append(step)
        if isinstance(operation, Module):
            self.layers.append((node, operation))
        if isinstance(operation, Layer):
            operation.uses = [self.parameters[name] for name in node.inputs if name in self.parameters]

    def _slot(self, name: str) -> int:
        return self.slots.setdefault(name, len(self.slots))

    def _compute(self, node: Node, operation: Any, names: Sequence[str]) -> bool:
        """A node that depends on constants alone, computed now; False where the result is no Tensor but a sequence."""
        values: list[Any] = [Tensor(self.constants[name]) if name else None for name in names]
        first = len(values)
        values += [None] * len(node.outputs)
        step = Step(operation, list(range(first)), list(range(first, len(values))), str(node), True)
        step.operator = _checked(node)
        try:
            with no_grad(), self.budget.run(), np.errstate(all="ignore"):
                step.run(values)
        except ValueError as error:
            raise LoadError(f"load: {error}") from error
        if any(isinstance(value, list) for value in values[first:]):
            return False
        for name, value in zip(node.outputs, values[first:], strict=True):
            if name in self.used and value is not None:
                self.budget.take(value.data.nbytes, f"the result of {node}")
                self.budget.computed += value.data.nbytes
                self.constants[name] = value.data
                self.shapes.add(name)
        return True


def _precise(node: Node) -> tuple[int, ...]:
    """The inputs whose float type is not that of the others, by the operator's schema."""
    if node.operator == "If":
        return ()
    formal = onnx.defs.get_schema(node.operator, node.since, "").inputs
    return tuple(
        place
        for place in range(len(node.inputs))
        if (own := formal[min(place, len(formal) - 1)]).type_str == "tensor(float)"
        or (node.operator in ("Dropout", "Resize") and own.type_str != formal[0].type_str)
    )


def _checked(node: Node) -> str:
    """The operator whose inputs are checked for their kinds; ours, a form of If, and what the metadata adds are not."""
    return "" if node.operator == "If" or node.described is not None else node.operator


def _before(name: str) -> str:
    """What a buffer that its layer changes was before, for the other nodes."""
    return f"{name} before"


def _whole(name: str) -> str:
    """A Parameter that the file holds once for each sample, as its nodes read it."""
    return f"{name} expanded"


def _expansion(shape: tuple[int, ...]) -> Callable[[Tensor], Tensor]:
    return lambda x: x.expand(shape)


def _path(node: Node, ours: bool) -> str:
    """Where a layer is put: what its tensors' names begin with, or the module it was exported from, or its name."""
    prefixes = {name.rpartition(".")[0] for name in (*node.statistics, *node.inputs[1:3]) if name}
    if len(prefixes) == 1 and (prefix := prefixes.pop()):
        return prefix
    if ours and node.scope:
        return node.scope
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
        layer.frozen |= node.scope in frozen
    for name, parameter in parameters.items():
        parameter.requires_grad = name.rpartition(".")[0] not in frozen
