"""What the normalization kernels get beside arrays of data: types, structs by value, scalars of the exact type."""

from __future__ import annotations

import functools
from typing import Any

import cupy
import numpy as np

from minorm.devices import dtypes
from minorm.kernels.gpu.plans.structs import Struct
from minorm.kernels.protocol import Running
from minorm.normalization.equation import Equation

Array = Any
Type = np.dtype[Any]

cached = functools.lru_cache(maxsize=4096)
ADDRESSES = ["mean", "var", "batches", "skipped", "ticket"]
RUNNING = np.dtype([*[(name, "u8") for name in ADDRESSES], ("rates", "f8", 3)])  # running.cuh


def types_of(compute: Type, s: Array | None, b: Array | None) -> tuple[Array | None, Array | None, Type]:
    """Scale and bias, and their one type: they are cast, to the type computed in, only where the two differ."""
    if s is None or b is None or s.dtype == b.dtype:
        one = b if s is None else s
        return s, b, compute if one is None else one.dtype
    return s.astype(compute), b.astype(compute), compute


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
    mean, *others = (
        0 if array is None else array.data.ptr
        for array in (running.mean, running.var, running.batches, running.skipped)
    )
    ticket = 0 if running.update_nonfinite else _ticket(mean).data.ptr
    return _running_at((mean, *others, ticket), *running.rates(count)), running.mean.dtype


@cached
def _running_at(addresses: tuple[int, ...], *rates: float) -> Struct:
    """The struct for these addresses: a layer's stay where they are from step to step."""
    return Struct(np.array((*addresses, rates), RUNNING))


@functools.cache
def _ticket(mean: int) -> Array:  # noqa: ARG001  one for each address, for as long as graphs may hold it
    """A counter by which blocks that compute statistics find out which one is the last; 0 between launches."""
    return cupy.zeros((), np.uint32)
