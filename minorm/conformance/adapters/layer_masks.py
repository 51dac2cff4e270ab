"""A batch norm with a mask, in the frameworks whose layers have one: x is (samples, channels, positions)."""

from __future__ import annotations

from typing import Any

from minorm.conformance.adapters import flax as flax_layers
from minorm.conformance.adapters import framework_layers as layers
from minorm.conformance.adapters import keras as keras_layers
from minorm.conformance.case import Case


def flax(case: Case) -> list[Any]:
    """The mask broadcasts over x."""
    import jax

    jax.config.update("jax_enable_x64", True)
    mask = case.beside[:, None, :]
    y, *statistics = flax_layers.forward(case, *layers.tensors(jax.numpy.asarray, case), mask=mask)
    return [layers.to_array(value) for value in (y * mask, *statistics)]


def keras(case: Case) -> list[Any]:
    """The mask lacks the axis of channels, which is the last."""
    import jax

    jax.config.update("jax_enable_x64", True)
    x, *parameters = layers.tensors(jax.numpy.asarray, case)
    y, *statistics = keras_layers.forward(case, x.swapaxes(1, 2), *parameters, axis=-1, mask=case.beside)
    return [layers.to_array(value) for value in (y.swapaxes(1, 2) * case.beside[:, None, :], *statistics)]
