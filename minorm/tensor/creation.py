"""Functions that make Tensors: from a copy of data, from an array without a copy, or filled with numbers.

The names of the functions are PyTorch's. `device` is "cpu" or None, "cuda" or "cuda:1". The functions also accept
PyTorch's `size=`. They accept `pin_memory=`, `layout=` and `memory_format=`, which affect how a Tensor is stored, but
not its elements. The `_like` functions give the result the same order in memory as the input.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minorm import devices
from minorm.devices import dtypes
from minorm.kernels import select
from minorm.ops.operands import check_room, shape_of
from minorm.support.argument_errors import checked, making
from minorm.support.argument_texts import MADE, MADE_LIKE
from minorm.support.documented import documented
from minorm.tensor.memory_formats import laid_out
from minorm.tensor.tensor import Tensor


@documented(
    MADE,
    data="numbers, nested lists, an array or a Tensor",
    dtype="the element type; None takes it from the data: the default float type for Python floats, int64 for integers",
    device='the device of the result, "cpu" or "cuda"; None is the device of the data',
)
@making
def tensor(data: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """Make a Tensor with a copy of `data`.

    Raises TypeError for data that a Tensor cannot hold.

    Example:
        >>> mn.tensor([[1, 2], [3, 4]], dtype=mn.float32)
        tensor([[1., 2.],
                [3., 4.]])
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


_CUDA = (2, 13)  # DLPack's device numbers for GPU memory, and for memory that GPU and CPU share


def _holds_arrays(data: Any) -> bool:
    """Return True if `data` is a list with arrays or NumPy scalars. A Tensor made from such a list has the type of the
    items.
    """
    if isinstance(data, (list, tuple)):
        return any(_holds_arrays(item) for item in data)
    return hasattr(data, "dtype")


@documented({}, ndarray="a NumPy array")
@checked
def from_numpy(ndarray: Any) -> Tensor:
    """Wrap a NumPy array in a Tensor that shares the array's memory.

    Raises TypeError for anything but an array, and for a foreign byte order.

    Example:
        >>> array = mn.zeros(2).numpy()
        >>> x = mn.from_numpy(array)
        >>> array[0] = 7
        >>> x
        tensor([7., 0.])
    """
    if not isinstance(ndarray, np.ndarray):
        raise TypeError(
            f"from_numpy: got {type(ndarray).__name__}; expected a NumPy array; minorm.tensor(data) copies other data"
        )
    if ndarray.dtype != dtypes.check(ndarray.dtype):
        raise TypeError(
            f"from_numpy: byte order is {ndarray.dtype.byteorder!r}; expected the byte order of this machine; use "
            "array.astype(array.dtype.newbyteorder('='))"
        )
    return Tensor(ndarray)


@documented({}, source="an array of another library, with `__dlpack__`")
@checked
def from_dlpack(source: Any) -> Tensor:
    """Wrap another library's array, on the CPU or a GPU, in a Tensor that shares the array's memory through DLPack.

    On a GPU the current stream waits for the other library's stream; the host does not wait.

    Example:
        >>> mn.from_dlpack(mn.zeros(2).numpy())
        tensor([0., 0.])
    """
    if source.__dlpack_device__()[0] in _CUDA:
        return Tensor(devices.library().from_dlpack(source))
    return Tensor(np.from_dlpack(source))


@documented(
    {},
    data="numbers, nested lists, an array or a Tensor",
    dtype="the element type; None keeps the data's type",
    device='the device of the result, "cpu" or "cuda"; None is the device of the data',
)
@checked
def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """Return `data` as a Tensor. A Tensor or an array is copied only if its type or device must change.

    Example:
        >>> x = mn.zeros(2)
        >>> mn.as_tensor(x) is x, mn.as_tensor([1, 2])
        (True, tensor([1, 2]))
    """
    if isinstance(data, Tensor):
        result = data
    elif isinstance(data, np.ndarray):
        result = from_numpy(data)
    else:
        result = Tensor(data) if select.is_array(data) else tensor(data)
    return result.to(dtype=dtype, device=device)


@documented(
    MADE,
    fill_value="the value of each element",
    dtype="the element type; None is fill_value's: bool, int64 or the default float type",
)
@making
def full(size: Any, fill_value: float, dtype: Any = None, requires_grad: bool = False, *, device: Any = None) -> Tensor:
    """Make a Tensor of shape `size` with all elements equal to `fill_value`.

    Example:
        >>> mn.full((2, 2), 7)
        tensor([[7, 7],
                [7, 7]])
    """
    kind = tensor(fill_value).dtype if dtype is None else dtypes.check(dtype)
    with devices.on(device) as xp:
        return Tensor(xp.full(shape_of("full", (size,)), fill_value, kind), requires_grad)


@documented(MADE)
@making
def zeros(*size: Any, dtype: Any = None, requires_grad: bool = False, device: Any = None) -> Tensor:
    """Make a Tensor of zeros.

    Example:
        >>> mn.zeros(2, 3)
        tensor([[0., 0., 0.],
                [0., 0., 0.]])
    """
    return full(shape_of("zeros", size), 0.0, dtype, requires_grad, device=device)


@documented(MADE)
@making
def ones(*size: Any, dtype: Any = None, requires_grad: bool = False, device: Any = None) -> Tensor:
    """Make a Tensor of ones.

    Example:
        >>> mn.ones(2, dtype=mn.int64)
        tensor([1, 1])
    """
    return full(shape_of("ones", size), 1.0, dtype, requires_grad, device=device)


