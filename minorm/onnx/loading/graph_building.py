"""Build a GraphModule from checked nodes: call the readers of the nodes in order, and collect steps and layers.

Nodes that depend on constants alone are computed now. A trace for `export` does not show nodes that depend on shapes
alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from minorm.devices import dtypes
from minorm.graph.grad_mode import no_grad
from minorm.nn import Module, Parameter
from minorm.onnx.graph import kinds, paths, registry
from minorm.onnx.graph.body import Body
from minorm.onnx.graph.errors import LoadError, Unsupported
from minorm.onnx.graph.memory_budget import Excess
from minorm.onnx.graph.node_layers import Layer, NormLayer
from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.scope import Scope
from minorm.onnx.graph.step import Step
from minorm.onnx.graph.storage import narrow
from minorm.onnx.graph.tensors import Budget
from minorm.onnx.loading import places, roles, weights
from minorm.onnx.loading.graph_inputs import Input
from minorm.onnx.loading.graph_module import GraphModule
from minorm.onnx.loading.judging import weights_by_input
from minorm.onnx.loading.judging.naming import Origin
from minorm.onnx.loading.original import Placed, Start
from minorm.onnx.loading.quantized import byte_nodes
from minorm.onnx.loading.quantized.fused_steps import Fused
from minorm.onnx.loading.repeating import Frame, Repetition
from minorm.onnx.loading.resolving import refuse
from minorm.onnx.operators.control import branch
from minorm.onnx.operators.math import arithmetic
from minorm.onnx.operators.nn.integer import read_fused
from minorm.tensor.tensor import Tensor


class Builder:
    """Calls the readers of the nodes in order.

    A node that depends on constants alone is computed at once. For every other node, a step is made.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        inputs: Sequence[Input],
        outputs: Sequence[str],
        initializers: Mapping[str, Any],
        updated: Mapping[str, str],
        budget: Budget,
        source: Origin,
        trainable: weights.Trainable = None,
        groups: Sequence[byte_nodes.Group] = (),
    ) -> None:
        self.nodes, self.inputs, self.outputs, self.budget = nodes, inputs, outputs, budget
        returned = set(outputs)
        self.ends = [*outputs, *(name for name in updated.values() if name not in returned)]
        self.used = frozenset(
            name for node in nodes for name in (*node.inputs, *(condition for condition, _ in node.conditions))
        ) | set(self.ends)
        declared = {entry.name: entry.dtype for entry in inputs}
        types = kinds.types(nodes, {**declared, **{name: array.dtype for name, array in initializers.items()}})
        for node in nodes:
            node.used, node.types = self.used, types
        self.roles = roles.assign(nodes, declared, initializers, self.ends, updated, source, trainable)
        self.frames = [Frame()]  # the last frame is inside the others
        self.idle: Body | None = None  # a loop that never runs, while we skip its nodes
        self.layers: list[tuple[Node, Module]] = []
        self.parameters: dict[str, Parameter] = {}
        held = self.roles.parameters.keys() - initializers.keys()  # in a Constant, or an Identity of an equal tensor
        for name, array in self.roles.parameters.items():
            if name in held:
                budget.take(array.nbytes, f"the parameter {name!r}")
            self.parameters[name] = Parameter(np.array(array) if name in held else array)
        self.expanded = {name: (other, initializers[name].shape) for name, other in self.roles.spread.items()}
        begins = weights_by_input.states(nodes)
        for name, array in self.roles.parameters.items() if trainable is None else ():
            axis = weights.expanded(name, array, source, begins)
            if axis is not None:
                self.parameters[name], self.expanded[name] = Parameter(array.take([0], axis)), (name, array.shape)
        self.nodes = [node for node in nodes if not held.intersection(node.outputs)]
        made = {*self.parameters, *self.roles.spread}
        self.constants: dict[str, Any] = {n: a for n, a in initializers.items() if n not in made}
        self.initializers = initializers
        self.buffers = {
            name: Tensor(np.array(initializers[origin]))
            for name, origin in self.roles.buffers.items()
            if origin in initializers
        }
        self.starts = {
            name: Start(origin, initializers[origin])
            for name, origin in self.roles.buffers.items()
            if origin in initializers and origin != name
        }
        for name in self.buffers:
            self.constants.pop(name, None)
        self.groups = groups
        self.fixed: set[str] = set()  # the arguments of nodes on bytes
        self.shapes = set(self.constants)  # values that depend on shapes and constants alone

    def build(self, frozen: Sequence[str], ours: bool) -> GraphModule:
        """Return the finished module."""
        missing = []
        for entry in self.inputs:
            self._slot(entry.name)
        for name, (weight, shape) in self.expanded.items():
            label = f"the Expand of {weight!r}"
            expand = Step(_expansion(shape), [self._slot(weight)], [self._slot(_expanded_name(name))], label, False)
            self.frames[0].steps.append(expand)
        for place, node in enumerate(self.nodes):
            node.constants = self.constants
            if self.idle is not None:
                self.idle = self.idle if node.enters or node.body is not self.idle else None
                continue
            try:
                self._add(node, place)
            except Unsupported as error:
                missing.append((node, str(error)))
            except LoadError:
                raise
            except ValueError as error:
                raise LoadError(f"load: {node}: {error}") from error
        refuse(missing, self.nodes, [entry.name for entry in self.inputs], self.outputs)
        for name in self.ends:
            self._slot(name)
        [frame] = self.frames
        steps = {step.names: step for step in frame.steps}
        fused = [found for group in self.groups if (found := self._fused(group, steps)) is not None]
        constants = {name: narrow.tensor(self.constants[name]) for name in frame.slots if name in self.constants}
        for name in self.fixed:  # read-only, so one preparation serves all runs
            if name in constants:
                constants[name].array.flags.writeable = False
        model = GraphModule(
            self.inputs,
            self.outputs,
            self.ends,
            frame.steps,
            frame.slots,
            {**self.parameters, **self.buffers},
            constants,
            self.budget,
        )
        model.verdicts = self.roles.verdicts
        state: dict[str, Tensor] = {**self.parameters, **self.buffers}
        layers = [places.of_layer(node, layer, ours, state) for node, layer in self.layers]
        places.place(model, layers, state, places.of_tensors(state, self.nodes))
        places.in_order(model, self.nodes, self.layers, state)
        model.placed = [
            Placed(next(filter(None, node.outputs)), node.operator, layer, node.statistics)
            for node, layer in self.layers
            if not isinstance(layer, NormLayer)  # which has no mode, and no single node in the file
        ]
        _set_modes(model, self.layers, frozen, self.parameters, trains=bool(self.roles.updates))
        for name, new in self.roles.updates.items():
            model.updates.append((self.buffers[name], self._slot(new), places.layer_of(model, name)))
        for name in self.roles.snapshots:
            model.snapshots.append((self.buffers[name], self._slot(_name_before_change(name))))
        model.fuse(fused)  # after the updates, because it keeps the slots that they read
        return model

    def _add(self, node: Node, place: int) -> None:
        for name in node.statistics:
            if name not in self.buffers:  # a Constant node gives it, and its array exists only now
                start = self.roles.buffers[name]
                self.starts[name] = Start(start, self.constants[start])
                self.buffers[name] = Tensor(np.array(self.constants[start]))
                self.constants.pop(name, None)
        conditions = [(name, value) for name, value in node.conditions if name not in self.constants]
        if any(bool(self.constants[name]) != value for name, value in node.conditions if name in self.constants):
            self.idle = node.body  # in a branch that is never taken
            return
        if node.enters:
            self._enter(node, place)
            return
        names = [self._read(name) for name in node.inputs]
        if node.body is not None:
            self._leave(node, names, conditions)
            return
        if node.operator == "If" and names[0] in self.constants:
            names = branch.without_the_other(names, bool(self.constants[names[0]]))
        for place, name in zip(roles.places(node), node.statistics, strict=False):
            names[place] = name
        if node.operator.startswith("QLinear"):
            self.fixed.update(names)
        operation = registry.READERS[node.operator, node.since].rule(node)
        known = not isinstance(operation, Module)
        fixed = known and not conditions and all(name in self.constants for name in names if name)
        if fixed and self._compute(node, operation, names):
            return
        read = [name for name in (*names, *(condition for condition, _ in conditions)) if name]
        silent = known and (node.operator in ("Shape", "Size") or all(name in self.shapes for name in read))
        if silent:
            self.shapes.update(node.outputs)
        inputs = [self._slot(name) if name else None for name in names]
        # A merging tool may have written the running mean as Identity(norm.bias): the value is a buffer now, not its
        # result.
        made = [name if name not in self.roles.buffers else "" for name in node.outputs]
        outputs = [self._slot(name) if name in self.used else None for name in made]
        if not any(made):
            return
        by_slot = [(self._slot(name), value) for name, value in conditions]
        scope = Scope(node.scope) if node.scope else None
        step = Step(
            operation, inputs, outputs, str(node), silent, scope, by_slot,
            precise=_precise(node), operator=_checked(node), names=node.outputs, casts=_casts(node),
            node=node.name, module=node.module,
        )  # fmt: skip
        self.frames[-1].steps.append(step)
        self.frames[-1].made.update(made)
        if isinstance(operation, Module):
            self.layers.append((node, operation))
        if isinstance(operation, Layer):
            at = enumerate(node.inputs)
            operation.held = {i: self.parameters[name] for i, name in at if name in self.parameters}

    def _fused(self, group: byte_nodes.Group, steps: Mapping[Sequence[str], Step]) -> Fused | None:
        """Return the step for a group, and the steps that it replaces; None if a node of the group is not a step."""
        node = group.node
        known = self.constants, group.constants, self.frames[0].slots
        read = [self._read(name) for name in node.inputs if name]
        if any(part.outputs not in steps for part in group.parts):
            return None
        if not all(any(name in names for names in known) for name in read):  # a node that carries bytes is missing
            return None
        for name, array in group.constants.items():
            self.constants[name] = array
        self.fixed.update(node.inputs)
        operation = read_fused(node)
        inputs = [self._slot(self._read(name)) if name else None for name in node.inputs]
        step = Step(
            operation, inputs, [self._slot(node.outputs[0])], str(node), False, names=node.outputs, node=node.name,
            module=node.module,
        )  # fmt: skip
        sources = [steps[source.outputs] for source in group.sources if source.outputs in steps]
        return Fused(step, [steps[part.outputs] for part in group.parts], sources, group.beside)

    def _enter(self, node: Node, place: int) -> None:
        """Open a Frame, which collects the nodes of a body."""
        assert node.body is not None
        inside, outside = set(node.outputs), set(node.inputs)
        for other in self.nodes[place + 1 :]:
            if other.body is node.body:
                break
            outside.update(name for name in other.inputs if name not in inside)
            inside.update(other.outputs)
        outside -= {""}
        frame = Frame(made=set(node.outputs), shapes=all(self._read(name) in self.shapes for name in outside))
        self.frames.append(frame)
        self.shapes.update(node.outputs if frame.shapes else node.outputs[: node.body.heads[0]])

    def _leave(self, node: Node, names: Sequence[str], conditions: Sequence[tuple[str, bool]]) -> None:
        """Close the Frame of a body whose nodes are all steps now, and add the step that repeats these steps."""
        body = node.body
        assert body is not None
        own, results = names[: body.given], names[body.given + len(body.inputs) :]
        operation = registry.READERS[node.operator, node.since].rule(node)
        frame = self.frames.pop()
        turns, captured = frame.turns(body.inputs, results)
        silent = frame.shapes and all(name in self.shapes for name in results)
        if silent:
            self.shapes.update(node.outputs)
        inputs = [self._slot(name) if name else None for name in (*own, *captured)]
        outputs = [self._slot(name) if name in self.used else None for name in node.outputs]
        by_slot = [(self._slot(name), value) for name, value in conditions]
        scope = Scope(node.scope) if node.scope else None
        counts = (*own[: body.before], *results[: body.heads[1]])
        step = Repetition(operation, inputs, outputs, str(node), silent, scope, by_slot, turns=turns)
        step.node, step.module = node.name, node.module
        step.precise = [len(own) + place for place in turns.unconverted]
        step.counted = all(name in self.shapes for name in counts if name)
        self.frames[-1].steps.append(step)
        self.frames[-1].made.update(node.outputs)

    def _slot(self, name: str) -> int:
        return self.frames[-1].slot(name)

    def _read(self, name: str) -> str:
        """Return the name of the slot from which nodes read a value."""
        name = _name_before_change(name) if name in self.roles.snapshots else name
        return _expanded_name(name) if name in self.expanded else name

    def _compute(self, node: Node, operation: Any, names: Sequence[str]) -> bool:
        """Compute a node that depends on constants alone.

        Return False if each run must compute the node, because the result is a sequence or is much larger than the
        file.
        """
        values: list[Any] = [narrow.tensor(self.constants[name]) if name else None for name in names]
        first = len(values)
        values += [None] * len(node.outputs)
        step = Step(operation, list(range(first)), list(range(first, len(values))), str(node), True)
        step.operator = _checked(node)
        try:
            with no_grad(), self.budget.folding(), np.errstate(all="ignore"):
                step.run(values)
        except ValueError as error:
            excess = error.__cause__
            if isinstance(excess, Excess) and excess.needed <= self.budget.limit:
                self.budget.check_left_to_run(excess.needed, str(node))
                return False
            raise LoadError(f"load: {error}") from error
        if any(isinstance(value, list) for value in values[first:]):
            return False
        for name, value in zip(node.outputs, values[first:], strict=True):
            if name in self.used and value is not None:
                self.budget.take(value.array.nbytes, f"the result of {node}")
                self.budget.computed += value.array.nbytes
                self.constants[name] = value.array
                self.shapes.add(name)
        return True


