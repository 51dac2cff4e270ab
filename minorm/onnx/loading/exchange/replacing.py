"""Replace nodes of a loaded graph by a layer that reads the same values: `GraphModule.replace`.

We compute everything first, so that an error changes nothing. Then the layer computes the output in place of the old
node. Everything that the graph no longer needs is dropped: nodes, their tensors, and the modules that held these
tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from minorm.nn import Module
from minorm.onnx.graph.node_layers import Layer
from minorm.onnx.graph.step import Step
from minorm.onnx.loading.exchange import module_tree, stand_in
from minorm.onnx.loading.exchange.spots import Part, Spot, Spots
from minorm.onnx.loading.original import Original
from minorm.onnx.loading.updates import ENDING

LINE = "model.replace({}, layer)"


def found(model: Any, name: str, layer: Any) -> Part:
    """Return the nodes that a user means by `name`; raise TypeError or ValueError if the layer cannot replace them."""
    if not isinstance(layer, Module):
        kind = f"the class {layer.__name__}" if isinstance(layer, type) else f"a {type(layer).__name__}"
        raise TypeError(f"replace: layer is {kind}; expected an nn.Module: model.replace({name!r}, nn.Linear(512, 5))")
    if {id(module) for module in model.modules()} & {id(module) for module in layer.modules()}:
        raise ValueError(
            "replace: layer is already a part of the model, or the model is a part of layer; expected a new layer"
        )
    spots = spots_of(model)
    part = spots.find(name, "replace", LINE)
    if any(spots.spots[place].branch for place in part.places):
        raise ValueError(
            f"replace: {name!r} is in a branch of an If, and not every run takes this branch; replace the If"
        )
    return part


def spots_of(model: Any) -> Spots:
    """Return the nodes of a GraphModule as Spots."""
    names = model._value_names

    def named(slots: Iterable[int | None]) -> tuple[str, ...]:
        return tuple("" if slot is None else names[slot] for slot in slots)

    spots = [
        Spot(step.node, step.module, step.operator, named(step.inputs), named(step.outputs), bool(step.conditions))
        for step in model._steps
    ]
    homes: dict[int, str] = {}
    for path, place in model.named_modules():
        if isinstance(place, Layer):
            homes |= {id(tensor): path for tensor in place.uses.values()}
    tensors = {name: homes.get(id(tensor), "") for name, tensor in model.tensors_by_name().items()}
    return Spots(spots, tensors, model.constants, model.output_names)


class Replacement:
    """Computes the steps and tensors that the graph will have after a replacement, and the tensors that it loses.

    steps, updates, snapshots    as in GraphModule
    lost                         the ids of the tensors that only dropped nodes read
    gone                         the ids of the modules that computed the dropped nodes
    """

    def __init__(self, model: Any, part: Part, layer: Module, wished: str) -> None:
        self.model, self.layer, self.wished = model, layer, wished
        names, old = model._value_names, list(model._steps)
        slots = {name: slot for slot, name in names.items()}
        output = slots[part.output]
        self.step = Step(layer, [slots[name] for name in part.inputs], [output], "", silent=False, names=[part.output])
        place = next(place for place in part.places if output in old[place].outputs)
        inside = {slot for one in part.places for slot in old[one].outputs} - {output, None}
        changed = [*old[:place], self.step, *old[place + 1 :]]
        reached = _dependent_slots(changed, inside)
        self.updates = [entry for entry in model.updates if entry[1] not in reached]
        ends = {*model._output_slots, *(slot for _, slot, _ in self.updates)}
        self.steps = _needed(changed, ends)
        before, after = _read(old), _read(self.steps) | ends
        self.snapshots = [(buffer, slot) for buffer, slot in model.snapshots if slot in after]
        kept = {id(tensor) for slot, tensor in model._given if slot in after or slot not in before}
        kept |= {id(buffer) for buffer, *_ in (*self.updates, *self.snapshots)}
        self.lost = {id(tensor) for _, tensor in model._given} - kept
        stay = {id(one.operation) for one in self.steps}
        self.gone = {id(one.operation) for one in old if isinstance(one.operation, Module)} - stay
        lost = {f"{name}{ENDING}" for name, tensor in model.tensors_by_name().items() if id(tensor) in self.lost}
        self.updated_names = [name for name in model.updated_names if name not in lost]
        self.file: Original | None = None
        if model.original is not None:
            self.file = model.original.replaced(part.inputs, part.output, model.output_names, lost)

    def make(self) -> None:
        """Change the model."""
        model, step = self.model, self.step
        path = module_tree.insert_layer(model, self.layer, self.wished, self.gone, self.lost)
        step.label, step.node, step.module = f"{path!r}, a {type(self.layer).__name__}", path, path
        if self.file is not None:
            stand_in.name_layer(self.file.model, path)
        model.placed = [placed for placed in model.placed if id(placed.layer) not in self.gone]
        model._rewire(self)
        self.layer.train(model.training)


def _read(steps: Sequence[Step]) -> set[int | None]:
    return {slot for one in steps for slot in (*one.inputs, *(slot for slot, _ in one.conditions))}


def _dependent_slots(steps: Sequence[Step], slots: set[Any]) -> set[Any]:
    """Return `slots`, and all slots that are computed from `slots`."""
    found_ = set(slots)
    for step in steps:
        if not found_.isdisjoint(step.inputs):
            found_.update(step.outputs)
    return found_


def _needed(steps: Sequence[Step], ends: Iterable[int]) -> list[Step]:
    wanted: set[int | None] = set(ends)
    kept = []
    for step in reversed(steps):
        if any(slot in wanted for slot in step.outputs if slot is not None):
            wanted |= _read([step])
            kept.append(step)
    return kept[::-1]


def flat(name: str) -> str:
    """Turn the name of a node or a value into a module's name."""
    return name.strip("/").replace(".", "_") or "layer"
