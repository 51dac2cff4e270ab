"""Softmax, its logarithm and the cross entropy, computed by kernels on rows; the reference has the formulas.

A kernel works on the rows of a dense (rows, n) array of float32 or float64. If the axis is not the last one, it is
moved to the end first, and moved back in the result. 16-bit floats compute in float32, and the result is rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import minorm_ext
from minorm.devices import dtypes
from minorm.kernels.cpu import memory
from minorm.kernels.cpu.operands import plain
from minorm.kernels.reference import softmax as reference

_kernels: Any = minorm_ext.kernels("softmax")
_float32, _float64 = dtypes.float32, dtypes.float64
_empty = memory.empty
_get_num_threads = minorm_ext.get_num_threads


def _rows(name: str, fallback: Callable[..., Any], a: Any, b: Any, axis: int, dtype: Any = None) -> Any:
    """Run the operation `name` along `axis`.

    If `axis` is not the last axis, move it to the end, and move it back in the result.
    """
    if dtype is not None and dtype != a.dtype:
        wider = _wide(a), None if b is None else _wide(b)
        return _rows(name, fallback, *wider, axis).astype(dtype, copy=False)
    dtype = a.dtype
    if dtype in dtypes.HALVES and (b is None or b.dtype == dtype):
        wide = None if b is None else b.astype(np.float32)
        return _rows(name, fallback, a.astype(np.float32), wide, axis).astype(dtype)
    if dtype not in (_float32, _float64) or a.size == 0 or a.ndim == 0 or (b is not None and b.dtype != dtype):
        return fallback(a, axis) if b is None else fallback(a, b, axis)
    if axis not in (-1, a.ndim - 1):
        a, b = (None if x is None else np.moveaxis(x, axis, -1) for x in (a, b))
        return np.ascontiguousarray(np.moveaxis(_rows(name, fallback, a, b, -1), -1, axis))
    a, b = (None if x is None else plain(x) for x in (a, b))
    out = _empty(a.shape, dtype)
    n = a.shape[-1]
    _kernels.run(_kernels.numbers[name], a, b, out, a.size // n, n, dtype.itemsize, _get_num_threads())
    return out


def softmax(x: Any, axis: int = -1, dtype: Any = None) -> Any:
    return _rows("softmax", reference.softmax, x, None, axis, dtype)


def softmax_grad(dy: Any, y: Any, axis: int = -1, dtype: Any = None) -> Any:
    return _rows("softmax_grad", reference.softmax_grad, dy, y, axis, dtype)


def log_softmax(x: Any, axis: int = -1, dtype: Any = None) -> Any:
    return _rows("log_softmax", reference.log_softmax, x, None, axis, dtype)


def log_softmax_grad(dy: Any, y: Any, axis: int = -1, dtype: Any = None) -> Any:
    return _rows("log_softmax_grad", reference.log_softmax_grad, dy, y, axis, dtype)


def cross_entropy(x: Any, target: Any, ignore_index: int = -100, label_smoothing: float = 0.0) -> Any:
    x = _wide(x)
    dtype = x.dtype
    if dtype not in (_float32, _float64) or x.size == 0:
        return reference.cross_entropy(x, target, ignore_index, label_smoothing)
    rows, n = x.shape
    x, classes = plain(x), plain(target.astype(np.int64, copy=False))
    loss, lse = np.empty(rows, dtype), np.empty(rows, np.float64)
    wrong = _kernels.losses(
        x, classes, loss, lse, rows, n, ignore_index, label_smoothing, dtype.itemsize, _get_num_threads()
    )
    if wrong >= 0:
        reference.check_target(x, classes, ignore_index)
    return loss, lse


def cross_entropy_grad(
    dy: Any, x: Any, target: Any, lse: Any, ignore_index: int = -100, label_smoothing: float = 0.0, count: Any = None
) -> Any:
    dtype, x = x.dtype, _wide(x)
    if x.dtype not in (_float32, _float64) or x.size == 0:
        return reference.cross_entropy_grad(dy, x, target, lse, ignore_index, label_smoothing, count)
    rows, n = x.shape
    dy = plain(reference.shares(dy, count, rows).astype(x.dtype, copy=False))
    x, classes = plain(x), plain(target.astype(np.int64, copy=False))
    dx = _empty(x.shape, x.dtype)
    _kernels.loss_grads(dy, x, classes, lse, dx, rows, n, ignore_index, label_smoothing, x.itemsize, _get_num_threads())
    return dx.astype(dtype, copy=False)


def _wide(x: Any) -> Any:
    return x.astype(np.float32) if x.dtype in dtypes.HALVES else x


reduce_losses = reference.reduce_losses
check_target = reference.check_target
