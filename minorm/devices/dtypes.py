"""Defines the element types of a Tensor: NumPy's, and bfloat16 of ml_dtypes, a package that browsers may lack."""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.support.argument_errors import checked
from minorm.support.documented import documented

try:
    import ml_dtypes
except ModuleNotFoundError:
    ml_dtypes = None


class _Missing:
    """Stands for `bfloat16` if ml_dtypes is missing: no array has this type, and its repr says what is missing."""

    def __repr__(self) -> str:
        return "bfloat16 (it needs the package ml_dtypes, which is not installed)"


float16 = np.dtype(np.float16)
bfloat16: Any = np.dtype(ml_dtypes.bfloat16) if ml_dtypes else _Missing()
float32 = np.dtype(np.float32)
float64 = np.dtype(np.float64)
int8, int16, int32, int64 = (np.dtype(name) for name in ("int8", "int16", "int32", "int64"))
uint8, uint16, uint32, uint64 = (np.dtype(name) for name in ("uint8", "uint16", "uint32", "uint64"))
bool = np.dtype(np.bool_)

half, float, double, short, int, long = float16, float32, float64, int16, int32, int64  # PyTorch's other names
contiguous_format, preserve_format = "contiguous", "preserve"  # orders in memory: tensor/memory_formats.py
channels_last, channels_last_3d = "channels_last", "channels_last_3d"
_limits: Any = ml_dtypes or np
finfo, iinfo = _limits.finfo, _limits.iinfo  # the limits of a type: mn.finfo(x.dtype).min
dtype = np.dtype  # the class of all types: isinstance(x.dtype, mn.dtype)

HALVES: frozenset[np.dtype[Any]] = frozenset({float16, bfloat16} if ml_dtypes else {float16})
FLOATS: frozenset[np.dtype[Any]] = HALVES | {float32, float64}
BYTES: frozenset[np.dtype[Any]] = frozenset({int8, uint8})
ALL: frozenset[np.dtype[Any]] = FLOATS | {int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool}
_OWN: dict[Any, Any] = {kind: kind for kind in ALL}  # maps equal types to the objects above, so that `is` works


def is_float(dtype: np.dtype[Any]) -> Any:
    """Return whether the type is one of the four float types; np.issubdtype does not know bfloat16."""
    return dtype in FLOATS


def compute_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type in which `dtype` is computed: float32 for 16-bit floats, and the type itself otherwise."""
    return float32 if dtype in HALVES else dtype


def check(dtype: Any, operation: str = "tensor") -> np.dtype[Any]:
    """Return `dtype` as np.dtype; if no Tensor can have this type, raise a TypeError that lists the allowed types."""
    if ml_dtypes is None and (dtype is bfloat16 or (isinstance(dtype, str) and dtype == "bfloat16")):
        raise TypeError(f"{operation}: dtype bfloat16 needs the package ml_dtypes, which is not installed")
    try:
        found = np.dtype(dtype)
    except TypeError:  # x.to("gpu") comes here too
        raise TypeError(
            f"{operation}: {dtype!r} is no dtype; expected one of {_all()}; a device is 'cpu', 'cuda' or 'cuda:0'"
        ) from None
    own = _OWN.get(found.newbyteorder("="))
    if own is None:
        raise TypeError(f"{operation}: dtype {found} is not supported; expected one of {_all()}")
    return own


def check_float(operation: str, dtype: Any) -> np.dtype[Any]:
    """Return `dtype` as np.dtype; raise TypeError unless it is one of the four float types."""
    found = check(dtype, operation)
    if not is_float(found):
        raise TypeError(f"{operation}: dtype is {found}; expected a float type (float16, bfloat16, float32, float64)")
    return found


def _all() -> str:
    return ", ".join(sorted(map(str, ALL)))


def largest(kind: np.dtype[Any]) -> Any:
    """Return the largest finite number of a float type."""
    return finfo(kind).max


# The float type of Python's numbers, unless an argument names another

_default = [float32]


def get_default_dtype() -> np.dtype[Any]:
    """Return the default float type, for Tensors from Python's floats, for zeros() and randn(), and for new layers."""
    return _default[0]


@documented({}, d="a float type")
@checked
def set_default_dtype(d: Any) -> None:
    """Make `d` the default float type for new Tensors and layers, in every thread.

    Raises TypeError if `d` is not a float type.

    Example:
        >>> mn.set_default_dtype(mn.float64)
        >>> mn.zeros(1).dtype
        dtype('float64')
        >>> mn.set_default_dtype(mn.float32)
    """
    kind = check(d)
    if kind not in FLOATS:
        raise TypeError(f"set_default_dtype: d is {kind}; expected a float type")
    _default[0] = kind
