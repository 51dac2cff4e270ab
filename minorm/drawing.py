"""Tensors of random numbers: drawn from minorm's generator (`manual_seed`), or from `generator`. Names are PyTorch's.

Numbers are drawn on the CPU and then moved, so that a seed gives the same ones everywhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm import devices, dtypes, random
from minorm.mistakes import making
from minorm.ops.operands import sizes_of
from minorm.tensor import Tensor


@making
def randn(
    *size: Any, dtype: Any = None, requires_grad: bool = False, device: Any = None, generator: Any = None
) -> Tensor:
    """Normal with mean 0 and variance 1."""
    kind = dtypes.get_default_dtype() if dtype is None else dtypes.check(dtype)
    numbers = random.source(generator).standard_normal(sizes_of("randn", size))
    return _drawn(numbers, kind, device, requires_grad)


@making
def rand(
    *size: Any, dtype: Any = None, requires_grad: bool = False, device: Any = None, generator: Any = None
) -> Tensor:
    """Uniform on [0, 1)."""
    kind = dtypes.get_default_dtype() if dtype is None else dtypes.check(dtype)
    # float32 from the start: a float64 just below 1 would round to 1 in float32
    wide = np.float64 if kind == dtypes.float64 else np.float32
    return _drawn(random.source(generator).random(sizes_of("rand", size), wide), kind, device, requires_grad)


@making
def randint(
    low: int = 0, high: Any = None, size: Any = None, dtype: Any = None, *, device: Any = None, generator: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Integers from low to high - 1; randint(high, size) draws from 0 on."""
    if size is None:
        low, high, size = 0, low, high
    kind = dtypes.int64 if dtype is None else dtypes.check(dtype)
    numbers = random.source(generator).integers(low, high, sizes_of("randint", (size,)))
    return _drawn(numbers, kind, device, requires_grad)


@making
def randperm(
    n: int, *, dtype: Any = None, device: Any = None, generator: Any = None, requires_grad: bool = False
) -> Tensor:
    """0 to n - 1 in random order."""
    kind = dtypes.int64 if dtype is None else dtypes.check(dtype)
    return _drawn(random.source(generator).permutation(n), kind, device, requires_grad)


@making
def randn_like(
    input: Tensor, dtype: Any = None, requires_grad: bool = False, *, device: Any = None, generator: Any = None
) -> Tensor:
    """Normal with mean 0 and variance 1, in input's shape and, unless given, type and device."""
    kind, place = dtype or input.dtype, device or input.device
    return randn(input.shape, dtype=kind, requires_grad=requires_grad, device=place, generator=generator)


@making
def rand_like(
    input: Tensor, dtype: Any = None, requires_grad: bool = False, *, device: Any = None, generator: Any = None
) -> Tensor:
    """Uniform on [0, 1), in input's shape and, unless given, type and device."""
    kind, place = dtype or input.dtype, device or input.device
    return rand(input.shape, dtype=kind, requires_grad=requires_grad, device=place, generator=generator)


@making
def randint_like(
    input: Tensor, low: int = 0, high: int | None = None, dtype: Any = None, *, device: Any = None,
    generator: Any = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Integers from low to high - 1, or from 0 to low - 1, in input's shape and, unless given, type and device."""
    first, last = (0, low) if high is None else (low, high)
    return randint(first, last, input.shape, dtype or input.dtype, device=device or input.device, generator=generator,
                   requires_grad=requires_grad)  # fmt: skip


@making
def normal(
    mean: Any, std: Any = 1.0, size: Any = None, *, generator: Any = None, dtype: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """mean + std * z, z normal; both are numbers or Tensors, whose shape the result has; `size` where both are numbers.

    No gradient reaches them; write mean + std * randn_like(std) where one should.
    """
    like = next((v for v in (mean, std) if isinstance(v, Tensor)), None)
    if like is None and size is None:
        raise TypeError("normal: mean and std are numbers and there is no size; expected a size")
    a, b = (v.cpu().array if isinstance(v, Tensor) else v for v in (mean, std))
    if np.any(np.asarray(b) < 0):
        raise ValueError(f"normal: std is {std}; expected numbers of at least 0")
    shape = np.broadcast_shapes(np.shape(a), np.shape(b)) if like is not None else sizes_of("normal", (size,))
    kind = dtype or (dtypes.get_default_dtype() if like is None else like.dtype)
    numbers = random.source(generator).standard_normal(shape) * b + a
    return _drawn(numbers, dtypes.check(kind), device if like is None else like.device, requires_grad)


def _drawn(numbers: Any, kind: Any, device: Any, requires_grad: bool = False) -> Tensor:
    array = np.asarray(numbers).astype(kind, copy=False)
    return Tensor(array if device is None else devices.to_device(array, device), requires_grad)
