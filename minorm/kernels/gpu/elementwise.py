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
import numpy as np

from minorm.devices import dtypes
from minorm.kernels.activations import Activations
from minorm.kernels.gpu import copying, launch, memory
from minorm.kernels.gpu.operands import arranged, dense
from minorm.kernels.gpu.plans import broadcast_plan
from minorm.kernels.gpu.plans.structs import Struct, constant
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
    "log", "log1p", "log_softmax", "log_softmax_grad", "mul", "neg", "over", "power", "reduce_losses", "relu", "relu6",
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
    elif not is_dense(a) and is_dense(b) and 0 in a.strides:  # a repeated gradient
        out = memory.empty_like(b)
        if _broadcast(name, a, b, out, option):
            return out
        b, a = _in_one_order(b, a)
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
    last = (_number(dtype, option),)
    if b is None:
        run(a, out, last=last)
    else:
        run(a, b, out, last=last)


@cached
def _planned(name: str, one: bool, dtype: Any, n: int, aligned: bool) -> Launch:
    index, width = launch.index_type(n), launch.ACCESS // dtype.itemsize if aligned else 1
    kernel = _program.kernel("map_one" if one else "map_two", name, dtype, dtypes.compute_type(dtype), width, index)
    return Launch(kernel, (launch.blocks(-(-n // width), THREADS),), (THREADS,), after=(index.type(n),))


def _number(dtype: Any, option: float) -> Any:
    """Return the number of an operation, such as a slope, as a kernel takes it."""
    return dtypes.compute_type(dtype).type(option) if option else _NO_NUMBER[dtype]


_NO_NUMBER = {dtype: constant(dtypes.compute_type(dtype).type(0)) for dtype in dtypes.FLOATS}


# Arithmetic. Operands may broadcast along any axes, and may have two float types. CuPy computes integers, arrays with
# negative steps, and operands that need more than six loops.


def _arithmetic(name: str, fallback: Callable[..., Any], a: Any, b: Any) -> Any:
    """Return the result of the operation `name` for a and b, as a new array.

    The result has the memory order of the first argument that has its shape and no gaps; else of the first that has its
    shape and is not repeated; else C order.
    """
    if a.dtype not in dtypes.FLOATS or b.dtype not in dtypes.FLOATS or not a.size or not b.size:
        return in_order(fallback, a, b)
    dtype = _result_type(a.dtype, b.dtype)
    if a.shape != b.shape or a.dtype != b.dtype or not (is_dense(a) and is_dense(b)):
        out = _empty_result(a, b, dtype)
        if _broadcast(f"op::{name}", a, b, out, 0.0):
            return out
        if a.shape != b.shape:
            return in_order(fallback, a, b)
    a, b = _in_one_order(copying.as_type(a, dtype), copying.as_type(b, dtype))
    out = memory.empty_like(a)
    _run(f"op::{name}", a, b, out, 0.0)
    return out


@functools.lru_cache(maxsize=64)
def _result_type(a: Any, b: Any) -> Any:
    """Return the type of the result of two float types. float16 and bfloat16 together are float32, as on the CPU."""
    return dtypes.float32 if {a, b} == dtypes.HALVES else np.result_type(a, b)


def _empty_result(a: Any, b: Any, dtype: Any) -> Any:
    """Allocate the result of two operands that broadcast against each other."""
    shape = _result_shape(a.shape, b.shape)
    full = [operand for operand in (a, b) if operand.shape == shape and (operand.ndim == 0 or 0 not in operand.strides)]
    like = next((operand for operand in full if is_dense(operand)), full[0] if full else None)
    return memory.empty(shape, dtype) if like is None else memory.empty_like(like, dtype)


@functools.lru_cache(maxsize=4096)
def _result_shape(a: Ints, b: Ints) -> Ints:
    return a if a == b else np.broadcast_shapes(a, b)


def _broadcast(name: str, a: Any, b: Any, out: Any, option: float) -> bool:
    """Fill `out`, which has no gaps, by one launch for operands that broadcast. Return False if there is no launch."""
    planned = _planned_broadcast(name, _lying(out), _lying(a), _lying(b), (a.dtype, b.dtype, out.dtype))
    if planned is None:
        return False
    run, swapped = planned
    if swapped:
        a, b = b, a
    run(a, b, out, last=(_number(out.dtype, option),))
    return True


def _lying(x: Any) -> broadcast_plan.Lying:
    bits = x.data.ptr | launch.ACCESS
    return x.shape, x.strides, x.itemsize, bits & -bits


@cached
def _planned_broadcast(
    name: str, out: broadcast_plan.Lying, a: broadcast_plan.Lying, b: broadcast_plan.Lying, types: tuple[Any, Any, Any]
) -> tuple[Launch, bool] | None:
    """Return the launch, and whether it takes b before a; None if there is no launch."""
    plan = broadcast_plan.plan(out, a, b)
    if plan is None:
        return None
    of_a, of_b, of_out = types
    if plan.swapped:
        name, of_a, of_b = f"op::swapped<{name}>", of_b, of_a
    template = of_a, of_b, of_out, dtypes.compute_type(of_out), plan.width, plan.flat, plan.integer
    kernel = _program.kernel("map_broadcast", name, *template)
    before = Struct(plan.loops), plan.integer.type(plan.size), *map(dtypes.bool.type, plan.wholes)
    return Launch(kernel, plan.grid, (broadcast_plan.THREADS,), before), plan.swapped


def add(a: Any, b: Any) -> Any:
    return _arithmetic("add", reference.add, a, b)


def sub(a: Any, b: Any) -> Any:
    return _arithmetic("sub", reference.sub, a, b)


def mul(a: Any, b: Any) -> Any:
    return _arithmetic("mul", reference.mul, a, b)


def div(a: Any, b: Any) -> Any:
    return _arithmetic("div", reference.div, a, b)


def neg(x: Any) -> Any:
    return _map("neg", reference.neg, x)


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
        if x.shape != total.shape and _broadcast("op::add", total, x, total, 0.0):
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
