"""Tensors of random numbers from minorm's generator, which `manual_seed` seeds, or from `generator`.

The names of the functions are PyTorch's. A seed gives the same numbers on every device. Uniform numbers are made on the
device where they are needed, with the same algorithm on every device (draws.py). All other numbers are drawn on the CPU
and then copied.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm import devices
from minorm.devices import dtypes, generators
from minorm.kernels import draws
from minorm.ops.operands import check_room, shape_of
from minorm.support.argument_errors import making
from minorm.support.argument_texts import DRAW, DRAW_LIKE
from minorm.support.documented import documented
from minorm.tensor.creation import laid_out_like
from minorm.tensor.tensor import Tensor


@documented(DRAW)
@making
def randn(
    *size: Any, dtype: Any = None, requires_grad: bool = False, device: Any = None, generator: Any = None
) -> Tensor:
    """Draw from the normal distribution with mean 0 and variance 1.

    Example:
        >>> first, again = (mn.randn(2, 3, generator=mn.Generator().manual_seed(0)) for _ in range(2))
        >>> first.shape, first.equal(again)
        ((2, 3), True)
    """
    kind = dtypes.get_default_dtype() if dtype is None else dtypes.check(dtype)
    numbers = generators.source(generator).standard_normal(shape_of("randn", size))
    return _drawn(numbers, kind, device, requires_grad)


@documented(DRAW)
@making
def rand(
    *size: Any, dtype: Any = None, requires_grad: bool = False, device: Any = None, generator: Any = None
) -> Tensor:
    """Draw from the uniform distribution on [0, 1).

    Example:
        >>> x = mn.rand(2, 3)
        >>> x.shape, bool((x < 1).all())
        ((2, 3), True)
    """
    kind = dtypes.get_default_dtype() if dtype is None else dtypes.check(dtype)
    # float32 from the start, since a float64 just below 1 would round to 1 in float32
    wide = dtypes.float64 if kind == dtypes.float64 else dtypes.float32
    numbers = draws.uniform(shape_of("rand", size), wide, device, generator)
    with devices.on_device_of(numbers):
        return Tensor(numbers.astype(kind, copy=False), requires_grad)


@documented(
    DRAW,
    low="the lowest number, included",
    high="the bound that all numbers stay below",
    size="the shape, a tuple",
    dtype="the element type; None is int64",
)
@making
def randint(
    low: int = 0, high: Any = None, size: Any = None, dtype: Any = None, *, device: Any = None, generator: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Draw integers from low to high - 1; randint(high, size) draws from 0 to high - 1.

    Example:
        >>> mn.randint(3, 4, (2,)), mn.randint(1, (2,))
        (tensor([3, 3]), tensor([0, 0]))
    """
    if size is None:
        low, high, size = 0, low, high
    kind = dtypes.int64 if dtype is None else dtypes.check(dtype)
    numbers = generators.source(generator).integers(low, high, shape_of("randint", (size,)))
    return _drawn(numbers, kind, device, requires_grad)


@documented(DRAW, n="the count of numbers", dtype="the element type; None is int64")
@making
def randperm(
    n: int, *, dtype: Any = None, device: Any = None, generator: Any = None, requires_grad: bool = False
) -> Tensor:
    """Return the numbers 0 to n - 1 in random order.

    Example:
        >>> mn.randperm(3).sort().values
        tensor([0, 1, 2])
    """
    kind = dtypes.int64 if dtype is None else dtypes.check(dtype)
    check_room("randperm", (n,))
    return _drawn(generators.source(generator).permutation(n), kind, device, requires_grad)


@documented(DRAW_LIKE)
@making
def randn_like(
    input: Tensor, dtype: Any = None, requires_grad: bool = False, *, device: Any = None, generator: Any = None,
    memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """Draw from the normal distribution with mean 0 and variance 1, in input's shape.

    Example:
        >>> mn.randn_like(mn.zeros(2, 3)).shape
        (2, 3)
    """
    kind, place = dtype or input.dtype, device or input.device
    made = randn(input.shape, dtype=kind, requires_grad=requires_grad, device=place, generator=generator)
    return laid_out_like("randn_like", made, input, memory_format)


@documented(DRAW_LIKE)
@making
def rand_like(
    input: Tensor, dtype: Any = None, requires_grad: bool = False, *, device: Any = None, generator: Any = None,
    memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """Draw from the uniform distribution on [0, 1), in input's shape.

    Example:
        >>> mn.rand_like(mn.zeros(2, 3)).shape
        (2, 3)
    """
    kind, place = dtype or input.dtype, device or input.device
    made = rand(input.shape, dtype=kind, requires_grad=requires_grad, device=place, generator=generator)
    return laid_out_like("rand_like", made, input, memory_format)


@documented(
    DRAW_LIKE,
    low="the lowest number; if high is missing, the bound that all numbers stay below",
    high="the bound that all numbers stay below; with None, low is the bound and 0 is the lowest number",
)
@making
def randint_like(
    input: Tensor, low: int = 0, high: int | None = None, dtype: Any = None, *, device: Any = None,
    generator: Any = None, requires_grad: bool = False, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """Draw integers from low to high - 1, in input's shape. If high is missing, draw from 0 to low - 1.

    Example:
        >>> mn.randint_like(mn.zeros(2), 3, 4)
        tensor([3., 3.])
    """
    first, last = (0, low) if high is None else (low, high)
    made = randint(first, last, input.shape, dtype or input.dtype, device=device or input.device, generator=generator,
                   requires_grad=requires_grad)  # fmt: skip
    return laid_out_like("randint_like", made, input, memory_format)


@documented(
    DRAW,
    mean="the mean of the draws, a number or a Tensor",
    std="the standard deviation of the draws, a number or a Tensor of at least 0",
    size="the shape, a tuple, if mean and std are numbers",
    dtype="the element type; None is the type of mean or std, or the default float type",
    device='the device of the result, "cpu" or "cuda", if mean and std are numbers; None is the CPU',
)
@making
def normal(
    mean: Any, std: Any = 1.0, size: Any = None, *, generator: Any = None, dtype: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """mean + std * z, with z drawn from the normal distribution.

    The result has the shape to which mean and std broadcast or, if both are numbers, the shape `size`.
    No gradient flows to mean and std; for gradients, write mean + std * randn_like(std). Raises TypeError if no
    argument gives a shape, and ValueError for a negative std.

    Example:
        >>> mn.normal(mn.tensor([1.0, 2.0]), std=0.0)
        tensor([1., 2.])
    """
    like = next((v for v in (mean, std) if isinstance(v, Tensor)), None)
    if like is None and size is None:
        raise TypeError("normal: mean and std are numbers and there is no size; expected a size")
    a, b = (v.cpu().array if isinstance(v, Tensor) else v for v in (mean, std))
    if np.any(np.asarray(b) < 0):
        raise ValueError(f"normal: std is {std}; expected numbers of at least 0")
    shape = np.broadcast_shapes(np.shape(a), np.shape(b)) if like is not None else shape_of("normal", (size,))
    kind = dtype or (dtypes.get_default_dtype() if like is None else like.dtype)
    numbers = generators.source(generator).standard_normal(shape) * b + a
    return _drawn(numbers, dtypes.check(kind), device if like is None else like.device, requires_grad)


def _drawn(numbers: Any, kind: Any, device: Any, requires_grad: bool = False) -> Tensor:
    array = np.asarray(numbers).astype(kind, copy=False)
    return Tensor(array if device is None else devices.to_device(array, device), requires_grad)
