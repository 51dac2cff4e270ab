"""Tensors of random numbers, without gradients. Not public yet.

The functions draw from the generator that the caller passes. Without one they draw from minorm's generator, so that the
draws repeat after `minorm.manual_seed`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minorm.devices import dtypes, generators
from minorm.functional.arguments import float_type
from minorm.graph import trace
from minorm.kernels import draws
from minorm.tensor.tensor import Tensor

Source = np.random.Generator | None
KINDS = ("normal", "uniform")


@trace.operation
def drawn(kind: str, shape: Sequence[int], a: float, b: float, dtype: Any, generator: Source = None) -> Tensor:
    """Draw a tensor. For kind "normal", a is the mean and b is the standard deviation; for "uniform", numbers lie in
    [a, b).
    """
    return _drawn(kind, tuple(shape), a, b, dtype, generator)


@trace.operation
def drawn_like(x: Tensor, kind: str, a: float, b: float, dtype: Any = None, generator: Source = None) -> Tensor:
    """Draw a tensor of x's shape, and of x's type unless `dtype` is given. See `drawn` for the arguments."""
    return _drawn(kind, x.shape, a, b, x.dtype if dtype is None else dtype, generator, x.device)


@trace.operation
def bernoulli(p: Tensor, dtype: Any = None, generator: Source = None) -> Tensor:
    """Draw 1 with probability p, else 0, for each element of p. The result has p's type unless `dtype` is given."""
    float_type("bernoulli", "p", p)
    ones = p.bernoulli(generator=generator)
    return ones if dtype is None else ones.to(dtype)


@trace.operation
def multinomial(x: Tensor, count: int, dtype: Any = dtypes.int32, generator: Source = None) -> Tensor:
    """Draw `count` indices for each row of x, independently. Index i has the probability exp(row[i]) / sum exp(row).

    x is (rows, indices). The result is (rows, count) and holds integers.
    """
    float_type("multinomial", "x", x)
    if x.ndim != 2 or x.shape[1] == 0:
        raise ValueError(f"multinomial: x has shape {x.shape}; expected (rows, indices), with at least one index")
    logits = x.cpu().array.astype(np.float64)
    top = logits.max(1, keepdims=True, initial=-np.inf)
    if not np.isfinite(top).all():
        raise ValueError(
            "multinomial: a row of x has no finite maximum; expected logarithms that are finite or -inf, with at "
            "least one finite number in each row"
        )
    weights = Tensor(np.exp(logits - top)).to(x.device)
    return weights.multinomial(count, replacement=True, generator=generator).to(dtype)


def _drawn(
    kind: str, shape: tuple[int, ...], a: float, b: float, dtype: Any, generator: Source, device: Any = "cpu"
) -> Tensor:
    if not dtypes.is_float(np.dtype(dtype)):
        raise TypeError(f"{kind}: dtype is {np.dtype(dtype)}; expected a float type")
    wide = dtypes.float64 if dtype == dtypes.float64 else dtypes.float32
    if kind == "uniform":
        return Tensor(draws.uniform(shape, wide, device, generator, a, b)).to(dtype)
    numbers = generators.source(generator).standard_normal(shape, wide) * wide.type(b) + wide.type(a)
    return Tensor(np.asarray(numbers).astype(dtype)).to(device)
