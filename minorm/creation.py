"""Making Tensors: from data (a copy), around an array (no copy), or filled with numbers. Names are PyTorch's.

`device` is "cpu" or None, "cuda" or "cuda:1". PyTorch's `size=` is taken as well, and so are `pin_memory=`, `layout=`
and `memory_format=`: they say where and how memory lies, which changes no number.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm import devices, dtypes
from minorm.kernels import select
from minorm.mistakes import checked, making
from minorm.ops.operands import sizes_of
from minorm.tensor import Tensor


@making
def tensor(data: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A Tensor with a copy of `data`: numbers, nested lists, an array or a Tensor.

    Python floats become the default float type, float32; arrays keep their type. It is made on `device`; None is where
    the data is.
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
        array = array.astype(dtypes.get_default_dtype() if python_floats else dtypes.check(array.dtype), copy=False)
    return Tensor(array if device is None else devices.to_device(array, device), requires_grad)


_CUDA = (2, 13)  # DLPack's numbers for memory of a GPU, and for memory that GPU and CPU share


def _holds_arrays(data: Any) -> bool:
    """True for a list with arrays or NumPy scalars in it, whose own type then counts."""
    if isinstance(data, (list, tuple)):
        return any(_holds_arrays(item) for item in data)
    return hasattr(data, "dtype")


@checked
def from_numpy(ndarray: Any) -> Tensor:
    """A Tensor around a NumPy array, sharing its memory."""
    if not isinstance(ndarray, np.ndarray):
        raise TypeError(
            f"from_numpy: got {type(ndarray).__name__}; expected a NumPy array; minorm.tensor(data) copies others"
        )
    if ndarray.dtype != dtypes.check(ndarray.dtype):
        raise TypeError(
            f"from_numpy: byte order {ndarray.dtype.byteorder!r} is foreign; expected native; "
            "use array.astype(array.dtype.newbyteorder('='))"
        )
    return Tensor(ndarray)


@checked
def from_dlpack(source: Any) -> Tensor:
    """A Tensor around another library's array, on the CPU or a GPU, sharing its memory through DLPack.

    On a GPU the current stream waits for what the other library's stream has still to do, and the host waits for none.
    """
    if source.__dlpack_device__()[0] in _CUDA:
        return Tensor(devices.library().from_dlpack(source))
    return Tensor(np.from_dlpack(source))


@checked
def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """`data` as a Tensor, without a copy where it already is a Tensor or an array of that type and on that device."""
    if isinstance(data, Tensor):
        result = data
    elif isinstance(data, np.ndarray):
        result = from_numpy(data)
    else:
        result = Tensor(data) if select.is_array(data) else tensor(data)
    return result.to(dtype=dtype, device=device)


@making
def full(size: Any, fill_value: float, dtype: Any = None, requires_grad: bool = False, *, device: Any = None) -> Tensor:
    """`size` elements of `fill_value`, of its type: bool, int64 or the default float type; `dtype` says otherwise."""
    kind = tensor(fill_value).dtype if dtype is None else dtypes.check(dtype)
    with devices.on(device) as xp:
        return Tensor(xp.full(sizes_of("full", (size,)), fill_value, kind), requires_grad)


@making
def zeros(*size: Any, dtype: Any = None, requires_grad: bool = False, device: Any = None) -> Tensor:
    """`size` zeros, the default float type unless `dtype` says otherwise."""
    return full(sizes_of("zeros", size), 0.0, dtype, requires_grad, device=device)


@making
def ones(*size: Any, dtype: Any = None, requires_grad: bool = False, device: Any = None) -> Tensor:
    """`size` ones, the default float type unless `dtype` says otherwise."""
    return full(sizes_of("ones", size), 1.0, dtype, requires_grad, device=device)


@making
def empty(*size: Any, dtype: Any = None, requires_grad: bool = False, device: Any = None) -> Tensor:
    """Uninitialised memory."""
    kind = dtypes.get_default_dtype() if dtype is None else dtypes.check(dtype)
    with devices.on(device) as xp:
        return Tensor(xp.empty(sizes_of("empty", size), kind), requires_grad)


@making
def zeros_like(input: Tensor, dtype: Any = None, requires_grad: bool = False, *, device: Any = None) -> Tensor:
    """Zeros of input's shape and, unless given, type and device."""
    return full_like(input, 0, dtype, requires_grad, device=device)


@making
def ones_like(input: Tensor, dtype: Any = None, requires_grad: bool = False, *, device: Any = None) -> Tensor:
    """Ones of input's shape and, unless given, type and device."""
    return full_like(input, 1, dtype, requires_grad, device=device)


@making
def empty_like(input: Tensor, dtype: Any = None, requires_grad: bool = False, *, device: Any = None) -> Tensor:
    """Uninitialised memory of input's shape and, unless given, type and device."""
    return empty(input.shape, dtype=dtype or input.dtype, requires_grad=requires_grad, device=device or input.device)


@making
def full_like(
    input: Tensor, fill_value: float, dtype: Any = None, requires_grad: bool = False, *, device: Any = None
) -> Tensor:
    """`fill_value` in input's shape and, unless given, type and device."""
    where = input.device if device is None else device
    return full(input.shape, fill_value, dtype or input.dtype, requires_grad, device=where)


@making
def arange(
    start: float, end: float | None = None, step: float = 1, dtype: Any = None, *, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """start, start + step, ... below end; int64 for integers, the default float type otherwise."""
    first, last = (0, start) if end is None else (start, end)
    whole = all(isinstance(n, (int, np.integer)) for n in (first, last, step))
    kind = (dtypes.int64 if whole else dtypes.get_default_dtype()) if dtype is None else dtypes.check(dtype)
    with devices.on(device) as xp:
        return Tensor(xp.arange(first, last, step).astype(kind), requires_grad)


@making
def linspace(
    start: float, end: float, steps: int, dtype: Any = None, *, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """`steps` numbers from start to end, both included."""
    kind = dtypes.get_default_dtype() if dtype is None else dtypes.check(dtype)
    with devices.on(device) as xp:
        return Tensor(xp.linspace(start, end, steps).astype(kind), requires_grad)


@making
def eye(n: int, m: int | None = None, dtype: Any = None, *, device: Any = None, requires_grad: bool = False) -> Tensor:
    """Ones on the diagonal of n rows and m columns (m = n unless given)."""
    with devices.on(device) as xp:
        kind = dtypes.get_default_dtype() if dtype is None else dtypes.check(dtype)
        return Tensor(xp.eye(n, m, dtype=kind), requires_grad)
