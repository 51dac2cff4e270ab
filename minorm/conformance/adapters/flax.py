"""Run cases on Flax's layers (flax.nnx), on JAX and with default settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minorm.conformance.adapters import framework_layers as layers
from minorm.conformance.case import Case
from minorm.conformance.formula import trains_batch_norm


def answer(case: Case) -> list[Any]:
    """Run the case on Flax; return the outputs that the case asks for."""
    return layers.fetched(case, forward(case, *layers.tensors(layers.jax_array, case)))


def forward(case: Case, x: Any, *parameters: Any, **more: Any) -> list[Any]:
    """Return y, and for a batch norm also its running statistics.

    `more` are further arguments for the call of the layer.
    """
    import jax
    from flax import nnx

    make = layers.find(LAYERS, case, "Flax")
    layer = make(nnx, case, {"epsilon": case.get("epsilon", 1e-5), "rngs": nnx.Rngs(0)})
    for name, value in zip(("scale", "bias", "mean", "var"), parameters, strict=False):
        getattr(layer, name).value = value
    if case.operator in ("InstanceNormalization", "GroupNormalization"):  # channels are their last axis
        return [jax.numpy.moveaxis(layer(jax.numpy.moveaxis(x, 1, -1)), -1, 1)]
    return [layer(x, **more), *(getattr(layer, name).value for name in ("mean", "var") if hasattr(layer, name))]


def _batch_norm(nnx: Any, case: Case, given: Any) -> Any:
    keep, stored = case.get("momentum", 0.9), not trains_batch_norm(case)
    return nnx.BatchNorm(case.inputs[0].shape[1], use_running_average=stored, axis=1, momentum=keep, **given)


def _instance_norm(nnx: Any, case: Case, given: Any) -> Any:
    return nnx.InstanceNorm(case.inputs[0].shape[1], **given)


def _group_norm(nnx: Any, case: Case, given: Any) -> Any:
    return nnx.GroupNorm(case.inputs[0].shape[1], num_groups=case.attributes["num_groups"], **given)


def _layer_norm(nnx: Any, case: Case, given: Any) -> Any:
    if len(layers.axes_of(case)) > 1:
        raise NotImplementedError("Flax's LayerNorm has scales along one axis only")
    if case.operator == "RMSNormalization":
        return nnx.RMSNorm(case.inputs[0].shape[-1], **given)
    return nnx.LayerNorm(case.inputs[0].shape[-1], use_bias=len(case.inputs) > 2, **given)


LAYERS: dict[str, Callable[..., Any]] = {
    "BatchNormalization": _batch_norm, "InstanceNormalization": _instance_norm, "GroupNormalization": _group_norm,
    "LayerNormalization": _layer_norm, "RMSNormalization": _layer_norm,
}  # fmt: skip
