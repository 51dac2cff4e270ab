"""The loss of a run. It is cross entropy or the focal loss, smoothed and weighted as the settings say."""

from __future__ import annotations

from typing import Any

from minorm import nn
from minorm.devices import dtypes
from minorm.nn import Module
from minorm.tensor.tensor import Tensor
from minorm.training.data.preparing import balanced, labels_of
from minorm.training.settings import Settings


class _InFloat32(Module):
    """A loss that is computed in float32. The outputs may be stored in another type."""

    def forward(self, outputs: Any, targets: Tensor) -> Tensor:
        """Return the loss. If the outputs are not a Tensor, the loss raises its usual error."""
        forward: Any = super().forward
        if not isinstance(outputs, Tensor) or outputs.dtype != dtypes.bfloat16:
            return forward(outputs, targets)
        wide = targets.to(dtypes.float32) if dtypes.is_float(targets.dtype) else targets
        return forward(outputs.to(dtypes.float32), wide)


class Loss(_InFloat32, nn.CrossEntropyLoss):
    """Cross entropy, computed in float32."""


class Focal(_InFloat32, nn.FocalLoss):
    """The focal loss, which gives easy images less weight. It is computed in float32."""


def make_loss(settings: Settings, train: Any, classes: int) -> Loss | Focal:
    """Return the loss that the settings choose, with class weights from the training images `train`."""
    weight = None
    if settings.class_weights == "balanced":
        weight = Tensor(balanced(labels_of(train), classes))
    kind = Focal if settings.loss == "focal" else Loss
    return kind(weight, label_smoothing=settings.label_smoothing)
