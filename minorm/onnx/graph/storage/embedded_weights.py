"""Copy the weights from other files into the model itself."""

from __future__ import annotations

from typing import Any

from onnx import TensorProto

from minorm.onnx.graph import tensors
from minorm.onnx.graph.encoding import fill
from minorm.onnx.graph.node_rewriter import tensors_of
from minorm.onnx.graph.tensors import Budget


def is_outside(model: Any) -> bool:
    """Return True if some weights of a model are in other files."""
    return any(tensor.data_location == TensorProto.EXTERNAL for tensor in tensors_of(model))


def bring_in(model: Any, folder: Any, budget: Budget) -> None:
    """Copy the weights from the files in `folder` into the model."""
    for tensor in tensors_of(model):
        if tensor.data_location == TensorProto.EXTERNAL:
            array = tensors.read(tensor, f"initializer {tensor.name!r}", folder, budget)
            tensor.ClearField("data_location")
            del tensor.external_data[:]
            fill([(tensor, array)], "load")
