"""What the normalization kernels get beside arrays of data: types, structs by value, scalars of the exact type."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from minorm import dtypes
from minorm.equation import Equation
from minorm.kernels.gpu.structs import Struct
from minorm.kernels.protocol import Running

Array = Any
Type = np.dtype[Any]

cached = functools.lru_cache(maxsize=4096)
RUNNING = np.dtype([("mean", "u8"), ("var", "u8"), ("batches", "u8"), ("rates", "f8", 3)])  # running.cuh


def types_of(x: Array, s: Array | None, b: Array | None, dtype: Any) -> tuple[Type, Array | None, Array | None, Type]:
    """The type computed in, scale and bias, and their one type: they are cast only where the two differ."""
    compute = dtypes.compute_type(x.dtype) if dtype is None else np.dtype(dtype)
    if s is None or b is None or s.dtype == b.dtype:
        one = b if s is None else s
        return compute, s, b, compute if one is None else one.dtype
    return compute, s.astype(compute), b.astype(compute), compute


def scalars(equation: Equation | None) -> tuple[Any, Any, Any]:
    """eps, centered and guard as kernels take them."""
    equation = equation or Equation()
    return np.float64(equation.eps), np.bool_(equation.centered), np.bool_(equation.guard)


def with_struct(plan: Any) -> Any:
    """A plan of norm_plan.py with its loops as kernels take them."""
    return plan if plan is None else plan._replace(loops=Struct(plan.loops))


@functools.cache
def nobody() -> Struct:
    """The struct Running of running.cuh with which nothing is updated."""
    return Struct(np.zeros((), RUNNING))


def running_of(running: Running | None, count: int) -> tuple[Struct, Type]:
    """The struct Running, and the type that running statistics have."""
    if running is None:
        return nobody(), dtypes.float32
    batches = 0 if running.batches is None else running.batches.data.ptr
    kept = _running_at(running.mean.data.ptr, running.var.data.ptr, batches, *running.rates(count))
    return kept, running.mean.dtype


@cached
def _running_at(mean: int, var: int, batches: int, *rates: float) -> Struct:
    """The struct for these addresses: a layer's stay where they are from step to step."""
    return Struct(np.array((mean, var, batches, rates), RUNNING))
