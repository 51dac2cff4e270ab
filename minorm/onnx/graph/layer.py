"""The modules below a loaded graph: a place for each node that has a mode, or for a prefix of a Parameter's name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from minorm.nn import Module, Parameter


class Layer(Module):
    """A place in a loaded graph. It holds no tensors, but knows the Parameters that belong to it."""

    def __init__(self) -> None:
        super().__init__()
        self.uses: list[Parameter] = []  # those of this place, not of the places below

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        """Whether the Parameters of this place, and of those below it, collect gradients."""
        for module in self.modules():
            for parameter in module.uses if isinstance(module, Layer) else ():
                parameter.requires_grad = requires_grad
        return super().requires_grad_(requires_grad)


@dataclass(frozen=True)
class Statistics:
    """How a layer keeps running statistics. per_sample: of each sample (InstanceNorm), not of the batch."""

    per_sample: bool
    momentum: float | None
    unbiased: bool


class StatisticsLayer(Layer):
    """A normalization of a loaded graph that was described by `minorm.statistics`."""

    statistics: Statistics | None = None
