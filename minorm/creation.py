"""Making Tensors: from data (a copy), around an array (no copy), or filled with numbers. Names are PyTorch's.

`device` is "cpu" or None, "cuda" or "cuda:1". Random numbers are drawn on the CPU and then moved, so that a seed gives
the same ones everywhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm import devices, dtypes, random
from minorm.kernels import select
from minorm.mistakes import checked
from minorm.ops.operands import sizes_of
from minorm.tensor import Tensor


@checked
def tensor(data: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A Tensor with a copy of `data`: numbers, nested lists, an array or a Tensor.

    Python floats become float32; arrays keep their type. It is made on `device`; None is where the data is.
    """
    source = data.array if isinstance(data, Tensor) else data
    if select.is_array(source) and not isinstance(source, np.ndarray):
        kind = source.dtype if dtype is None else dtypes.check(dtype)
        moved = source if device is None else devices.to_device(source, device)
        with devices.on_device_of(moved):
            return Tensor(moved.astype(kind, copy=moved is source), requires_grad)
    array = np.array(source, dtype=None if dtype is None else dtypes.check(dtype), order="C")
    if dtype is None:
        python_floats = not hasattr(source, "dtype") and array.dtype == np.float64 and not _holds_arrays(source)
        array = array.astype(dtypes.float32 if python_floats else dtypes.check(array.dtype), copy=False)
    return Tensor(array if device is None else devices.to_device(array, device), requires_grad)


_CUDA = (2, 13)  # DLPack's numbers for memory of a GPU, and for memory that GPU and CPU share


def _holds_arrays(data: Any) -> bool:
    """True for a list with arrays or NumPy scalars in it, whose own type then counts."""
    if isinstance(data, (list, tuple)):
        return any(_holds_arrays(item) for item in data)
    return hasattr(data, "dtype")


@checked
def from_numpy(array: Any) -> Tensor:
    """A Tensor around a NumPy array, sharing its memory."""
    if not isinstance(array, np.ndarray):
        raise TypeError(
            f"from_numpy: got {type(array).__name__}; expected a NumPy array; minorm.tensor(data) copies others"
        )
    if array.dtype != dtypes.check(array.dtype):
        raise TypeError(
            f"from_numpy: byte order {array.dtype.byteorder!r} is foreign; expected native; "
            "use array.astype(array.dtype.newbyteorder('='))"
        )
    return Tensor(array)


@checked
def from_dlpack(source: Any) -> Tensor:
    """A Tensor around another library's array, on the CPU or a GPU, sharing its memory through DLPack.

    On a GPU the current stream waits for what the other library's stream has still to do, and the host waits for none.
    """
    if source.__dlpack_device__()[0] in _CUDA:
        return Tensor(devices.library().from_dlpack(source))
    return Tensor(np.from_dlpack(source))


@checked
def as_tensor(data: Any, dtype: Any = None) -> Tensor:
    """`data` as a Tensor, without a copy where it already is a Tensor or an array of that type."""
    if isinstance(data, Tensor):
        result = data
    elif isinstance(data, np.ndarray):
        result = from_numpy(data)
    else:
        result = Tensor(data) if select.is_array(data) else tensor(data)
    return result if dtype is None else result.to(dtype)


@checked
def full(size: Any, fill_value: float, dtype: Any = None, requires_grad: bool = False, *, device: Any = None) -> Tensor:
    """`size` elements of `fill_value`; float32 unless `dtype` says otherwise."""
    kind = dtypes.float32 if dtype is None else dtypes.check(dtype)
    with devices.on(device) as xp:
        return Tensor(xp.full(sizes_of("full", (size,)), fill_value, kind), requires_grad)


@checked
def zeros(*size: Any, dtype: Any = None, requires_grad: bool = False, device: Any = None) -> Tensor:
    """`size` zeros, float32 unless `dtype` says otherwise."""
    return full(sizes_of("zeros", size), 0, dtype, requires_grad, device=device)


@checked
def ones(*size: Any, dtype: Any = None, requires_grad: bool = False, device: Any = None) -> Tensor:
    """`size` ones, float32 unless `dtype` says otherwise."""
    return full(sizes_of("ones", size), 1, dtype, requires_grad, device=device)


