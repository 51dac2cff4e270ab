"""The element types of a Tensor: NumPy's own, and bfloat16 from ml_dtypes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

float16 = np.dtype(np.float16)
bfloat16 = np.dtype(ml_dtypes.bfloat16)
float32 = np.dtype(np.float32)
float64 = np.dtype(np.float64)
int8, int16, int32, int64 = (np.dtype(name) for name in ("int8", "int16", "int32", "int64"))
uint8, uint16, uint32, uint64 = (np.dtype(name) for name in ("uint8", "uint16", "uint32", "uint64"))
bool = np.dtype(np.bool_)

FLOATS = frozenset({float16, bfloat16, float32, float64})
HALVES = frozenset({float16, bfloat16})
ALL = FLOATS | {int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool}


def is_float(dtype: np.dtype[Any]) -> Any:
    """True for the four types that can carry a gradient (bfloat16 is no np.floating, so ask here)."""
    return dtype in FLOATS


def compute_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type that arithmetic on `dtype` is done in: float32 for the 16-bit floats, itself otherwise."""
    return float32 if dtype in HALVES else dtype


def check(dtype: Any) -> np.dtype[Any]:
    """`dtype` as np.dtype, or a TypeError that lists what a Tensor can hold."""
    found = np.dtype(dtype)
    if found.newbyteorder("=") not in ALL:
        raise TypeError(f"tensor: dtype {found} is not supported; expected one of {', '.join(sorted(map(str, ALL)))}")
    return found.newbyteorder("=")