@documented(MADE)
@making
def empty(*size: Any, dtype: Any = None, requires_grad: bool = False, device: Any = None) -> Tensor:
    """Make a Tensor with uninitialized memory. Its elements are arbitrary.

    Example:
        >>> mn.empty(2, 3).shape
        (2, 3)
    """
    kind = dtypes.get_default_dtype() if dtype is None else dtypes.check(dtype)
    with devices.on(device) as xp:
        return Tensor(xp.empty(shape_of("empty", size), kind), requires_grad)


def laid_out_like(operation: str, made: Tensor, input: Tensor, memory_format: Any) -> Tensor:
    """Return the new Tensor `made` in the memory order memory_format or, if memory_format is None, in the order of
    `input`.
    """
    if memory_format is None and input.array.flags.c_contiguous:
        return made
    with devices.on_device_of(made.array):
        made.array = laid_out(operation, made.array, memory_format, input.array)
    return made


@documented(MADE_LIKE)
@making
def zeros_like(
    input: Tensor, dtype: Any = None, requires_grad: bool = False, *, device: Any = None, memory_format: Any = None
) -> Tensor:
    """Make a Tensor of zeros with input's shape.

    Example:
        >>> mn.zeros_like(mn.tensor([1, 2]))
        tensor([0, 0])
    """
    return full_like(input, 0, dtype, requires_grad, device=device, memory_format=memory_format)


@documented(MADE_LIKE)
@making
def ones_like(
    input: Tensor, dtype: Any = None, requires_grad: bool = False, *, device: Any = None, memory_format: Any = None
) -> Tensor:
    """Make a Tensor of ones with input's shape.

    Example:
        >>> mn.ones_like(mn.tensor([1, 2]), dtype=mn.float32)
        tensor([1., 1.])
    """
    return full_like(input, 1, dtype, requires_grad, device=device, memory_format=memory_format)


@documented(MADE_LIKE)
@making
def empty_like(
    input: Tensor, dtype: Any = None, requires_grad: bool = False, *, device: Any = None, memory_format: Any = None
) -> Tensor:
    """Make a Tensor with uninitialized memory and input's shape.

    Example:
        >>> mn.empty_like(mn.zeros(2, 3)).shape
        (2, 3)
    """
    made = empty(input.shape, dtype=dtype or input.dtype, requires_grad=requires_grad, device=device or input.device)
    return laid_out_like("empty_like", made, input, memory_format)


@documented(MADE_LIKE, fill_value="the value of each element")
@making
def full_like(
    input: Tensor, fill_value: float, dtype: Any = None, requires_grad: bool = False, *, device: Any = None,
    memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """Make a Tensor with input's shape and with all elements equal to `fill_value`.

    Example:
        >>> mn.full_like(mn.zeros(2), 7)
        tensor([7., 7.])
    """
    where = input.device if device is None else device
    made = full(input.shape, fill_value, dtype or input.dtype, requires_grad, device=where)
    return laid_out_like("full_like", made, input, memory_format)


@documented(
    MADE,
    start="the first number; if `end` is missing, `start` is the end and the first number is 0",
    end="the bound that all numbers stay below",
    step="the difference of two neighbours",
    dtype="the element type; None is int64 for integers, the default float type otherwise",
)
@making
def arange(
    start: float, end: float | None = None, step: float = 1, dtype: Any = None, *, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Make a Tensor of the numbers start, start + step, ... below end.

    Example:
        >>> mn.arange(3), mn.arange(1.0, 2.0, 0.5)
        (tensor([0, 1, 2]), tensor([1. , 1.5]))
    """
    first, last, step = (_number(n) for n in ((0, start, step) if end is None else (start, end, step)))
    whole = all(isinstance(n, (int, np.integer)) for n in (first, last, step))
    kind = (dtypes.int64 if whole else dtypes.get_default_dtype()) if dtype is None else dtypes.check(dtype)
    with devices.on(device) as xp:
        check_room("arange", (int((last - first) // step),) if step and math.isfinite((last - first) / step) else ())
        return Tensor(xp.arange(first, last, step).astype(kind), requires_grad)


def _number(value: Any) -> Any:
    """Return `value` as a number. `value` may be a Tensor with one element. An integer stays an integer."""
    return value.item() if hasattr(value, "from_array") else value


@documented(MADE, start="the first number", end="the last number, included", steps="the count of numbers")
@making
def linspace(
    start: float, end: float, steps: int, dtype: Any = None, *, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """y[i] = start + i * (end - start) / (steps - 1): `steps` numbers from start to end. The end is included.

    Example:
        >>> mn.linspace(0, 1, 5)
        tensor([0.  , 0.25, 0.5 , 0.75, 1.  ])
    """
    kind = dtypes.get_default_dtype() if dtype is None else dtypes.check(dtype)
    with devices.on(device) as xp:
        check_room("linspace", (steps,))
        return Tensor(xp.linspace(start, end, steps).astype(kind), requires_grad)


@documented(MADE, n="the number of rows", m="the number of columns; None is n")
@making
def eye(n: int, m: int | None = None, dtype: Any = None, *, device: Any = None, requires_grad: bool = False) -> Tensor:
    """y[i, j] = 1 where i = j, else 0.

    Example:
        >>> mn.eye(2)
        tensor([[1., 0.],
                [0., 1.]])
    """
    with devices.on(device) as xp:
        kind = dtypes.get_default_dtype() if dtype is None else dtypes.check(dtype)
        check_room("eye", (n, n if m is None else m))
        return Tensor(xp.eye(n, m, dtype=kind), requires_grad)
