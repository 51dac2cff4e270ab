"""The elementwise kernels on CuPy arrays of the four float types. The reference, which CuPy can run, computes
everything else.

Each function has the formula of the same function in kernels/reference/elementwise.py. Each function is one launch of a
kernel that goes through the memory of dense arrays in one layout. 16-bit floats are widened in registers, and results
are rounded once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import cupy

from minorm.devices import dtypes
from minorm.kernels.activations import Activations
from minorm.kernels.gpu import copying, launch, memory
from minorm.kernels.gpu.operands import arranged, dense
from minorm.kernels.gpu.plans import copy_plan
from minorm.kernels.gpu.plans.structs import constant
from minorm.kernels.gpu.program import Launch, Program, cached
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
from minorm.kernels.order import in_order, is_dense
from minorm.kernels.reference import elementwise as reference

__all__ = [
    "accumulate", "add", "check_target", "copy", "cross_entropy", "cross_entropy_grad", "div", "elu", "elu_grad", "erf",
    "erf_grad", "exp", "expm1", "gelu", "gelu_grad", "hardswish", "hardswish_grad", "leaky_relu", "leaky_relu_grad",
    "log", "log1p", "log_softmax", "log_softmax_grad", "mul", "over", "power", "reduce_losses", "relu", "relu6",
    "relu6_grad", "relu_grad", "scale", "sigmoid", "sigmoid_grad", "silu", "silu_grad", "softmax", "softmax_grad",
    "sub", "sum_axes", "sum_to", "tanh", "tanh_grad",
]  # fmt: skip

Ints = tuple[int, ...]

THREADS = 256

_program = Program("elementwise.cu")


def _map(name: str, fallback: Callable[..., Any], a: Any, b: Any = None, option: float | None = None) -> Any:
    """Apply the operation `name` to float arrays of one shape and type. The result has the layout of the last array."""
    dtype = a.dtype
    if dtype not in dtypes.FLOATS or (b is not None and (b.dtype != dtype or b.shape != a.shape)) or not a.size:
        if name.startswith(("erf", "gelu")):  # the reference's erf does not take CuPy's arrays
            return _no_integers(name, a, b)
        rule = fallback if option is None else lambda *arrays: fallback(*arrays, option)
        return in_order(rule, *[argument for argument in (a, b) if argument is not None])
    name, option = f"op::{name.removesuffix('_grad')}", option or 0.0
    if b is None:
        a = dense(a)
    elif not is_dense(a) and is_dense(b) and (form := _broadcast_step(b, a)) is not None:  # a repeated gradient
        out = memory.empty_like(b)
        _run_along(f"op::swapped<{name}>", b, a, out, form, option)
        return out
    else:
        b, a = _in_one_order(b, a)
    out = memory.empty_like(a)
    _run(name, a, b, out, option)
    return out


def _in_one_order(a: Any, b: Any) -> tuple[Any, Any]:
    """Return both arrays without gaps in the same memory order: a's order, or b's order if only a has gaps."""
    if not is_dense(a) and is_dense(b):
        return arranged(a, b), b
    a = dense(a)
    return a, arranged(b, a)


def _no_integers(name: str, a: Any, b: Any) -> Any:
    """Return an empty array if a is empty. Otherwise raise TypeError, since erf and gelu need floats on a GPU."""
    x = a if b is None else b
    if a.size:
        operation = name.partition("_")[0]
        raise TypeError(f"{operation}: x has dtype {x.dtype} on a GPU; expected a float type: x.astype(np.float32)")
    return memory.empty_like(x)


def _run(name: str, a: Any, b: Any, out: Any, option: float) -> None:
    """Launch one thread for each 16 bytes of the result. The arrays are dense and have the same layout."""
    dtype = a.dtype
    run = _planned(name, b is None, dtype, a.size, launch.is_aligned(a, b, out))
    number = dtypes.compute_type(dtype).type(option) if option else _NO_NUMBER[dtype]
    if b is None:
        run(a, out, last=(number,))
    else:
        run(a, b, out, last=(number,))


@cached
def _planned(name: str, one: bool, dtype: Any, n: int, aligned: bool) -> Launch:
    index, width = launch.index_type(n), launch.ACCESS // dtype.itemsize if aligned else 1
    kernel = _program.kernel("map_one" if one else "map_two", name, dtype, dtypes.compute_type(dtype), width, index)
    return Launch(kernel, (launch.blocks(-(-n // width), THREADS),), (THREADS,), after=(index.type(n),))


_NO_NUMBER = {dtype: constant(dtypes.compute_type(dtype).type(0)) for dtype in dtypes.FLOATS}


# Arithmetic. A kernel also takes an operand that is one number, or a row of numbers along neighbouring axes of the
# other operand, such as a bias of channels. CuPy computes other operands that broadcast or have different types.


def _arithmetic(name: str, fallback: Callable[..., Any], a: Any, b: Any) -> Any:
    """Return the result of the operation `name` for a and b, as a new array in the layout of the first argument."""
    if a.dtype not in dtypes.FLOATS or a.dtype != b.dtype or not a.size or not b.size:
        return in_order(fallback, a, b)
    are_dense = is_dense(a), is_dense(b)
    if a.shape != b.shape or not all(are_dense):
        for operation, long, short in ((f"op::{name}", a, b), (f"op::swapped<op::{name}>", b, a)):
            if are_dense[long is b] and (form := _broadcast_step(long, short)) is not None:
                out = memory.empty_like(long)
                _run_along(operation, long, short, out, form, 0.0)
                return out
        if a.shape != b.shape:
            return in_order(fallback, a, b)
    a, b = _in_one_order(a, b)
    out = memory.empty_like(a)
    _run(f"op::{name}", a, b, out, 0.0)
    return out


def _broadcast_step(a: Any, b: Any) -> tuple[int, int] | None:
    """Return (inner, count) if b broadcasts along a so that element i of a is combined with b[i // inner % count].

    The elements of the dense array a are counted in memory order. If b broadcasts in another way, return None.
    """
    return _broadcast_step_of(a.shape, a.strides, b.shape, b.strides, a.itemsize)


@functools.lru_cache(maxsize=4096)
def _broadcast_step_of(shape: Ints, steps: Ints, short: Ints, strides: Ints, itemsize: int) -> tuple[int, int] | None:
    lead = len(shape) - len(short)
    if lead < 0 or any(n not in (1, m) for n, m in zip(short, shape[lead:], strict=True)):
        return None
    source = (0,) * lead + tuple(0 if n == 1 else step // itemsize for n, step in zip(short, strides, strict=True))
    found = copy_plan.loops(shape, tuple(step // itemsize for step in steps), source)
    moving = [i for i, loop in enumerate(found) if loop.source]
    if not moving:
        return launch.ACCESS, 1  # a single number: `inner` may be any multiple of an access
    if len(moving) > 1 or found[moving[0]].source != 1:
        return None
    return found[moving[0]].to, found[moving[0]].times


def _run_along(name: str, a: Any, b: Any, out: Any, form: tuple[int, int], option: float) -> None:
    dtype, n = a.dtype, a.size
    compute, index = dtypes.compute_type(dtype), launch.index_type(n)
    width = launch.ACCESS // dtype.itemsize if launch.is_aligned(a, b, out) else 1
    kernel = _program.kernel("map_along", name, dtype, compute, width, index)
    grid = (launch.blocks(-(-n // width), THREADS),)
    kernel(grid, (THREADS,), (a, b, out, index.type(n), *map(index.type, form), compute.type(option)))


def add(a: Any, b: Any) -> Any:
    return _arithmetic("add", reference.add, a, b)


def sub(a: Any, b: Any) -> Any:
    return _arithmetic("sub", reference.sub, a, b)


def mul(a: Any, b: Any) -> Any:
    return _arithmetic("mul", reference.mul, a, b)


def div(a: Any, b: Any) -> Any:
    return _arithmetic("div", reference.div, a, b)


def scale(x: Any, factor: float) -> Any:
    return _map("scale", reference.scale, x, None, factor)


def over(x: Any, number: float) -> Any:
    return _map("over", reference.over, x, None, number)


def copy(x: Any) -> Any:
    return copying.copy(x)


def accumulate(total: Any, x: Any) -> None:
    """Add x to `total` in place, in the memory order of `total`. x may broadcast, for example if it is a bias."""
    if not _accumulated(total, x):
        total += x


def _accumulated(total: Any, x: Any) -> bool:
    """Add x to `total` in one launch. Return False if there is no kernel for these arrays."""
    if total.dtype not in dtypes.FLOATS or x.dtype != total.dtype or not total.size or not x.size:
        return False
    if is_dense(total):
        if x.shape == total.shape and copying.lies_as(x, total):
            _run("op::add", total, x, total, 0.0)
            return True
        form = None if x.shape == total.shape else _broadcast_step(total, x)
        if form is not None:
            _run_along("op::add", total, x, total, form, 0.0)
            return True
    return not cupy.may_share_memory(total, x) and copying.accumulate(total, x)


# Functions of one number, and powers.

exp, expm1 = functools.partial(in_order, reference.exp), functools.partial(in_order, reference.expm1)
log, log1p = functools.partial(in_order, reference.log), functools.partial(in_order, reference.log1p)
power = functools.partial(in_order, reference.power)


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
