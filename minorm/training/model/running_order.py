"""Find the layers of a model in the order in which they run, by tracing one run. The last layer is the head.

A layer here is a weight (a tensor with at least two axes) and all biases and scales that are read before the next
weight. The last layer is the head if its weight is a matrix or a 1x1 kernel.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from minorm.graph import trace
from minorm.nn import Module, Parameter
from minorm.nn.evaluating import evaluating
from minorm.tensor.creation import zeros

GROUPS = 12  # of layers in front of the head, as many as ViT-B has blocks: good rates by depth are known for 12
SHOWN = 3  # last weights, in an error


class Layers:
    """The parameters of a model by layer, in the order in which the layers run.

    head    the parameters of the last layer; empty if its weight is neither a matrix nor a 1x1 kernel
    body    a list of parameters for each earlier layer; the first list also has the parameters that the run did not
            read
    """

    def __init__(self, model: Module, channels: int, size: int) -> None:
        names = {id(p): name for name, p in model.named_parameters()}
        layers: list[list[Parameter]] = [[]]
        for read in _in_running_order(model, channels, size):
            if _has_weight(read) and _has_weight(layers[-1]):
                layers.append([])
            layers[-1] += read
        if not _is_head(layers[-1]):
            layers.append([])
        *self.body, self.head = layers
        found = {id(p) for layer in layers for p in layer}
        unread = [p for p in model.parameters() if id(p) not in found]
        self.body = self.body or [[]]
        self.body[0] = [*self.body[0], *unread]
        self.names = [names[id(p)] for p in self.head]
        self._weights = [f"{names[id(p)]} {p.shape}" for layer in layers for p in layer if p.ndim > 1]

    def check_head(self, wish: str) -> None:
        """Raise ValueError if no head was found; `wish` is the setting that needs a head."""
        if not self.head:
            raise ValueError(f"{wish} needs a head, but the model has none; expected a last layer whose weight is a "
                             "matrix or a 1x1 kernel. The last weights are "
                             f"{', '.join(self._weights[-SHOWN:]) or 'none'}")  # fmt: skip

    def by_depth(self) -> list[list[Parameter]]:
        """Return the head, and then the other layers in at most GROUPS groups of equal size, from last to first."""
        count = min(GROUPS, len(self.body))
        groups: list[list[Parameter]] = [[] for _ in range(count)]
        for place, layer in enumerate(reversed(self.body)):
            groups[place * count // len(self.body)] += layer
        return [self.head, *groups]


class Freezing:
    """Freezes and thaws all layers but the head. Frozen layers compute as in evaluation and are not trained.

    Parameters that were frozen before, by the user or by a file, stay frozen.
    """

    def __init__(self, model: Module, head: Iterable[Parameter]) -> None:
        fixed = {id(p) for p in head}
        self.parameters = [p for p in model.parameters() if p.requires_grad and id(p) not in fixed]
        around = {id(module) for module in model.modules() if any(id(p) in fixed for p in module.parameters())}
        self.modules = [module for module in model.modules() if id(module) not in around and not module.frozen]

        self.frozen = False

    def set(self, frozen: bool) -> bool:
        """Freeze or thaw the layers; return whether their state has changed."""
        if frozen == self.frozen:
            return False
        self.frozen = frozen
        for module in self.modules:
            module.frozen = frozen
        for parameter in self.parameters:
            parameter.requires_grad = not frozen
            if frozen:
                parameter.grad = None
        return True


def _has_weight(parameters: Iterable[Parameter]) -> bool:
    return any(p.ndim > 1 for p in parameters)


def _is_head(layer: list[Parameter]) -> bool:
    weight = next((p for p in layer if p.ndim > 1), None)
    return weight is not None and math.prod(weight.shape[2:]) == 1


def _in_running_order(model: Module, channels: int, size: int) -> Iterator[list[Parameter]]:
    """Yield, for each operation that reads parameters, the parameters that no earlier operation has read."""
    example = next(iter(model.parameters()), None)
    x = zeros(1, channels, size, size) if example is None else zeros(1, channels, size, size, device=example.device)
    wide = next((p.dtype for p in model.parameters() if p.ndim > 1), x.dtype)
    with evaluating(model), trace.record() as calls:
        model(x.to(wide))
    seen: set[int] = set()
    for read in _read(calls):
        if new := [p for p in read if id(p) not in seen]:
            seen.update(map(id, new))
            yield new


def _read(calls: Iterable[trace.Call]) -> Iterator[list[Parameter]]:
    for call in calls:
        yield list(_parameters(call.arguments.values()))
        yield from _read(call.children)


def _parameters(values: Iterable[Any]) -> Iterator[Parameter]:
    for value in values:
        if isinstance(value, Parameter):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _parameters(value)
