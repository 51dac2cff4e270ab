"""A run with `qat`: its model trains while it is rounded, the last quarter of its epochs as the int8 model computes.

From there on BatchNorm normalizes with its running statistics, which stay, and the scales of activations stay: what
trains is what `convert` makes integers of.
"""

from __future__ import annotations

import math
from typing import Any

from minorm.nn import Module
from minorm.quantization import QATModel, freeze_bn_stats, get_default_qat_qconfig, prepare_qat
from minorm.tensor.creation import zeros
from minorm.training.settings import Settings

NONE = "none"
FROZEN = 0.25  # of the epochs, the last ones


def prepared(settings: Settings, model: Module, channels: int, size: int) -> Module:
    """The model, as these settings train it."""
    if settings.qat == NONE:
        return model
    device = next(model.parameters()).device
    example = zeros(2, channels, size, size, device=device)
    return prepare_qat(model, example, get_default_qat_qconfig(settings.qat), inplace=True)


def begin_epoch(model: Module, epoch: int, epochs: int) -> None:
    """Before an epoch, counted from 0: freeze in the last quarter."""
    if isinstance(model, QATModel) and epoch >= first_frozen(epochs):
        freeze_bn_stats(model)
        model.freeze_observers()


def first_frozen(epochs: int) -> int:
    """The first epoch with frozen statistics, counted from 0; the one before it gives activations their scales."""
    return max(1, math.ceil(epochs * (1 - FROZEN)))


def is_ready(model: Any) -> bool:
    """Whether `convert` can make integers of it."""
    return isinstance(model, QATModel) and model.has_scales
