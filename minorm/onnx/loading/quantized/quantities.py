"""Find the scale and the zero point of the bytes in a quantized graph, if the file fixes both."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.onnx.graph.reading import Node
from minorm.onnx.loading.wiring import Wiring

SAME = ("Flatten", "Identity", "MaxPool", "Reshape", "Squeeze", "Transpose", "Unsqueeze")  # these only move numbers
MOST = 8  # the most of these nodes between a DequantizeLinear and the node that reads it


@dataclass(frozen=True)
class Quantity:
    """Describes the inputs of a DequantizeLinear: the names, and the arrays that hold scale and zero point."""

    name: str
    scale_name: str
    zero_name: str  # or ""
    scale: Any
    zero: Any  # or None
    dtype: Any
    axis: int

    @property
    def inputs(self) -> tuple[str, str, str]:
        """Return the three input names with which a node with byte inputs reads this value."""
        return self.name, self.scale_name, self.zero_name


def dequantized(value: str, w: Wiring) -> Quantity | None:
    """Return the bytes of a value that comes from a DequantizeLinear; None if the value does not come from one.

    After the DequantizeLinear, there may be nodes that only move numbers (SAME).
    """
    behind = makers(value, w)
    if not behind or any(node.conditions or len(node.outputs) > 1 for node in behind):
        return None
    found = quantity(behind[-1], behind[-1].inputs[0], w)
    if found is None or len(behind) == 1:
        return found
    return replace(found, name=carried(value, w)) if found.scale.size == 1 else None


def makers(value: str, w: Wiring) -> list[Node]:
    """Return the nodes from a value back to its DequantizeLinear; [] if the value does not come from one.

    All nodes in between must only move numbers (SAME).
    """
    found: list[Node] = []
    while (maker := w.maker(value, "DequantizeLinear", *SAME)) is not None and len(found) <= MOST:
        found.append(maker)
        if maker.operator == "DequantizeLinear":
            return found
        value = maker.inputs[0]
    return []


def carried(value: str, w: Wiring) -> str:
    """Return a name for the bytes of a value; the file does not use this name yet."""
    return unused(f"{value} bytes", w)


def unused(name: str, w: Wiring) -> str:
    """Return this name, or a longer name if the file already uses this name."""
    while name in w.makers or name in w.arrays or name in w.readers:
        name += "'"
    return name


def held(name: str, w: Wiring) -> Any:
    """Return the array of the file that is the value, or that a QuantizeLinear rounds to the value; else None."""
    maker = w.maker(name, "QuantizeLinear")
    return w.arrays.get(name if maker is None else maker.inputs[0])


def quantity(node: Node, name: str, w: Wiring) -> Quantity | None:
    """Describe the bytes of a (De)QuantizeLinear with fixed scales: one scale, or one for each index of an axis."""
    scale = fixed(node.inputs[1], w)
    zero_name = node.inputs[2] if node.has(2) else ""
    zero = fixed(zero_name, w) if zero_name else None
    if scale is None or scale.dtype != np.float32 or (zero_name and zero is None) or node.get("block_size", 0):
        return None
    if not (np.isfinite(scale).all() and (scale > 0).all()) or node.get("output_dtype", 0) not in (0, 1, 2, 3):
        return None
    dtype = w.types.get(name) if zero is None else zero.dtype
    if w.types.get(name, dtype) != dtype:
        return None
    if dtype is None and node.operator == "QuantizeLinear" and not node.get("output_dtype", 0):
        dtype = dtypes.uint8
    if dtype not in dtypes.BYTES or scale.ndim > 1 or (zero is not None and zero.size != scale.size):
        return None
    return Quantity(name, node.inputs[1], zero_name, scale, zero, dtype, node.get("axis", 1))


def fixed(name: str, w: Wiring) -> Any:
    """Return the array of a fixed value: a tensor of the file, a Constant, or the product of two scales."""
    maker = w.maker(name, "Mul")
    if maker is None:
        return _tensor(name, w)
    a, b = (_tensor(part, w) for part in maker.inputs)
    if a is None or b is None or max(a.ndim, b.ndim) > 1 or not (a.shape == b.shape or 1 in (a.size, b.size)):
        return None
    return a * b


def _tensor(name: str, w: Wiring) -> Any:
    if name in w.arrays:
        return w.arrays[name]
    maker = w.maker(name, "Constant")
    value = None if maker is None else maker.attributes.get("value")
    return value if isinstance(value, np.ndarray) else None
