"""Constant, an array that the file holds.

Version 11 added sparse arrays, version 12 added numbers and lists of numbers, and version 13 added bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from minorm.devices import dtypes
from minorm.onnx.graph.errors import Unsupported
from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.registry import reads
from minorm.onnx.graph.storage import narrow
from minorm.tensor.tensor import Tensor

_TYPES = {
    "value_float": dtypes.float32,
    "value_floats": dtypes.float32,
    "value_int": dtypes.int64,
    "value_ints": dtypes.int64,
}


@reads("Constant", since=1)
def read_constant(node: Node) -> Callable[[], Tensor]:
    if len(node.attributes) != 1:
        raise ValueError(f"it has attributes {sorted(node.attributes)}; expected exactly one attribute")
    [(name, value)] = node.attributes.items()
    if name != "value" and name not in _TYPES:
        raise Unsupported(f"its contents are {name}; minorm reads value, {', '.join(_TYPES)}")
    tensor = narrow.tensor(value if name == "value" else np.array(value, _TYPES[name]))
    return lambda: tensor
