"""Finds the device of an array, and moves arrays between devices: NumPy arrays are on the CPU, CuPy arrays on a GPU.

CuPy is imported only when the first array is put on a GPU. A device is a name, "cpu" or "cuda:0"; "cuda"
alone is the current GPU.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np

from minorm.devices import capture, driver
from minorm.support.argument_errors import each_argument, named_arguments

_host: dict[type, bool] = {np.ndarray: True}  # whether arrays of a type are on the CPU
KEPT_BYTES = 1 << 20  # the largest constant to cache; larger ones are copied each time
_ANYWHERE: AbstractContextManager[Any] = nullcontext()
_found: list[Any] = []  # the module cupy, once it has proved to work


def is_host(array: Any) -> bool:
    """Return False for a CuPy array, and True for NumPy arrays, scalars and all other objects."""
    kind = type(array)
    found = _host.get(kind)
    if found is None:
        found = _host[kind] = not any(base.__module__.partition(".")[0] == "cupy" for base in kind.__mro__)
    return found


def library() -> Any:
    """Return the module cupy; if CuPy or its driver is missing, raise a RuntimeError that says what to install."""
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


def namespace(array: Any) -> Any:
    """Return the module to which `array` belongs: numpy or cupy."""
    return np if is_host(array) else library()


# Names


class device(str):  # noqa: N801  PyTorch's name
    """The name of a device: device("cpu"), device("cuda:1"), device("cuda", 1). It is a str with `type` and `index`."""

    __slots__ = ()

    def __new__(cls, type: Any, index: int | None = None) -> device:
        """Raises ValueError for a name that is not a device."""
        name = f"cuda:{type}" if isinstance(type, int) else str(type) if index is None else f"{type}:{index}"
        kind, colon, number = name.partition(":")
        if kind not in ("cpu", "cuda") or (colon and not number.isdecimal()):
            raise ValueError(f"device: {name!r} is not supported; expected 'cpu', 'cuda' or 'cuda:0'")
        return super().__new__(cls, name)

    @property
    def type(self) -> str:
        """The kind of device: "cpu" or "cuda"."""
        return self.partition(":")[0]

    @property
    def index(self) -> int | None:  # type: ignore[override]
        """The number of the GPU; None if the name has no number."""
        number = self.partition(":")[2]
        return int(number) if number else None


_CPU = device("cpu")


def device_of(array: Any) -> device:
    """Return the name of the array's device: "cpu", or "cuda:0" for an array on the first GPU."""
    return _CPU if is_host(array) else _gpu(array.data.device_id)


@functools.cache
def _gpu(index: int) -> device:
    """Return the name of a GPU. Every tensor on the GPU has this one object as its device."""
    return device("cuda", index)


def same_device(a: Any, b: Any) -> bool:
    """Return whether two arrays are on the same device."""
    return type(a) is type(b) is np.ndarray or device_of(a) == device_of(b)


def is_device(value: Any) -> bool:
    """Return whether the value names a device: "cpu", "cuda", "cuda:1", or a torch.device."""
    return not isinstance(value, (np.dtype, type)) and str(value).partition(":")[0] in ("cpu", "cuda")


def device_index(device: Any) -> int | None:
    """Return the number of the GPU, or None for the CPU; raise ValueError if the name is not a device."""
    kind, colon, number = str(device).partition(":")
    if kind not in ("cpu", "cuda") or (colon and not number.isdecimal()):
        raise ValueError(f"device: {device!r} is not supported; expected 'cpu', 'cuda' or 'cuda:0'")
    if kind == "cpu":
        return None
    runtime = library().cuda.runtime
    index = int(number) if colon else int(runtime.getDevice())
    if index >= runtime.getDeviceCount():
        raise RuntimeError(f"device: {device!r} is not there; this machine has {runtime.getDeviceCount()} GPU(s)")
    return index


def device_name(device: Any) -> str:
    """Return the full name of a device, such as "cpu", or "cuda:0" for "cuda" if the first GPU is current."""
    index = device_index(device)
    return "cpu" if index is None else f"cuda:{index}"


# The current device, and arrays from one to another


@contextmanager
def on(device: Any) -> Iterator[Any]:
    """Yield the module for arrays on `device`, numpy or cupy, and make `device` current during the block."""
    index = None if device is None else device_index(device)
    if index is None:
        yield np
    else:
        with library().cuda.Device(index):
            yield library()


