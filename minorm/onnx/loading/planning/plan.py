"""Keep the Functions that one run of a graph applied, as a plan whose Functions use numbered registers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minorm.nn import Module
from minorm.ops.applications import Application
from minorm.tensor.tensor import Tensor


class Plan:
    """Applies the Functions of an earlier run to numbered registers. Register 0 holds None, for absent arguments.

    held      pairs of a register and a Tensor of the graph; when a run begins, the register gets the Tensor's array
    fixed     the contents of all registers when a run begins: an array if it depends on shapes alone, otherwise None
    layers    the layers that have options; the plan becomes invalid if these options change
    """

    def __init__(
        self,
        applications: Sequence[Application],
        held: Sequence[tuple[int, Tensor]],
        fixed: Sequence[Any],
        inputs: Sequence[int],
        outputs: Sequence[int],
        layers: Sequence[Module],
    ) -> None:
        self.applications, self.held, self.fixed = list(applications), list(held), list(fixed)
        self.layers = [(layer, dict(vars(layer))) for layer in layers]
        self.tensors = [
            (vars(layer), name, value)
            for layer in layers
            for name, value in vars(layer).items()
            if isinstance(value, Tensor)
        ]
        self.inputs, self.outputs = list(inputs), list(outputs)
        kept = {0, *self.outputs, *(register for register, _ in held), *inputs}
        kept |= {register for register, array in enumerate(fixed) if array is not None}
        for application in reversed(self.applications):
            used = {*application.inputs, *application.outputs}
            application.dropped = tuple(sorted(used - kept))
            kept |= used

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.applications))

    def is_current(self) -> bool:
        """Return whether all layers still have the mode, options, Tensors and hooks for which the plan was made."""
        if any(held.get(name) is not value for held, name, value in self.tensors):
            return False
        return all(vars(layer) == before and not is_active(layer) for layer, before in self.layers)

    def run(self, given: Sequence[Tensor]) -> list[Tensor]:
        """Return the outputs for these inputs."""
        arrays = list(self.fixed)
        for register, tensor in self.held:
            arrays[register] = tensor.array
        for register, tensor in zip(self.inputs, given, strict=True):
            arrays[register] = tensor.array
        with np.errstate(all="ignore"):
            for application in self.applications:
                application.run(arrays)
        return [Tensor.from_array(arrays[register]) for register in self.outputs]


def is_active(layer: Module) -> bool:
    """Return whether a layer trains or calls hooks, so that it does more than compute its result."""
    return (layer.training and not layer.frozen) or any(layer.__dict__.get("_hooks", {}).values())
