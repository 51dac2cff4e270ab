"""Chooses the backend by the type of an array: the CPU kernels for NumPy arrays, the GPU kernels for CuPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.devices import is_host, namespace
from minorm.kernels import cpu

_backends: dict[type, Any] = {np.ndarray: cpu}  # by the type of array


def backend(array: Any) -> Any:
    """Return the array's backend: a package with the modules norm, conv, pool, matmul, sums, random and others."""
    try:
        return _backends[type(array)]
    except KeyError:
        return _backend_of(array)


def _backend_of(array: Any) -> Any:
    """Return the backend for a type that is not in the table yet: NumPy's scalars and subclasses, or CuPy's array."""
    found: Any = cpu
    if not is_host(array):
        from minorm.kernels.gpu import modules as gpu  # slow, and CuPy may not be installed

        found = gpu
    _backends[type(array)] = found
    return found


def is_array(value: Any) -> bool:
    """Return True if the value is a NumPy or CuPy array. Numbers, including NumPy's scalars, are not arrays."""
    return isinstance(value, np.ndarray) or not is_host(value)


def as_array(value: Any) -> Any:
    """Return `value` as an array. Kernels return NumPy scalars for results without axes."""
    return value if not is_host(value) or isinstance(value, np.ndarray) else np.asarray(value)


def contiguous(array: Any) -> Any:
    """Return the array itself if it is row-major, else a row-major copy. np.ascontiguousarray refuses CuPy's arrays."""
    return array if array.flags.c_contiguous else backend(array).copying.copy(array, "C")


def overlap(a: Any, b: Any) -> bool:
    """Return True if two arrays share memory, for example an array and a view of it."""
    return bool(namespace(a).may_share_memory(a, b)) if type(a) is type(b) else False


def same(a: Any, b: Any) -> bool:
    """Return True if two arrays on one device have the same memory, shape and steps."""
    if a.shape != b.shape or a.strides != b.strides or type(a) is not type(b):
        return False
    return a.ctypes.data == b.ctypes.data if is_host(a) else a.data.ptr == b.data.ptr
