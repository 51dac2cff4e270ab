"""The loss of a run: cross entropy, smoothed and weighted as the settings say."""

from __future__ import annotations

from typing import Any

from minorm import nn
from minorm.devices import dtypes
from minorm.tensor.tensor import Tensor
from minorm.training.data.preparing import balanced, labels_of
from minorm.training.settings import Settings


class Loss(nn.CrossEntropyLoss):
    """Cross entropy in float32, whatever type the outputs are stored in."""

    def forward(self, outputs: Any, targets: Tensor) -> Tensor:
        """The loss; outputs that are none are for the loss itself to name."""
        if not isinstance(outputs, Tensor) or outputs.dtype != dtypes.bfloat16:
            return super().forward(outputs, targets)
        wide = targets.to(dtypes.float32) if dtypes.is_float(targets.dtype) else targets
        return super().forward(outputs.to(dtypes.float32), wide)


def make_loss(settings: Settings, train: Any, classes: int) -> Loss:
    """The loss on these training images."""
    weight = None
    if settings.class_weights == "balanced":
        weight = Tensor(balanced(labels_of(train), classes))
    return Loss(weight, label_smoothing=settings.label_smoothing)
