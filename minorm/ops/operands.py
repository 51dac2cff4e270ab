"""Interprets the arguments of an operation: finds axes, sizes, and the common element type of operands.

Scalars are cast to the tensors' float type, since a constant in a program must not change a model's precision. Integers
are also cast to the float type. Two different float types raise an error that names both types.

This module recognizes a Tensor by its method `from_array`, so it need not import the class.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np

from minorm import devices
from minorm.devices import dtypes
from minorm.graph import trace
from minorm.kernels import select
from minorm.ops.elementwise import Cast
from minorm.support.argument_errors import conversion, is_foreign, kind_of

_VALUES = (numbers.Number, np.generic, list, tuple)  # operands besides Tensors and arrays
MOST_ELEMENTS = 1 << 60  # with 8 bytes each they fill addresses of 63 bits


def operands(operation: str, *values: Any, real: bool = False, broadcast: bool = True) -> tuple[Any, ...]:
    """Return Tensors, arrays and scalars as Tensors of the same element type whose shapes broadcast. At least one
    argument must be a Tensor.

    With real=True, the common type is a float type. If all arguments are integers, they get the default float type.
    """
    first, last = values[0], values[-1]
    if type(first) is type(last) and len(values) == 2:  # two Tensors, since one must be a Tensor; usually they agree
        a, b = first.array, last.array
        if a.dtype is b.dtype and a.shape == b.shape and not (real and a.dtype not in dtypes.FLOATS):
            return values
    like = next(v for v in values if hasattr(v, "from_array"))
    common = like.array.dtype
    if common not in dtypes.FLOATS or not all(_agrees(v, common) for v in values):
        common = _common_type(operation, values, real)
    result = tuple([_convert(operation, v, common, like) for v in values])
    shape = like.array.shape
    if broadcast and not all(t.array.shape == shape or t.array.shape == () for t in result):
        try:
            np.broadcast_shapes(*[t.shape for t in result])
        except ValueError:
            shapes = " and ".join(str(t.shape) for t in result)
            raise ValueError(
                f"{operation}: shapes {shapes} do not broadcast; expected lengths that are equal or 1, compared from "
                "the last axis"
            ) from None
    return result


def _agrees(value: Any, dtype: Any) -> bool:
    """Return True if `value` does not change the operation's type, because it has this type or is a scalar."""
    return getattr(value, "dtype", dtype) == dtype or (isinstance(value, np.generic) and value.dtype.kind != "c")


def _common_type(operation: str, values: tuple[Any, ...], real: bool) -> Any:
    arrays = [v for v in values if hasattr(v, "dtype") and not isinstance(v, np.generic)]
    scalars = [v for v in values if not hasattr(v, "dtype") or isinstance(v, np.generic)]
    floats = {v.dtype for v in arrays} & dtypes.FLOATS
    if len(floats) > 1 and trace.state.cast is not None:
        return dtypes.float32 if floats == dtypes.HALVES else max(floats, key=lambda kind: kind.itemsize)
    if len(floats) > 1:
        names = " and ".join(str(v.dtype) for v in arrays)
        raise TypeError(f"{operation}: operands are {names}; expected one float type; convert one with x.to(dtype)")
    if floats:
        return floats.pop()
    if real or any(isinstance(v, (float, np.floating)) for v in scalars):
        return dtypes.get_default_dtype()
    return np.result_type(*[v.dtype for v in arrays], *[v for v in scalars if isinstance(v, (bool, int))])


def full_type(x: Any) -> Any:
    """Return the type of the result of an operation that always computes in float32: the type of the array x.

    Inside autocast, the result is float32 for 16-bit floats. Other operations that return float32 inside autocast need
    no such rule, since their inputs are cast before.
    """
    state = trace.state
    if state.cast is None or x.dtype not in dtypes.HALVES:
        return x.dtype
    return dtypes.float32 if ("cpu" if type(x) is np.ndarray else "cuda") in state.cast_types else x.dtype


def _convert(operation: str, value: Any, dtype: Any, like: Any) -> Any:
    if hasattr(value, "from_array"):
        return value if value.array.dtype == dtype else Cast.apply(value, dtype=dtype)
    if not isinstance(value, _VALUES) and not select.is_array(value):
        fix = f"; {conversion('x', value)}" if is_foreign(value) else ""
        raise TypeError(f"{operation}: operand is {kind_of(value)}; expected a Tensor, an array or a number{fix}")
    if type(like.array) is np.ndarray and isinstance(value, (numbers.Number, np.generic, np.ndarray, list, tuple)):
        return like.from_array(np.asarray(value, dtype))
    if not select.is_array(value) and np.ndim(value) == 0:  # made on the device, so nothing is copied
        return like.from_array(_scalar(value, dtype, like.array))
    array = select.as_array(value)
    if (there := devices.device_of(array)) != like.device:
        raise RuntimeError(
            f"{operation}: operands are on {like.device} and {there}; expected one device; "
            f"use minorm.tensor(array, device={like.device!r})"
        )
    with devices.on_device_of(array):
        return like.from_array(array.astype(dtype, copy=False))


