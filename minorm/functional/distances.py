"""How far apart vectors are, and how much they point the same way."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minorm import trace
from minorm.functional.arguments import floats
from minorm.joining import maximum
from minorm.ops.elementwise import Root
from minorm.tensor import Tensor


@trace.operation
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """x1 . x2 / (max(|x1|, eps) * max(|x2|, eps)) along `dim`; the two broadcast."""
    floats("cosine_similarity", (), x1=x1, x2=x2)
    shape = np.broadcast_shapes(x1.shape, x2.shape)
    x1, x2 = x1.expand(shape), x2.expand(shape)
    a, b = (_floored(vector_norm(x, 2.0, dim, True), eps) for x in (x1, x2))
    return (x1 / a * (x2 / b)).sum(dim)


@trace.operation
def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """(sum |x1 - x2 + eps|^p)^(1/p) along the last axis; p may be 0, the number of elements not 0, or math.inf."""
    floats("pairwise_distance", (), x1=x1, x2=x2)
    return vector_norm(x1 - x2 + eps, p, -1, keepdim)


@trace.operation
def cdist(
    x1: Tensor,
    x2: Tensor,
    p: float = 2.0,
    compute_mode: str = "use_mm_for_euclid_dist_if_necessary",  # noqa: ARG001
) -> Tensor:
    """The distance of each row of x1 (*, P, M) to each of x2 (*, R, M): (*, P, R)."""
    floats("cdist", (), x1=x1, x2=x2)
    if x1.ndim < 2 or x2.ndim < 2 or x1.shape[-1] != x2.shape[-1]:
        raise ValueError(f"cdist: x1 has shape {x1.shape}, x2 {x2.shape}; expected (*, P, M) and (*, R, M)")
    return vector_norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), p, -1)


@trace.operation
def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """The distances of all pairs of the rows of input (N, M), row i before row j: (N * (N - 1) / 2)."""
    floats("pdist", input=input)
    if input.ndim != 2:
        raise ValueError(f"pdist: input has shape {input.shape}; expected (N, M)")
    first, second = np.triu_indices(len(input), 1)
    return vector_norm(input[first] - input[second], p, -1)


def vector_norm(x: Any, p: float, dim: int, keepdim: bool = False) -> Any:
    """(sum |x|^p)^(1/p) along an axis; its gradient is 0 where the norm is."""
    if p == 2:
        return Root.apply((x * x).sum(dim, keepdim))
    size = x.abs()
    if p == 1:
        return size.sum(dim, keepdim)
    if math.isinf(p):
        return size.amax(dim, keepdim) if p > 0 else size.amin(dim, keepdim)
    if p == 0:
        return (size * 0 + (size.detach() != 0).to(x.dtype)).sum(dim, keepdim)
    total = (size**p).sum(dim, keepdim)
    nothing = (total == 0).detach()
    return ((total + nothing.to(x.dtype)) ** (1 / p)) * (1 - nothing.to(x.dtype))


def _floored(norm: Tensor, eps: float) -> Tensor:
    """max(norm, eps), constant below eps."""
    return maximum(norm, Tensor(np.full_like(norm.array, eps)))
