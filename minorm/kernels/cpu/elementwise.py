"""The elementwise kernels, parallel and vectorised, for the four float types. The reference computes everything else.

Each function has the formula of the same function in kernels/reference/elementwise.py. A kernel needs dense arrays with
the same layout. If the layouts differ (channels-last, a broadcast gradient), this module copies the arrays into one
layout first. 16-bit floats compute in float32, block by block, and the result is rounded once. Results do not depend on
the number of threads.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

import minorm_ext
from minorm.devices import dtypes
from minorm.kernels.activations import Activations
from minorm.kernels.cpu import memory
from minorm.kernels.cpu.operands import STORAGE, is_plain, plain
from minorm.kernels.cpu.softmax import (
    check_target,
    cross_entropy,
    cross_entropy_grad,
    log_softmax,
    log_softmax_grad,
    reduce_losses,
    softmax,
    softmax_grad,
)
from minorm.kernels.cpu.sums import sum_axes, sum_to
from minorm.kernels.reference import elementwise as reference

__all__ = [
    "accumulate", "add", "check_target", "copy", "cross_entropy", "cross_entropy_grad", "div", "elu", "elu_grad", "erf",
    "erf_grad", "exp", "expm1", "gelu", "gelu_grad", "hardswish", "hardswish_grad", "leaky_relu", "leaky_relu_grad",
    "log", "log1p", "log_softmax", "log_softmax_grad", "mul", "neg", "over", "power", "reduce_losses", "relu", "relu6",
    "relu6_grad", "relu_grad", "scale", "sigmoid", "sigmoid_grad", "silu", "silu_grad", "softmax", "softmax_grad",
    "sub", "sum_axes", "sum_to", "tanh", "tanh_grad",
]  # fmt: skip

_maps: Any = minorm_ext.kernels("elementwise")
_run = _maps.run
_number: dict[str, int] = _maps.numbers
_float32, _float64 = dtypes.float32, dtypes.float64
_empty = memory.empty
_get_num_threads = minorm_ext.get_num_threads

FEW = 4  # the most elements of a short row
LARGE = 1 << 14  # the least elements for which the reference writes into the pool's memory


def _map(name: str, fallback: Callable[..., Any], a: Any, b: Any = None, option: float | None = None) -> Any:
    """Apply the operation `name` to dense float32 or float64 arrays; `_map_other` takes all other arrays."""
    dtype = a.dtype
    if (
        (dtype is _float32 or dtype is _float64)
        and a.flags.carray  # is_plain, and writable, as nearly all arrays are: cheaper than a call
        and (b is None or (b.dtype is dtype and b.shape == a.shape and b.flags.carray))
    ):
        out = _empty(a.shape, dtype)
        _run(_number[name], a, b, out, a.size, 2 if dtype is _float32 else 3, option or 0.0, _get_num_threads())
        return out
    return _map_other(name, fallback, a, b, option)


def _map_other(name: str, fallback: Callable[..., Any], a: Any, b: Any, option: float | None) -> Any:
    """Apply the operation `name` to 16-bit floats or to arrays with different layouts. If the types are not floats, or
    the types or shapes differ, call the fallback.
    """
    dtype = a.dtype
    same = b is None or (b.dtype == dtype and b.shape == a.shape)
    if not same or dtype not in STORAGE:
        arguments = [argument for argument in (a, b, option) if argument is not None]
        return fallback(*arguments)
    out = memory.empty_like(a if b is None else b)  # a gradient gets the layout of the array that forward kept
    order = sorted(range(out.ndim), key=lambda axis: -out.strides[axis])
    a, b = (None if x is None else plain(x.transpose(order)) for x in (a, b))
    _run(_number[name], a, b, out.transpose(order), out.size, STORAGE[dtype], option or 0.0, _get_num_threads())
    return out


def _pooled(ufunc: Any, a: Any, b: Any) -> Any:
    """Call a NumPy function for operands that broadcast or have two types. The pool allocates a large result."""
    a, b = _whole_rows(a), _whole_rows(b)
    large = a if a.size >= b.size else b
    if large.size < LARGE or a.dtype != b.dtype or np.broadcast_shapes(a.shape, b.shape) != large.shape:
        return ufunc(a, b)
    return ufunc(a, b, out=memory.empty_like(large))


def _whole_rows(x: Any) -> Any:
    """Return x, or a copy without gaps if x has many short rows with gaps. NumPy is slow for such rows."""
    if x.size < LARGE or x.shape[-1] > FEW or x.flags.c_contiguous or any(a < b for a, b in pairwise(x.strides)):
        return x
    return plain(x)


# Arithmetic.


def add(a: Any, b: Any) -> Any:
    return _map("add", _add, a, b)


def sub(a: Any, b: Any) -> Any:
    return _map("sub", _sub, a, b)


def mul(a: Any, b: Any) -> Any:
    return _map("mul", _mul, a, b)


def div(a: Any, b: Any) -> Any:
    return a / b


_add = functools.partial(_pooled, np.add)
_sub = functools.partial(_pooled, np.subtract)
_mul = functools.partial(_pooled, np.multiply)


def scale(x: Any, factor: float) -> Any:
    return _map("scale", reference.scale, x, None, factor)


over = reference.over


def copy(x: Any) -> Any:
    return _map("copy", reference.copy, x)


def accumulate(total: Any, x: Any) -> None:
    dtype = total.dtype
    if (
        dtype in STORAGE
        and x.dtype == dtype
        and x.shape == total.shape
        and is_plain(x)
        and is_plain(total)
        and not np.may_share_memory(x, total)
    ):
        _run(_number["accumulate"], x, None, total, x.size, STORAGE[dtype], 0.0, _get_num_threads())
    else:
        total += x


# Functions of one number, and powers. NumPy's functions have special code for some processors, so their last bits
# differ there.


def exp(x: Any) -> Any:
    return _map("exp", reference.exp, x)


def expm1(x: Any) -> Any:
    return _map("expm1", reference.expm1, x)


def log(x: Any) -> Any:
    return _map("log", reference.log, x)


def log1p(x: Any) -> Any:
    return _map("log1p", reference.log1p, x)


# Powers with a single rounding.
_EXACT: dict[float, Callable[[Any], Any]] = {1.0: copy, 2.0: lambda a: mul(a, a), -1.0: lambda a: 1 / a}


neg = reference.neg


def power(a: Any, b: Any) -> Any:
    dtype = a.dtype
    if dtype not in STORAGE or b.dtype != dtype:
        return reference.power(a, b)
    if b.size != 1 or b.ndim > a.ndim:
        shape = np.broadcast_shapes(a.shape, b.shape)
        a, b = (x if x.shape == shape else np.broadcast_to(x, shape) for x in (a, b))
        return _map("power", reference.power, a, b)
    exponent = float(b.reshape(()))
    if exponent in _EXACT:
        return _EXACT[exponent](a)
    return _map("power_by", reference.power, a, None, exponent)


# Activations.

_activations = Activations(_map)
relu, relu_grad = _activations.relu, _activations.relu_grad
relu6, relu6_grad = _activations.relu6, _activations.relu6_grad
leaky_relu, leaky_relu_grad = _activations.leaky_relu, _activations.leaky_relu_grad
hardswish, hardswish_grad = _activations.hardswish, _activations.hardswish_grad
sigmoid, sigmoid_grad = _activations.sigmoid, _activations.sigmoid_grad
tanh, tanh_grad = _activations.tanh, _activations.tanh_grad
silu, silu_grad = _activations.silu, _activations.silu_grad
elu, elu_grad = _activations.elu, _activations.elu_grad
gelu, gelu_grad = _activations.gelu, _activations.gelu_grad
erf, erf_grad = _activations.erf, _activations.erf_grad
