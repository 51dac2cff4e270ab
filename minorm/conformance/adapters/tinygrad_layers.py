"""Compute gradients with tinygrad's layers (tinygrad.nn). The module tinygrad.py runs ONNX files instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minorm.conformance.adapters import framework_layers as layers
from minorm.conformance.case import Case
from minorm.conformance.formula import trains_batch_norm
from minorm.devices.dtypes import bfloat16


def gradients(case: Case) -> list[Any]:
    """Return the gradients of tinygrad's layer, computed with `Tensor.gradient`."""
    from tinygrad import Tensor, dtypes
    from tinygrad.helpers import TRAINING, Context

    def make(array: Any, kind: str) -> Any:
        return Tensor(array).cast(getattr(dtypes, kind)).contiguous().realize()

    given, dy = layers.tensors(make, case), layers.to_tensor(make, case.beside)
    layer = layers.find(LAYERS, case, "tinygrad")(case, case.get("epsilon", 1e-5))
    for name, value in zip(("weight", "bias", "running_mean", "running_var"), given[1:], strict=False):
        setattr(layer, name, value)
    asked = given[: len(case.wanted)]
    with Context(**{TRAINING.key: int(case.operator == "BatchNormalization" and trains_batch_norm(case))}):
        found = (layer(given[0]) * dy).sum().gradient(*asked)
        return [_to_array(gradient, dtypes) for gradient in found]


def _to_array(value: Any, dtypes: Any) -> Any:
    return value.float().numpy().astype(bfloat16) if value.dtype == dtypes.bfloat16 else value.numpy()


def _batch_norm(case: Case, eps: float) -> Any:
    from tinygrad import nn

    return nn.BatchNorm(case.inputs[0].shape[1], eps, momentum=1 - case.get("momentum", 0.9))


def _grouped(case: Case, eps: float) -> Any:
    from tinygrad import nn

    channels = case.inputs[0].shape[1]
    return nn.GroupNorm(case.attributes.get("num_groups", channels), channels, eps)


def _last_axes(case: Case, eps: float) -> Any:
    from tinygrad import nn

    if case.operator == "RMSNormalization":
        return nn.RMSNorm(case.inputs[0].shape[-1], eps)
    return nn.LayerNorm(case.inputs[1].shape, eps)


LAYERS: dict[str, Callable[..., Any]] = {
    "BatchNormalization": _batch_norm, "InstanceNormalization": _grouped, "GroupNormalization": _grouped,
    "LayerNormalization": _last_axes, "RMSNormalization": _last_axes,
}  # fmt: skip