def _precise(node: Node) -> tuple[int, ...]:
    """Return the indices of the inputs whose float type may differ from the type of the other inputs.

    The schema of the node's operator says which inputs these are.
    """
    if node.operator == "If":
        return ()
    formal = onnx.defs.get_schema(node.operator, node.since, "").inputs
    return tuple(
        place
        for place in range(len(node.inputs))
        if (own := formal[min(place, len(formal) - 1)]).type_str == "tensor(float)"
        or (node.operator in ("Dropout", "Resize") and own.type_str != formal[0].type_str)
    )


def _casts(node: Node) -> bool:
    """Return whether the node is a Cast to floats."""
    return node.operator == "Cast" and bool(dtypes.is_float(arithmetic.target_type(node)))


def _checked(node: Node) -> str:
    """Return the operator by whose schema inputs are checked; "" for minorm's If and for layers from the metadata."""
    return "" if node.operator == "If" or node.described is not None else node.operator


def _name_before_change(name: str) -> str:
    """Return the name under which other nodes read the old value of a buffer that a layer changes."""
    return f"{name} before"


def _expanded_name(name: str) -> str:
    """Return the name of the Tensor that repeats a Parameter for each sample; nodes read this Tensor."""
    return f"{name} expanded"


def _expansion(shape: tuple[int, ...]) -> Callable[[Tensor], Tensor]:
    return lambda x: x.expand(shape)


def _set_modes(
    model: GraphModule,
    layers: Sequence[tuple[Node, Module]],
    frozen: Sequence[str],
    parameters: Mapping[str, Parameter],
    trains: bool,
) -> None:
    """Set the mode that a layer's reader chose; if one layer trains, the graph trains too. Then freeze layers."""
    modes = [(layer, layer.training) for _, layer in layers]
    model.train(trains or any(mode for _, mode in modes))
    for layer, mode in modes:
        layer.training = mode
    for path, module in model.named_modules():
        module.frozen = path in frozen
    for node, layer in layers:
        layer.frozen |= node.scope in frozen
    places_ = (module for module in model.modules() if module.frozen and isinstance(module, Layer))
    fixed = {id(tensor) for place in places_ for tensor in place.uses.values()}
    for name, parameter in parameters.items():
        parameter.requires_grad = id(parameter) not in fixed and paths.prefix(name) not in frozen