def others_turn(error: TypeError, other: Any, method: str) -> Any:
    """Return NotImplemented if Python should call the reflected `method` of `other`. Otherwise raise the error.

    Python should call the method if `other` is not an operand and has this method. For == and !=, `other` need not have
    the method, since Python then answers that x and `other` are unequal. Methods of built-in types, such as the `%` of
    a string, are not called.
    """
    if not _is_operand(other) and (
        method in ("__eq__", "__ne__") or (type(other).__module__ != "builtins" and _has_own(other, method))
    ):
        return NotImplemented
    raise error


def _is_operand(value: Any) -> bool:
    """Return True if an operator takes the value, or refuses it with advice, as for another library's array."""
    return hasattr(value, "from_array") or isinstance(value, _VALUES) or select.is_array(value) or is_foreign(value)


def _has_own(value: Any, method: str) -> bool:
    return getattr(type(value), method, None) is not getattr(object, method, None)


def _scalar(value: Any, dtype: Any, like: Any) -> Any:
    """Return a number as an array without axes, made on the device of `like`, so that nothing is copied."""
    with devices.on_device_of(like):
        return select.backend(like).copying.full((), value, dtype)


def axis_of(operation: str, dim: int, x: Any) -> int:
    """Return `dim` counted from the front. Raise IndexError if x has no such axis."""
    if not hasattr(dim, "__index__"):
        raise TypeError(f"{operation}: dim={dim!r}; expected an int")
    if not -x.ndim <= dim < x.ndim:
        raise IndexError(
            f"{operation}: dim={dim} is out of range for shape {x.shape}; expected {-x.ndim} to {x.ndim - 1}"
        )
    return dim % x.ndim


def axes_of(operation: str, dim: int | tuple[int, ...] | None, x: Any) -> tuple[int, ...]:
    """Return the axes that `dim` names, counted from the front. `dim` is one axis, several, or None for all axes."""
    if dim is None:
        return tuple(range(x.ndim))
    axes = tuple([axis_of(operation, d, x) for d in ((dim,) if isinstance(dim, int) else dim)])
    if len(set(axes)) != len(axes):
        raise ValueError(f"{operation}: dim={dim} names an axis twice; x.shape is {x.shape}")
    return axes


def sizes_of(operation: str, sizes: tuple[Any, ...]) -> tuple[int, ...]:
    """Return the sizes as a tuple of ints. The call may be f(2, 3) or f((2, 3))."""
    if len(sizes) == 1 and not isinstance(sizes[0], (int, np.integer)):
        sizes = tuple(sizes[0])
    try:
        return tuple([n.__index__() for n in sizes])
    except AttributeError:
        raise TypeError(f"{operation}: {sizes} holds something that is not an integer") from None


def check_room(operation: str, shape: Sequence[int]) -> None:
    """Raise ValueError if a result is too large for any memory. The check comes before the size overflows."""
    if max(shape, default=0) >= MOST_ELEMENTS or math.prod(shape) >= MOST_ELEMENTS:
        raise ValueError(f"{operation}: the result would have shape {tuple(shape)}; expected fewer than 2^60 elements")


def shape_of(operation: str, sizes: tuple[Any, ...]) -> tuple[int, ...]:
    """Return the shape that `sizes` names. Raise ValueError if a result of this shape is too large."""
    shape = sizes_of(operation, sizes)
    check_room(operation, shape)
    return shape


def reduced_axes(operation: str, dim: Any, x: Any) -> tuple[int, ...]:
    """Return the axes that `dim` names. None, () and [] name all axes. If x is 0-d, 0 and -1 name no axis."""
    if dim is None or (isinstance(dim, (tuple, list)) and not dim):
        return tuple(range(x.ndim))
    if x.ndim == 0 and dim in (0, -1, (0,), (-1,)):
        return ()
    return axes_of(operation, dim, x)


def plain(value: Any) -> Any:
    """Return an index or a value with arrays in place of its Tensors."""
    if hasattr(value, "from_array"):
        return value.array
    return tuple(plain(v) for v in value) if isinstance(value, tuple) else value
