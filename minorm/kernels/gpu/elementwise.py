"""The elementwise kernels on CuPy arrays of the four float types; the reference, which CuPy answers, does all else.

The formulas are those of kernels/reference/elementwise.py, function by function. A kernel walks the memory of dense
arrays of one layout, one launch a function; 16-bit floats are widened in registers and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy

from minorm.devices import dtypes
from minorm.kernels.activations import Activations
from minorm.kernels.gpu import launch
from minorm.kernels.gpu.operands import arranged, dense
from minorm.kernels.gpu.program import Program
from minorm.kernels.gpu.softmax import (
    check_target,
    cross_entropy,
    cross_entropy_grad,
    log_softmax,
    log_softmax_grad,
    reduce_losses,
    softmax,
    softmax_grad,
)
from minorm.kernels.gpu.sums import sum_axes, sum_to
from minorm.kernels.reference import elementwise as reference
from minorm.kernels.reference.elementwise import exp, expm1, log, log1p, power

__all__ = [
    "accumulate", "add", "check_target", "copy", "cross_entropy", "cross_entropy_grad", "elu", "elu_grad", "erf",
    "erf_grad", "exp", "expm1", "gelu", "gelu_grad", "hardswish", "hardswish_grad", "leaky_relu", "leaky_relu_grad",
    "log", "log1p", "log_softmax", "log_softmax_grad", "mul", "power", "reduce_losses", "relu", "relu6", "relu6_grad",
    "relu_grad", "scale", "sigmoid", "sigmoid_grad", "silu", "silu_grad", "softmax", "softmax_grad", "sub", "sum_axes",
    "sum_to", "tanh", "tanh_grad",
]  # fmt: skip

THREADS = 256

_program = Program("elementwise.cu")


def _map(name: str, fallback: Callable[..., Any], a: Any, b: Any = None, option: float | None = None) -> Any:
    """A new array in the layout of the last argument: operation `name` on float arrays of one shape and type."""
    dtype = a.dtype
    if dtype not in dtypes.FLOATS or (b is not None and (b.dtype != dtype or b.shape != a.shape)) or not a.size:
        if name.startswith(("erf", "gelu")):  # CuPy's arrays have no erf in the reference's way
            return _no_integers(name, a, b)
        return fallback(*[argument for argument in (a, b, option) if argument is not None])
    if b is None:
        a = dense(a)
    else:
        b = dense(b)
        a = arranged(a, b)
    out = cupy.empty_like(a)
    _run(f"op::{name.removesuffix('_grad')}", a, b, out, option or 0.0)
    return out


def _no_integers(name: str, a: Any, b: Any) -> Any:
    """What is left for these two without floats: nothing, or an error."""
    x = a if b is None else b
    if a.size:
        operation = name.partition("_")[0]
        raise TypeError(f"{operation}: x has dtype {x.dtype} on a GPU; expected a float type: x.astype(np.float32)")
    return cupy.empty_like(x)


def _run(name: str, a: Any, b: Any, out: Any, option: float) -> None:
    """Launch one thread an access of 16 bytes; the arrays are dense and in one layout."""
    dtype, n = a.dtype, a.size
    compute, index = dtypes.compute_type(dtype), launch.index_type(n)
    width = launch.ACCESS // dtype.itemsize if launch.is_aligned(a, b, out) else 1
    kernel = _program.kernel("map_one" if b is None else "map_two", name, dtype, compute, width, index)
    grid = (launch.blocks(-(-n // width), THREADS),)
    arrays = (a, out) if b is None else (a, b, out)
    kernel(grid, (THREADS,), (*arrays, index.type(n), compute.type(option)))


# Arithmetic. Operands that broadcast or have different types are CuPy's own business.


def add(a: Any, b: Any) -> Any:
    return _map("add", reference.add, a, b)


def sub(a: Any, b: Any) -> Any:
    return _map("sub", reference.sub, a, b)


def mul(a: Any, b: Any) -> Any:
    return _map("mul", reference.mul, a, b)


def scale(x: Any, factor: float) -> Any:
    return _map("scale", reference.scale, x, None, factor)


def copy(x: Any) -> Any:
    return x.copy(order="K")


def accumulate(total: Any, x: Any) -> None:
    same = x.dtype == total.dtype and x.shape == total.shape and total.dtype in dtypes.FLOATS
    if same and total.size and total is dense(total) and x is arranged(x, total):
        _run("op::add", total, x, total, 0.0)
    else:
        total += x


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