def on_device_of(array: Any) -> AbstractContextManager[Any]:
    """Return a context manager that makes the array's device current; CuPy needs this to compute with the array."""
    return _ANYWHERE if is_host(array) else array.device


def copied(array: Any) -> Any:
    """Return a copy of the array on the array's own device; CuPy's `copy` would copy to the current device."""
    with on_device_of(array):
        return array.copy()


def to_device(array: Any, device: Any) -> Any:
    """Return the array itself if it is on `device`, or else a copy of the array on `device`."""
    index = device_index(device)
    if is_host(array):
        if index is None:
            return array
        capture.refuse_copies(f"an array of shape {np.shape(array)}")
        with library().cuda.Device(index):
            return library().asarray(array)
    if index is None:
        capture.refuse_copies(f"an array of shape {array.shape}")
        with array.device:  # CuPy copies on the current stream, which must belong to this GPU
            return array.get()
    return array if array.device.id == index else _to_another_gpu(array, index)


def _to_another_gpu(array: Any, index: int) -> Any:
    """Return a copy of the array on the GPU number `index`.

    The current streams of the two GPUs wait for each other, so that the array stays valid meanwhile.
    """
    cuda = library().cuda
    with array.device:
        computed = cuda.get_current_stream().record()
    with cuda.Device(index):
        stream = cuda.get_current_stream()
        stream.wait_event(computed)
        copy = array.copy()  # to the current device
        read = stream.record()
    with array.device:
        cuda.get_current_stream().wait_event(read)
    return copy


def to_device_of(array: Any, like: Any) -> Any:
    """Return the NumPy array `array` itself if `like` is on the CPU, else a copy of it on the device of `like`."""
    return array if is_host(like) else to_device(array, device_of(like))


def constant_of(array: Any, like: Any) -> Any:
    """Return a cached copy of a NumPy array on the device of `like`; the copy must only be read.

    The array must depend only on shapes and settings. Then only the first step waits for the copy, and later steps can
    be captured as a CUDA graph.
    """
    if is_host(like):
        return array
    if array.nbytes > KEPT_BYTES:
        return to_device(array, device_of(like))
    kept, copied, made_on = _kept(device_of(like), array.dtype, array.shape, array.tobytes())
    with kept.device:
        current = library().cuda.get_current_stream()
        if (
            current.ptr != made_on.ptr and capture.recording() is None
        ):  # a capture begins when everything before it is done
            current.wait_event(copied)
    capture.hold(kept)
    return kept


@functools.lru_cache(maxsize=256)
def _kept(device: str, dtype: Any, shape: tuple[int, ...], content: bytes) -> tuple[Any, Any, Any]:
    """Return the array on the device, the event at the end of its copy, and the stream that made it."""
    array = to_device(np.ndarray(shape, dtype, content), device)
    with array.device:
        stream = library().cuda.get_current_stream()
        return array, stream.record(), stream


def scalar(value: Any, dtype: Any, like: Any) -> Any:
    """Return an array without axes on the device of `like`; on a GPU, nothing is copied from the CPU."""
    if is_host(like):
        return np.asarray(value, dtype)
    with like.device:
        return library().full((), value, dtype)


# Several devices in one operation


class DeviceError(RuntimeError):
    """Raised if the Tensors of one operation are on several devices."""


# Exceptions that NumPy, CuPy and our own functions raise for arrays on another device.
REFUSALS = (TypeError, ValueError, AttributeError, BufferError, RuntimeError)


def are_mixed(arrays: Sequence[Any]) -> bool:
    """Return whether the arrays are on different devices; the first array must be a CuPy array."""
    kind, place = type(arrays[0]), arrays[0].data.device_id
    for a in arrays:  # noqa: SIM110  any() would be a call for each array
        if a is not None and (type(a) is not kind or a.data.device_id != place):
            return True
    return False


def is_current(array: Any) -> bool:
    """Return whether a CuPy array is on the current GPU; then kernels for the array need no other context."""
    return bool(library().cuda.runtime.getDevice() == array.data.device_id)


def check_devices(name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise DeviceError if the Tensors among the arguments of a failed call are on several devices."""
    try:
        named = named_arguments(function, args, kwargs)
    except TypeError:
        return
    places = {place: tensor.device for place, tensor in each_argument(named) if hasattr(tensor, "creator")}
    if len(set(places.values())) > 1:
        listed = ", ".join(f"{key} is on {place}" for key, place in places.items())
        raise DeviceError(f"{name}: {listed}; expected one device; move them with .to(device)") from None
