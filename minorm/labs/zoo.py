"""Makes the ONNX models of lab 10 as arrays of bytes. Each model has one normalization; all versions are possible.

The onnx package is imported only to make or read a model, so that the other labs do not need this package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

LONG_NAME = "ai.onnx"  # the long name of the domain whose short name is ""
INPUTS = {
    "BatchNormalization": ("x", "s", "b", "mean", "var"),
    "GroupNormalization": ("x", "s", "b"),
}


def specimen(
    operator: str,
    opset: int,
    x: Any,
    parameters: Sequence[Any],
    attributes: Mapping[str, Any] | None = None,
    outputs: Sequence[str] = ("y",),
    domain: str = "",
    others: Mapping[str, int] | None = None,
    prefix: str = "",
) -> Any:
    """Make a model of one node as an array of bytes. x is an input of the model, the parameters are initializers.

    domain   the name of the opset's domain, "" or "ai.onnx"
    others   the opsets of other domains, which come first in the model's list
    prefix   the prefix of the names of x and the parameters
    """
    from onnx import helper, numpy_helper

    names = [prefix + name for name in INPUTS[operator]]
    node = helper.make_node(operator, names, list(outputs), **dict(attributes or {}))
    graph = helper.make_graph(
        [node],
        "specimen",
        [helper.make_tensor_value_info(names[0], helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)],
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(kind), shape)
            for name, kind, shape in zip(outputs, _types(x, parameters), _shapes(x, parameters), strict=False)
            if name
        ],
        [numpy_helper.from_array(value, name) for value, name in zip(parameters, names[1:], strict=True)],
    )
    imports = [helper.make_opsetid(name, version) for name, version in (others or {}).items()]
    model = helper.make_model(graph, opset_imports=[*imports, helper.make_opsetid(domain, opset)], ir_version=10)
    return np.frombuffer(model.SerializeToString(), np.uint8)


def parsed(data: Any) -> Any:
    """Parse these bytes into a ModelProto."""
    import onnx

    return onnx.load_model_from_string(bytes(data))


def _types(x: Any, parameters: Sequence[Any]) -> list[Any]:
    """Return the element types of the outputs: y, running mean and variance, batch mean and variance."""
    return [x.dtype, parameters[-1].dtype, parameters[-1].dtype, x.dtype, x.dtype]


def _shapes(x: Any, parameters: Sequence[Any]) -> list[tuple[int, ...]]:
    """Return the outputs' shapes."""
    return [x.shape, *[parameters[-1].shape] * 4]
