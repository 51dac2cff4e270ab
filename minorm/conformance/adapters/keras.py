"""Run cases on the layers of Keras 3, on JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minorm.conformance.adapters import framework_layers as layers
from minorm.conformance.case import Case
from minorm.conformance.formula import trains_batch_norm

WEIGHTS = ("gamma", "scale", "beta", "moving_mean", "moving_variance")  # `scale` is RMSNormalization's


def answer(case: Case) -> list[Any]:
    """Run the case on Keras; return the outputs that the case asks for."""
    return layers.fetched(case, forward(case, *layers.tensors(layers.jax_array, case)))


def forward(case: Case, x: Any, *parameters: Any, axis: int = 1, **more: Any) -> list[Any]:
    """Return y, and for a batch norm also its statistics.

    `axis` is the channel axis. `more` are further arguments for the call of the layer.
    """
    import keras

    make = layers.find(LAYERS, case, "Keras")
    kind = str(case.inputs[0].dtype)
    if any(str(array.dtype) != kind for array in case.inputs):
        raise NotImplementedError("a Keras layer requires the same type for x and all weights")
    layer = make(keras.layers, case, {"epsilon": case.get("epsilon", 1e-5), "dtype": kind}, axis)
    layer.build(x.shape)
    names = [name for name in WEIGHTS if hasattr(getattr(layer, name, None), "assign")]
    for name, value in zip(names, parameters, strict=False):
        getattr(layer, name).assign(value)
    trains = case.operator == "BatchNormalization" and trains_batch_norm(case)
    y = layer(x, training=True, **more) if trains else layer(x)
    return [y, *(getattr(layer, name).value for name in names if name.startswith("moving"))]


def _batch_norm(keras: Any, case: Case, given: Any, axis: int) -> Any:
    return keras.BatchNormalization(axis=axis, momentum=case.get("momentum", 0.9), **given)


def _group_norm(keras: Any, case: Case, given: Any, axis: int) -> Any:
    return keras.GroupNormalization(case.get("num_groups", -1), axis=axis, **given)  # -1: a group a channel


def _layer_norm(keras: Any, case: Case, given: Any, _: int) -> Any:
    axes = list(layers.axes_of(case))
    if case.operator == "RMSNormalization":
        return keras.RMSNormalization(axis=axes, **given)
    return keras.LayerNormalization(axis=axes, center=len(case.inputs) > 2, **given)


LAYERS: dict[str, Callable[..., Any]] = {
    "BatchNormalization": _batch_norm, "InstanceNormalization": _group_norm, "GroupNormalization": _group_norm,
    "LayerNormalization": _layer_norm, "RMSNormalization": _layer_norm,
}  # fmt: skip
