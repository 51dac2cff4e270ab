"""Read, cast and dequantize element types of 8, 4 and 2 bits.

minorm does not compute with these types, and `minorm.tensor` refuses them. In a loaded graph, a value of such a type is
a Tensor whose array has a type of ml_dtypes, with one byte per element. Only Cast, CastLike, QuantizeLinear and
DequantizeLinear take such Tensors. Only QuantizeLinear has a gradient, and passes it on unchanged.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from minorm.devices import dtypes
from minorm.tensor.tensor import Tensor

_NAMES = {
    "FLOAT8E4M3FN": ("float8_e4m3fn", 8),
    "FLOAT8E4M3FNUZ": ("float8_e4m3fnuz", 8),
    "FLOAT8E5M2": ("float8_e5m2", 8),
    "FLOAT8E5M2FNUZ": ("float8_e5m2fnuz", 8),
    "FLOAT8E8M0": ("float8_e8m0fnu", 8),
    "FLOAT4E2M1": ("float4_e2m1fn", 4),
    "INT4": ("int4", 4),
    "UINT4": ("uint4", 4),
    "INT2": ("int2", 2),
    "UINT2": ("uint2", 2),
}  # ONNX's name -> the name in ml_dtypes, and the bits of an element in a file

TYPES: dict[int, np.dtype[Any]] = {}  # by ONNX's number
BITS: dict[np.dtype[Any], int] = {}
for _name, (_own, _bits) in _NAMES.items():
    if hasattr(dtypes.ml_dtypes, _own) and _name in TensorProto.DataType.keys():  # noqa: SIM118  no mapping
        TYPES[TensorProto.DataType.Value(_name)] = np.dtype(getattr(dtypes.ml_dtypes, _own))
        BITS[TYPES[TensorProto.DataType.Value(_name)]] = _bits

INTEGERS = frozenset(dtype for dtype in BITS if "int" in dtype.name)
POWERS = next((dtype for dtype in BITS if dtype.name == "float8_e8m0fnu"), None)  # powers of two without a sign


def tensor(array: Any) -> Tensor:
    """Make a Tensor around an array; the array may have a narrow type."""
    if isinstance(array, np.ndarray) and array.dtype in BITS:
        return Tensor.from_array(array)
    return Tensor(array)


def nbytes(dtype: np.dtype[Any], count: int) -> int:
    """Return the number of bytes that `count` elements take in a file."""
    return -(-count * BITS[dtype] // 8)


def unpacked(raw: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    """Unpack elements from bytes that each hold several elements; the first element is in the lowest bits."""
    bits, count = BITS[dtype], int(np.prod(shape))
    whole = np.frombuffer(raw, np.uint8)
    if bits < 8:
        parts = [(whole >> shift) & (2**bits - 1) for shift in range(0, 8, bits)]
        whole = np.stack(parts, -1).reshape(-1)[:count]
    if dtype.name.startswith("int"):
        whole = np.where(whole >= 2 ** (bits - 1), whole.astype(np.int8) - 2**bits, whole).astype(np.int8)
        return whole.astype(dtype).reshape(shape)
    return (whole.astype(dtype) if dtype in INTEGERS else whole.view(dtype)).reshape(shape)


def cast(x: Any, dtype: np.dtype[Any], saturate: bool = True, round_mode: str = "up") -> Any:
    """Cast an array to a narrow type; `saturate` limits the numbers to the range of a float type."""
    if dtype == POWERS:
        return _power(x, saturate, round_mode)
    x = x.astype(np.float32) if x.dtype in BITS or x.dtype in dtypes.HALVES else x
    if saturate and dtype not in INTEGERS:
        most = float(dtypes.finfo(dtype).max)
        x = np.clip(x, -most, most)
    if dtype in INTEGERS and dtypes.is_float(x.dtype):
        x = x.astype(np.int64)
    return x.astype(dtype)


def _power(x: Any, saturate: bool, round_mode: str) -> Any:
    """Round to the next power of two above or below, or to the nearest one; NaN and infinity become NaN."""
    if round_mode not in ("up", "down", "nearest"):
        raise ValueError(f"round_mode is {round_mode!r}; expected up, down or nearest")
    bits = x.astype(np.float32).view(np.uint32)
    exponent, fraction = (bits >> 23 & 0xFF).astype(np.int32), bits & 0x7FFFFF
    least = {"up": 1, "nearest": 1 << 22, "down": 1 << 23}[round_mode]
    higher = np.minimum(exponent + (fraction >= least), 0xFE if saturate else 0xFF)
    return np.where(exponent == 0xFF, 0xFF, higher).astype(np.uint8).view(POWERS)


def widened(x: Any, dtype: np.dtype[Any]) -> Any:
    """Convert an array of a narrow type to one of minorm's types."""
    wide = x.astype(np.int64 if x.dtype in INTEGERS else np.float32)
    return wide.astype(dtype)