@checked
def empty(*size: Any, dtype: Any = None, requires_grad: bool = False, device: Any = None) -> Tensor:
    """Uninitialised memory."""
    kind = dtypes.float32 if dtype is None else dtypes.check(dtype)
    with devices.on(device) as xp:
        return Tensor(xp.empty(sizes_of("empty", size), kind), requires_grad)


@checked
def zeros_like(x: Tensor, dtype: Any = None, requires_grad: bool = False, *, device: Any = None) -> Tensor:
    """Zeros of x's shape and, unless given, type and device."""
    return full_like(x, 0, dtype, requires_grad, device=device)


@checked
def ones_like(x: Tensor, dtype: Any = None, requires_grad: bool = False, *, device: Any = None) -> Tensor:
    """Ones of x's shape and, unless given, type and device."""
    return full_like(x, 1, dtype, requires_grad, device=device)


@checked
def full_like(
    x: Tensor, fill_value: float, dtype: Any = None, requires_grad: bool = False, *, device: Any = None
) -> Tensor:
    """`fill_value` in x's shape and, unless given, type and device."""
    where = x.device if device is None else device
    return full(x.shape, fill_value, dtype or x.dtype, requires_grad, device=where)


@checked
def arange(start: float, end: float | None = None, step: float = 1, dtype: Any = None, *, device: Any = None) -> Tensor:
    """start, start + step, ... below end; int64 for integers, float32 otherwise."""
    first, last = (0, start) if end is None else (start, end)
    whole = all(isinstance(n, (int, np.integer)) for n in (first, last, step))
    kind = (dtypes.int64 if whole else dtypes.float32) if dtype is None else dtypes.check(dtype)
    with devices.on(device) as xp:
        return Tensor(xp.arange(first, last, step).astype(kind))


@checked
def linspace(start: float, end: float, steps: int, dtype: Any = None, *, device: Any = None) -> Tensor:
    """`steps` numbers from start to end, both included."""
    kind = dtypes.float32 if dtype is None else dtypes.check(dtype)
    with devices.on(device) as xp:
        return Tensor(xp.linspace(start, end, steps).astype(kind))


@checked
def eye(n: int, m: int | None = None, dtype: Any = None, *, device: Any = None) -> Tensor:
    """Ones on the diagonal of n rows and m columns (m = n unless given)."""
    with devices.on(device) as xp:
        return Tensor(xp.eye(n, m, dtype=dtypes.float32 if dtype is None else dtypes.check(dtype)))


@checked
def randn(*size: Any, dtype: Any = None, requires_grad: bool = False, device: Any = None) -> Tensor:
    """Normal with mean 0 and variance 1, drawn from minorm's generator (`manual_seed`)."""
    kind = dtypes.float32 if dtype is None else dtypes.check(dtype)
    return _drawn(random.generator().standard_normal(sizes_of("randn", size)), kind, device, requires_grad)


@checked
def rand(*size: Any, dtype: Any = None, requires_grad: bool = False, device: Any = None) -> Tensor:
    """Uniform on [0, 1), drawn from minorm's generator."""
    kind = dtypes.float32 if dtype is None else dtypes.check(dtype)
    # float32 from the start: a float64 just below 1 would round to 1 in float32
    source = np.float64 if kind == dtypes.float64 else np.float32
    return _drawn(random.generator().random(sizes_of("rand", size), source), kind, device, requires_grad)


@checked
def randint(low: int, high: int, size: Any, dtype: Any = None, *, device: Any = None) -> Tensor:
    """Integers from low to high - 1, drawn from minorm's generator."""
    kind = dtypes.int64 if dtype is None else dtypes.check(dtype)
    return _drawn(random.generator().integers(low, high, sizes_of("randint", (size,))), kind, device)


@checked
def randperm(n: int, *, device: Any = None) -> Tensor:
    """0 to n - 1 in random order, drawn from minorm's generator."""
    return _drawn(random.generator().permutation(n), dtypes.int64, device)


def _drawn(numbers: Any, kind: Any, device: Any, requires_grad: bool = False) -> Tensor:
    array = np.asarray(numbers).astype(kind, copy=False)
    return Tensor(array if device is None else devices.to_device(array, device), requires_grad)
