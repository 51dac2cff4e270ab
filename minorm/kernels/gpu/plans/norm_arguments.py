"""Builds the arguments of the normalization kernels that are not data arrays: types, structs and scalars."""

from __future__ import annotations

import functools
from typing import Any

import cupy
import numpy as np

from minorm.devices import dtypes
from minorm.kernels.gpu.plans.structs import Struct, constant
from minorm.kernels.gpu.program import cached
from minorm.kernels.protocol import Running
from minorm.normalization.equation import Equation

Array = Any
Type = np.dtype[Any]

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
    eps, centered, guard = np.float64(equation.eps), np.bool_(equation.centered), np.bool_(equation.guard)
    return constant(eps), constant(centered), constant(guard)


def with_struct(plan: Any) -> Any:
    """Return a plan of norm_plan.py with its loops, and its chunk if it has one, in the kernels' form."""
    if plan is None:
        return None
    chunk = {"chunk": constant(plan.chunk)} if hasattr(plan, "chunk") else {}
    return plan._replace(loops=Struct(plan.loops), **chunk)


@functools.cache
def no_running() -> Struct:
    """Return a struct Running (running.cuh) that updates nothing."""
    return Struct(np.zeros((), RUNNING))


def running_of(running: Running | None, count: int) -> tuple[Struct, Type]:
    """Return the struct Running for the kernels, and the type of the running statistics."""
    if running is None:
        return no_running(), dtypes.float32
    mean, var, batches, skipped = running.mean, running.var, running.batches, running.skipped
    addresses = (
        mean.data.ptr,
        var.data.ptr,
        0 if batches is None else batches.data.ptr,
        0 if skipped is None else skipped.data.ptr,
    )
    return _running_at(addresses, running.update_nonfinite, *running.rates(count)), mean.dtype


@cached
def _running_at(addresses: tuple[int, ...], update_nonfinite: bool, *rates: float) -> Struct:
    """Return the struct Running with the addresses of a layer's arrays.

    The addresses stay the same from step to step.
    """
    ticket = 0 if update_nonfinite else _ticket(addresses[0]).data.ptr
    return Struct(np.array((*addresses, ticket, rates), RUNNING))


@functools.cache
def _ticket(mean: int) -> Array:  # noqa: ARG001  one for each address, kept because graphs may hold it
    """Return the counter by which the blocks of a launch find out which of the blocks ends last. Between launches the
    counter is 0.
    """
    return cupy.zeros((), np.uint32)
