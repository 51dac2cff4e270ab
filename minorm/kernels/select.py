"""Arrays choose the backend: NumPy's run on the CPU kernels, CuPy's on the GPU kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.devices import is_host, namespace
from minorm.kernels import cpu

_backends: dict[type, Any] = {np.ndarray: cpu}  # by the type of array


def backend(array: Any) -> Any:
    """The backend package for this array: modules norm, conv, pool, matmul, sums, elementwise, random and others."""
    try:
        return _backends[type(array)]
    except KeyError:
        return _backend_of(array)


def _backend_of(array: Any) -> Any:
    """The same for a type met for the first time: NumPy's scalars and subclasses, and CuPy's array."""
    found: Any = cpu
    if not is_host(array):
        from minorm.kernels.gpu import modules as gpu  # it imports CuPy: that takes a second, and is not everywhere

        found = gpu
    _backends[type(array)] = found
    return found


def is_array(value: Any) -> bool:
    """True for an array of NumPy or of CuPy; numbers, NumPy's scalars among them, are none."""
    return isinstance(value, np.ndarray) or not is_host(value)


def as_array(value: Any) -> Any:
    """`value` itself if it is an array, else a NumPy array of it: kernels give scalars for results without axes."""
    return value if is_array(value) else np.asarray(value)


def contiguous(array: Any) -> Any:
    """The array itself if it lies in row-major order, else a copy that does; np.ascontiguousarray refuses CuPy's."""
    return array if array.flags.c_contiguous else backend(array).copying.copy(array, "C")


def overlap(a: Any, b: Any) -> bool:
    """Do two arrays lie in one stretch of memory, as an array and a view of it do?"""
    return bool(namespace(a).may_share_memory(a, b)) if type(a) is type(b) else False


def same(a: Any, b: Any) -> bool:
    """Are two arrays on one device the same elements in memory, in the same order?"""
    if a.shape != b.shape or a.strides != b.strides or type(a) is not type(b):
        return False
    return a.ctypes.data == b.ctypes.data if is_host(a) else a.data.ptr == b.data.ptr
