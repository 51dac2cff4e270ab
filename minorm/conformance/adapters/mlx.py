"""MLX's layers on the CPU. Translated: channels are its last axis; its running variance divides by N - 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minorm.conformance.adapters import framework_layers as layers
from minorm.conformance.case import Case
from minorm.conformance.formula import trains_batch_norm


def answer(case: Case) -> list[Any]:
    """The outputs that are fetched."""
    import mlx.core as mx
    import mlx.nn as nn

    mx.set_default_device(mx.cpu)
    make = layers.find(LAYERS, case, "MLX")
    if any(array.dtype.itemsize > 4 for array in case.inputs):
        raise NotImplementedError("MLX's layers have no float64")
    x, *parameters = [layers.to_tensor(lambda a, kind: mx.array(a, getattr(mx, kind)), a) for a in case.inputs]
    layer = make(nn, case, case.inputs[1].shape[0], case.get("epsilon", 1e-5))
    for name, value in zip(("weight", "bias", "running_mean", "running_var"), parameters, strict=False):
        layer[name] = value
    layer.train(case.operator == "BatchNormalization" and trains_batch_norm(case))
    if case.operator in ("LayerNormalization", "RMSNormalization"):
        results = [layer(x)]
    else:
        results = [mx.moveaxis(layer(mx.moveaxis(x, 1, -1)), -1, 1)]
    if case.operator == "BatchNormalization":
        n, kept = x.size // max(1, x.shape[1]), case.get("momentum", 0.9) * parameters[3]
        var = layer["running_var"]
        results += [layer["running_mean"], kept + (var - kept) * ((n - 1) / n) if layer.training and n else var]
    return [layers.to_array(results[place], mx.float32) for place, _ in case.wanted]


def _batch_norm(nn: Any, case: Case, channels: int, eps: float) -> Any:
    return nn.BatchNorm(channels, eps, 1 - case.get("momentum", 0.9))


def _instance_norm(nn: Any, case: Case, channels: int, eps: float) -> Any:  # noqa: ARG001  as the others
    return nn.InstanceNorm(channels, eps, affine=True)


def _group_norm(nn: Any, case: Case, channels: int, eps: float) -> Any:
    return nn.GroupNorm(case.attributes["num_groups"], channels, eps, pytorch_compatible=True)


def _layer_norm(nn: Any, case: Case, channels: int, eps: float) -> Any:
    if len(layers.axes_of(case)) > 1:
        raise NotImplementedError("MLX normalizes over the last axis alone")
    more = {"bias": len(case.inputs) > 2} if case.operator == "LayerNormalization" else {}
    return getattr(nn, "LayerNorm" if more else "RMSNorm")(channels, eps, **more)


LAYERS: dict[str, Callable[..., Any]] = {
    "BatchNormalization": _batch_norm, "InstanceNormalization": _instance_norm, "GroupNormalization": _group_norm,
    "LayerNormalization": _layer_norm, "RMSNormalization": _layer_norm,
}  # fmt: skip
