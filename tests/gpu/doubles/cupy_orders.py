"""The order of memory of CuPy's results, read from the source of CuPy 14.2.

A result has its elements row by row ("C"), whatever the arguments have: of ufuncs, reductions, products, take(),
where(), concatenate(), sort(). So y * 0.5 of an array with the channels last has the channels second. The functions in
this file are the exceptions, and views are views.

test_cupy_double.py compares the double with this, and test_real_device.py CuPy itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def like(array: Any, dtype: Any = None, order: str = "K", shape: Any = None) -> np.ndarray:
    """Memory for an array of this shape, or array's: "K" keeps array's order of axes, "A" keeps only a reversed one."""
    lengths = array.shape if shape is None else (shape,) if isinstance(shape, int) else tuple(shape)
    kind = array.dtype if dtype is None else np.dtype(dtype)
    if (order == "K" and len(lengths) != array.ndim) or (order in "AK" and array.flags.c_contiguous):
        order = "C"
    elif order in "AK" and array.flags.f_contiguous:
        order = "F"
    if order != "K":
        return np.empty(lengths, kind, order="F" if order == "F" else "C")
    axes = sorted(range(array.ndim), key=lambda axis: (-abs(array.strides[axis]), axis))  # the outermost first
    turned = np.empty([lengths[axis] for axis in axes], kind).transpose(np.argsort(axes))
    return np.empty_like(turned)  # in the same order, and no view


def laid(result: Any, array: Any, order: str | tuple[int, ...]) -> np.ndarray:
    """The result in memory of this order, "K" being that of `array`."""
    if isinstance(order, tuple):
        return np.ascontiguousarray(result.transpose(order)).transpose(np.argsort(order))
    memory = like(array, result.dtype, order, result.shape)
    memory[...] = result
    return memory


turned: list[tuple[int, ...]] = []  # the shapes of arrays that were copied into another order of memory, or read in one


def note(to: np.ndarray, *sources: np.ndarray) -> None:
    """Note the shape of an array that is read in one order of memory and written in another."""
    arrays = [source for source in sources if isinstance(source, np.ndarray) and source.shape == to.shape]
    turned.extend(to.shape for array in arrays if _axes(array) != _axes(to))


def _axes(array: np.ndarray) -> list[int]:
    """The axes along which an array has elements, from the outermost to the innermost."""
    long = [axis for axis, n in enumerate(array.shape) if n > 1 and array.strides[axis]]
    return sorted(long, key=lambda axis: (-abs(array.strides[axis]), axis))


def _of_pad(array: Any, *_: Any, **__: Any) -> str:
    return "F" if array.flags.fnc else "C"


def _of_roll(array: Any, shift: Any, axis: Any = None) -> str:
    return "C" if axis is None else "K"


def _of_tile(array: Any, reps: Any) -> str:
    return "K" if np.all(np.asarray(reps) == 1) and np.size(reps) <= array.ndim else "C"  # it is copied then


def _of_nan_to_num(*_: Any, **__: Any) -> str:
    return "K"


def _of_cumulated(array: Any, axis: int | None = None) -> str | tuple[int, ...]:
    """Return the order after a cumulation: any axis but the first comes to lie innermost, as seen on a device."""
    if not axis:
        return "C"
    last = axis % array.ndim
    return (*[i for i in range(array.ndim) if i != last], last)


ORDER: dict[str, Callable[..., Any]] = {  # by function: the order of its result, of its arguments
    "cumprod": _of_cumulated,
    "cumsum": _of_cumulated,
    "nan_to_num": _of_nan_to_num,
    "pad": _of_pad,
    "roll": _of_roll,
    "tile": _of_tile,
}


def of(name: str, args: Any, options: Any) -> str | tuple[int, ...]:
    """Return the order of this call's result: NumPy's name for it, or its axes from the outermost to the innermost."""
    found = ORDER.get(name)
    return "C" if found is None else found(*args, **options)


# Calls on an array whose channels come last in memory, a shape with four axes, and in which order the result lies: "C",
# "K" as the array does, or "view".
CALLS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "x * 0.5 + 1": (lambda _, x: x * 0.5 + 1, "C"),
    "x + x": (lambda _, x: x + x, "C"),
    "-x": (lambda _, x: -x, "C"),
    "x > 0": (lambda _, x: x > 0, "C"),
    "exp": (lambda cupy, x: cupy.exp(x), "C"),
    "maximum": (lambda cupy, x: cupy.maximum(x, 0), "C"),
    "clip": (lambda _, x: x.clip(-1, 1), "C"),
    "where": (lambda cupy, x: cupy.where(x > 0, x, x), "C"),
    "sum": (lambda _, x: x.sum(0), "C"),
    "sum, keepdims": (lambda _, x: x.sum(2, keepdims=True), "C"),
    "max": (lambda _, x: x.max(2), "C"),
    "argmax": (lambda _, x: x.argmax(2), "C"),
    "any": (lambda _, x: (x > 0).any(2), "C"),
    "cumsum": (lambda cupy, x: cupy.cumsum(x, 1), "K"),
    "cumsum of the first axis": (lambda cupy, x: cupy.cumsum(x, 0), "C"),
    "cumsum of the last axis": (lambda cupy, x: cupy.cumsum(x, 3), "C"),
    "matmul": (lambda _, x: x @ x.swapaxes(2, 3), "C"),
    "concatenate": (lambda cupy, x: cupy.concatenate([x, x], 1), "C"),
    "stack": (lambda cupy, x: cupy.stack([x, x]), "C"),
    "take": (lambda cupy, x: x.take(cupy.arange(3), 1), "C"),
    "x[index]": (lambda cupy, x: x[:, cupy.arange(3)], "C"),
    "mean": (lambda _, x: x.mean(0), "C"),
    "prod": (lambda _, x: x.prod(0), "C"),
    "min": (lambda _, x: x.min(2), "C"),
    "amin": (lambda cupy, x: cupy.amin(x, 2), "C"),
    "amax": (lambda cupy, x: cupy.amax(x, 2), "C"),
    "argmin": (lambda _, x: x.argmin(2), "C"),
    "all": (lambda _, x: (x > 0).all(2), "C"),
    "count_nonzero": (lambda cupy, x: cupy.count_nonzero(x, 2), "C"),
    "array_equal": (lambda cupy, x: cupy.array_equal(x, x), "C"),
    "allclose": (lambda cupy, x: cupy.allclose(x, x), "C"),
    "cumprod": (lambda cupy, x: cupy.cumprod(x, 1), "K"),
    "dot": (lambda cupy, x: cupy.dot(x, x[0, 0].T), "C"),
    "diff": (lambda cupy, x: cupy.diff(x, axis=1), "C"),
    "argsort": (lambda cupy, x: cupy.argsort(x, -1), "C"),
    "argwhere": (lambda cupy, x: cupy.argwhere(x), "C"),
    "searchsorted": (lambda cupy, x: cupy.searchsorted(cupy.arange(9, dtype=np.float32), x), "C"),
    "unique": (lambda cupy, x: cupy.unique(x), "C"),
    "histogram": (lambda cupy, x: cupy.histogram(x, 5)[0], "C"),
    "bincount": (lambda cupy, x: cupy.bincount(x.astype(np.int64).ravel()), "C"),
    "ravel": (lambda cupy, x: cupy.ravel(x), "C"),
    "indices": (lambda cupy, x: cupy.indices(x.shape), "C"),
    "zeros": (lambda cupy, x: cupy.zeros(x.shape), "C"),
    "ones": (lambda cupy, x: cupy.ones(x.shape), "C"),
    "full": (lambda cupy, x: cupy.full(x.shape, 2), "C"),
    "empty": (lambda cupy, x: cupy.empty(x.shape), "C"),
    "eye": (lambda cupy, x: cupy.eye(x.shape[0], x.shape[1]), "C"),
    "linspace": (lambda cupy, x: cupy.linspace(0, 1, x.shape[1]), "C"),
    "take_along_axis": (lambda cupy, x: cupy.take_along_axis(x, x.argmax(1, keepdims=True), 1), "C"),
    "repeat": (lambda _, x: x.repeat(2, 1), "C"),
    "tile": (lambda cupy, x: cupy.tile(x, (1, 2, 1, 1)), "C"),
    "tile once": (lambda cupy, x: cupy.tile(x, (1, 1, 1, 1)), "K"),
    "pad": (lambda cupy, x: cupy.pad(x, 1), "C"),
    "sort": (lambda cupy, x: cupy.sort(x, -1), "C"),
    "flatten": (lambda _, x: x.flatten(), "C"),
    "reshape": (lambda _, x: x.reshape(-1), "C"),
    "copy": (lambda _, x: x.copy(), "C"),
    "ascontiguousarray": (lambda cupy, x: cupy.ascontiguousarray(x), "C"),
    "copy, K": (lambda _, x: x.copy("K"), "K"),
    "astype": (lambda _, x: x.astype(np.float64), "K"),
    "empty_like": (lambda cupy, x: cupy.empty_like(x), "K"),
    "zeros_like": (lambda cupy, x: cupy.zeros_like(x, np.float64), "K"),
    "full_like": (lambda cupy, x: cupy.full_like(x, 3), "K"),
    "ones_like, C": (lambda cupy, x: cupy.ones_like(x, order="C"), "C"),
    "zeros_like, of other axes": (lambda cupy, x: cupy.zeros_like(x, shape=(2, 3)), "C"),
    "nan_to_num": (lambda cupy, x: cupy.nan_to_num(x), "K"),
    "roll": (lambda cupy, x: cupy.roll(x, 1, 1), "K"),
    "roll, flat": (lambda cupy, x: cupy.roll(x.copy(), 1), "C"),
    "transpose": (lambda _, x: x.transpose(0, 2, 3, 1), "view"),
    "x[:, 1:]": (lambda _, x: x[:, 1:], "view"),
    "transpose, as a function": (lambda cupy, x: cupy.transpose(x, (0, 2, 3, 1)), "view"),
    "diagonal": (lambda cupy, x: cupy.diagonal(x, 0, 1, 2), "view"),
    "expand_dims": (lambda cupy, x: cupy.expand_dims(x, 1), "view"),
    "moveaxis": (lambda cupy, x: cupy.moveaxis(x, 1, -1), "view"),
    "swapaxes": (lambda cupy, x: cupy.swapaxes(x, 1, 2), "view"),
    "squeeze": (lambda cupy, x: cupy.squeeze(x[:, :1], 1), "view"),
    "split": (lambda cupy, x: cupy.split(x, 5, 1)[2], "view"),
    "reshape, of rows": (lambda cupy, x: cupy.reshape(x.transpose(0, 2, 3, 1), (6, -1)), "view"),
    "atleast_1d": (lambda cupy, x: cupy.atleast_1d(x), "view"),
    "x[..., None]": (lambda _, x: x[..., None], "view"),
    "flip": (lambda cupy, x: cupy.flip(x, 1), "view"),
    "broadcast_to": (lambda cupy, x: cupy.broadcast_to(x, (3, *x.shape)), "view"),
    "astype, of its type": (lambda _, x: x.astype(np.float32, copy=False), "view"),
}


# Functions that give no array, write into an existing one, or give columns of argwhere's.
NO_ORDER = {"copyto", "may_share_memory", "nonzero", "put_along_axis"}


def check(cupy: Any, name: str) -> None:
    """Assert that the result of the call lies in the order that CALLS says."""
    call, order = CALLS[name]
    memory = cupy.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)
    x = memory.transpose(0, 3, 1, 2)
    y = call(cupy, x)
    if order == "view":
        assert y is x or y.base is x.base, name
        return
    strides = np.empty(y.shape, y.dtype).strides
    if order == "K":
        assert y.shape == x.shape
        strides = tuple(step // x.itemsize * y.itemsize for step in x.strides)
    assert y.strides == strides, name
