"""Run cases on frameworks whose batch norm takes a mask; x has shape (samples, channels, positions)."""

from __future__ import annotations

from typing import Any

from minorm.conformance.adapters import flax as flax_layers
from minorm.conformance.adapters import framework_layers as layers
from minorm.conformance.adapters import keras as keras_layers
from minorm.conformance.case import Case


def flax(case: Case) -> list[Any]:
    """Run a case on Flax, where the mask broadcasts over x."""
    mask = case.beside[:, None, :]
    y, *statistics = flax_layers.forward(case, *layers.tensors(layers.jax_array, case), mask=mask)
    return [layers.to_array(value) for value in (y * mask, *statistics)]


def keras(case: Case) -> list[Any]:
    """Run a case on Keras, where the mask has no channel axis and the channels of x are last."""
    x, *parameters = layers.tensors(layers.jax_array, case)
    y, *statistics = keras_layers.forward(case, x.swapaxes(1, 2), *parameters, axis=-1, mask=case.beside)
    return [layers.to_array(value) for value in (y.swapaxes(1, 2) * case.beside[:, None, :], *statistics)]
