"""Builds the arguments of the normalization kernels that are not data arrays: types, structs and scalars."""

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
    """Return scale, bias and their common type. If their types differ, cast both to the type of the computation."""
    if s is None or b is None or s.dtype == b.dtype:
        one = b if s is None else s
        return s, b, compute if one is None else one.dtype
    return s.astype(compute), b.astype(compute), compute


def scalars(equation: Equation | None) -> tuple[Any, Any, Any]:
    """Return eps, centered and guard in the kernels' form."""
    equation = equation or Equation()
    return np.float64(equation.eps), np.bool_(equation.centered), np.bool_(equation.guard)


def with_struct(plan: Any) -> Any:
    """Return a plan of norm_plan.py with its loops in the kernels' form."""
    return plan if plan is None else plan._replace(loops=Struct(plan.loops))


@functools.cache
def nobody() -> Struct:
    """Return a struct Running (running.cuh) that updates nothing."""
    return Struct(np.zeros((), RUNNING))


def running_of(running: Running | None, count: int) -> tuple[Struct, Type]:
    """Return the struct Running for the kernels, and the type of the running statistics."""
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
    """Return the struct Running with the addresses of a layer's arrays.

    The addresses stay the same from step to step.
    """
    return Struct(np.array((*addresses, rates), RUNNING))


@functools.cache
def _ticket(mean: int) -> Array:  # noqa: ARG001  one for each address, kept because graphs may hold it
    """Return the counter by which the blocks of a launch find out which of the blocks ends last. Between launches the
    counter is 0.
    """
    return cupy.zeros((), np.uint32)
