"""Arrays choose the backend and the device: NumPy arrays run on the CPU kernels, CuPy arrays on the GPU kernels.

CuPy is imported when the first array is put on a GPU, never before. A device is a name, "cpu" or "cuda:0"; "cuda"
alone is the current one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np

from minorm.kernels import cpu, driver

_backends: dict[type, Any] = {np.ndarray: cpu}  # by the type of array
_ANYWHERE: AbstractContextManager[Any] = nullcontext()
_found: list[Any] = []  # the module cupy, once it was found to work


def backend(array: Any) -> Any:
    """The backend package for this array: modules norm, conv, pool, matmul, sums, elementwise, update, memory."""
    try:
        return _backends[type(array)]
    except KeyError:
        return _backend_of(type(array))


def _backend_of(kind: type) -> Any:
    """The same for a type met for the first time: NumPy's scalars and subclasses, and CuPy's array."""
    found: Any = cpu
    if any(base.__module__.partition(".")[0] == "cupy" for base in kind.__mro__):
        from minorm.kernels.gpu import backend as gpu  # it imports CuPy: that takes a second, and is not everywhere

        found = gpu
    _backends[kind] = found
    return found


def is_array(value: Any) -> bool:
    """True for an array of NumPy or of CuPy; numbers, NumPy's scalars among them, are none."""
    return isinstance(value, np.ndarray) or backend(value) is not cpu


def as_array(value: Any) -> Any:
    """`value` itself if it is an array, else a NumPy array of it: kernels give scalars for results without axes."""
    return value if is_array(value) else np.asarray(value)


def contiguous(array: Any) -> Any:
    """The array itself if it lies in row-major order, else a copy that does; np.ascontiguousarray refuses CuPy's."""
    return array if array.flags.c_contiguous else array.copy("C")


def namespace(array: Any) -> Any:
    """The module whose functions make arrays beside this one: numpy or cupy."""
    return np if backend(array) is cpu else library()


def library() -> Any:
    """The module cupy; RuntimeError that says what to install where there is no CuPy or no driver that it can use."""
    if _found:
        return _found[0]
    version = driver.version()
    try:
        import cupy
    except ImportError as error:
        raise RuntimeError(driver.advice(version, str(error))) from None
    if not cupy.cuda.is_available():
        raise RuntimeError(driver.advice(version, None, cupy.cuda.runtime.runtimeGetVersion()))
    _found.append(cupy)
    return cupy


# Devices


def device_of(array: Any) -> str:
    """The name of the device: "cpu", or "cuda:0" for an array on the first GPU."""
    return "cpu" if backend(array) is cpu else f"cuda:{array.device.id}"


def together(a: Any, b: Any) -> bool:
    """Are two arrays on one device?"""
    return type(a) is type(b) is np.ndarray or device_of(a) == device_of(b)


def overlap(a: Any, b: Any) -> bool:
    """Do two arrays lie in one stretch of memory, as an array and a view of it do?"""
    return bool(namespace(a).may_share_memory(a, b)) if type(a) is type(b) else False


def same(a: Any, b: Any) -> bool:
    """Are two arrays on one device the same elements in memory, in the same order?"""
    if a.shape != b.shape or a.strides != b.strides or type(a) is not type(b):
        return False
    return a.ctypes.data == b.ctypes.data if backend(a) is cpu else a.data.ptr == b.data.ptr


def is_device(value: Any) -> bool:
    """True for what names a device: "cpu", "cuda", "cuda:1", or a torch.device."""
    return not isinstance(value, (np.dtype, type)) and str(value).partition(":")[0] in ("cpu", "cuda")


def device_index(device: Any) -> int | None:
    """The number of the GPU, None for the CPU; ValueError for what names no device."""
    kind, colon, number = str(device).partition(":")
    if kind not in ("cpu", "cuda") or (colon and not number.isdecimal()):
        raise ValueError(f"device: {device!r} is none; expected 'cpu', 'cuda' or 'cuda:0'")
    if kind == "cpu":
        return None
    runtime = library().cuda.runtime
    index = int(number) if colon else int(runtime.getDevice())
    if index >= runtime.getDeviceCount():
        raise RuntimeError(f"device: {device!r} is not there; this machine has {runtime.getDeviceCount()} GPU(s)")
    return index


def device_name(device: Any) -> str:
    """The full name of a device: "cpu", or "cuda:0" for "cuda" while the first GPU is the current one."""
    index = device_index(device)
    return "cpu" if index is None else f"cuda:{index}"


@contextmanager
def on(device: Any) -> Iterator[Any]:
    """The module that makes arrays on this device, numpy or cupy, with the device the current one inside."""
    index = None if device is None else device_index(device)
    if index is None:
        yield np
    else:
        with library().cuda.Device(index):
            yield library()


def to_device(array: Any, device: Any) -> Any:
    """The array itself if it is on this device, else a copy there."""
    index = device_index(device)
    if backend(array) is cpu:
        if index is None:
            return array
        with library().cuda.Device(index):
            return library().asarray(array)
    if index is None:
        return array.get()
    if array.device.id == index:
        return array
    with library().cuda.Device(index):
        return array.copy()  # CuPy copies to the current device


def guard(array: Any) -> AbstractContextManager[Any]:
    """Inside, the device of this array is the current one, as CuPy wants it of the arrays that it computes on."""
    return _ANYWHERE if backend(array) is cpu else array.device


def scalar(value: Any, dtype: Any, like: Any) -> Any:
    """An array without axes beside `like`; nothing is copied to a device for it."""
    if backend(like) is cpu:
        return np.asarray(value, dtype)
    with like.device:
        return library().full((), value, dtype)


def beside(array: Any, like: Any) -> Any:
    """A NumPy array on the device of `like`."""
    return array if backend(like) is cpu else to_device(array, device_of(like))
