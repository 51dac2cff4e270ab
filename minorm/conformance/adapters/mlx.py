"""Run cases on MLX's layers, on the CPU, with channels last; MLX divides by N - 1 in its running variance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minorm.conformance.adapters import framework_layers as layers
from minorm.conformance.case import Case
from minorm.conformance.formula import trains_batch_norm


def answer(case: Case) -> list[Any]:
    """Run the case on MLX; return the outputs that the case asks for."""
    import mlx.core as mx

    return layers.fetched(case, forward(case, *layers.tensors(make_array, case)), mx.float32)


def make_array(array: Any, kind: str) -> Any:
    """Turn a NumPy array into an MLX array."""
    import mlx.core as mx

    if kind == "float64":
        raise NotImplementedError("MLX's layers do not support float64")
    mx.set_default_device(mx.cpu)
    return mx.array(array, getattr(mx, kind))


def forward(case: Case, x: Any, *parameters: Any) -> list[Any]:
    """Return y, and for a batch norm also its running statistics."""
    import mlx.core as mx
    import mlx.nn as nn

    layer = layers.find(LAYERS, case, "MLX")(nn, case, case.inputs[1].shape[0], case.get("epsilon", 1e-5))
    for name, value in zip(("weight", "bias", "running_mean", "running_var"), parameters, strict=False):
        layer[name] = value
    layer.train(case.operator == "BatchNormalization" and trains_batch_norm(case))
    if case.operator in ("LayerNormalization", "RMSNormalization"):
        return [layer(x)]
    y = mx.moveaxis(layer(mx.moveaxis(x, 1, -1)), -1, 1)
    if case.operator != "BatchNormalization":
        return [y]
    n, kept, var = x.size // max(1, x.shape[1]), case.get("momentum", 0.9) * parameters[3], layer["running_var"]
    return [y, layer["running_mean"], kept + (var - kept) * ((n - 1) / n) if layer.training and n else var]


def _layer_norm(nn: Any, case: Case, channels: int, eps: float) -> Any:
    if len(layers.axes_of(case)) > 1:
        raise NotImplementedError("MLX normalizes over the last axis only")
    more = {"bias": len(case.inputs) > 2} if case.operator == "LayerNormalization" else {}
    return getattr(nn, "LayerNorm" if more else "RMSNorm")(channels, eps, **more)


LAYERS: dict[str, Callable[..., Any]] = {
    "BatchNormalization": lambda nn, case, channels, eps: nn.BatchNorm(channels, eps, 1 - case.get("momentum", 0.9)),
    "InstanceNormalization": lambda nn, _, channels, eps: nn.InstanceNorm(channels, eps, affine=True),
    "GroupNormalization": lambda nn, case, dims, eps: nn.GroupNorm(case.get("num_groups", 1), dims, eps, True, True),
    "LayerNormalization": _layer_norm, "RMSNormalization": _layer_norm,
}  # fmt: skip
