"""Distances between vectors, and the cosine of the angle between them."""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.functional.argument_texts import VECTORS
from minorm.functional.arguments import floats
from minorm.graph import trace
from minorm.support.documented import documented
from minorm.tensor.combining import maximum
from minorm.tensor.tensor import Tensor


@documented(
    VECTORS,
    x1="floats of any shape",
    x2="of x1's type; x1 and x2 broadcast",
    dim="the axis of the vectors",
    eps="the smallest length to divide by",
)
@trace.operation
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """y = x1 . x2 / (max(|x1|, eps) * max(|x2|, eps)) along `dim`: 1 for the same direction, 0 for a right angle, -1
    for opposite directions.

    y has x1's shape without `dim`.

    Example:
        >>> F.cosine_similarity(mn.tensor([[1.0, 0.0]]), mn.tensor([[3.0, 4.0]]))
        tensor([0.6])
    """
    floats("cosine_similarity", (), x1=x1, x2=x2)
    shape = np.broadcast_shapes(x1.shape, x2.shape)
    x1, x2 = x1.expand(shape), x2.expand(shape)
    a, b = (_floored(vector_norm(x, 2.0, dim, True), eps) for x in (x1, x2))
    return (x1 / a * (x2 / b)).sum(dim)


@documented(
    VECTORS,
    eps="added to each difference, so that equal vectors have a gradient",
    keepdim="True keeps the last axis with length 1, False drops it",
)
@trace.operation
def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """y = (sum |x1 - x2 + eps|^p)^(1/p) along the last axis.

    x1 and x2 broadcast to (..., M); y has the shape (...).

    Example:
        >>> F.pairwise_distance(mn.tensor([[0.0, 0.0]]), mn.tensor([[3.0, 4.0]]))
        tensor([5.])
    """
    floats("pairwise_distance", (), x1=x1, x2=x2)
    return vector_norm(x1 - x2 + eps, p, -1, keepdim)


@documented(
    VECTORS,
    x1="(*, P, M), floats",
    x2="(*, R, M), of x1's type",
    compute_mode="accepted but ignored: differences are always computed, so that no digits are lost",
)
@trace.operation
def cdist(
    x1: Tensor,
    x2: Tensor,
    p: float = 2.0,
    compute_mode: str = "use_mm_for_euclid_dist_if_necessary",  # noqa: ARG001
) -> Tensor:
    """y[..., i, j] = (sum |x1[..., i, :] - x2[..., j, :]|^p)^(1/p): the distance of each row of x1 from each row of x2.

    y is (*, P, R). Raises ValueError if the rows of x1 and x2 have different lengths.

    Example:
        >>> mn.cdist(mn.tensor([[0.0, 0.0]]), mn.tensor([[3.0, 4.0], [0.0, 1.0]]))
        tensor([[5., 1.]])
    """
    floats("cdist", (), x1=x1, x2=x2)
    if x1.ndim < 2 or x2.ndim < 2 or x1.shape[-1] != x2.shape[-1]:
        raise ValueError(f"cdist: x1 has shape {x1.shape}, x2 {x2.shape}; expected (*, P, M) and (*, R, M)")
    wide = dtypes.compute_type(x1.dtype)  # in 16 bits the differences would lose digits before they are summed
    return vector_norm(x1.to(wide).unsqueeze(-2) - x2.to(wide).unsqueeze(-3), p, -1).to(x1.dtype)


@documented(VECTORS, input="(N, M), floats")
@trace.operation
def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """y = (sum |input[i] - input[j]|^p)^(1/p) for all i < j: the distances of all pairs of rows.

    y is (N * (N - 1) / 2), ordered by i and then j. Raises ValueError unless input is a matrix.

    Example:
        >>> F.pdist(mn.tensor([[0.0], [1.0], [5.0]]))
        tensor([1., 5., 4.])
    """
    floats("pdist", input=input)
    if input.ndim != 2:
        raise ValueError(f"pdist: input has shape {input.shape}; expected (N, M)")
    first, second = np.triu_indices(len(input), 1)
    x = input.to(dtypes.compute_type(input.dtype))
    return vector_norm(x[first] - x[second], p, -1).to(input.dtype)


def vector_norm(x: Any, p: float, dim: int, keepdim: bool = False) -> Any:
    """Return (sum |x|^p)^(1/p) along an axis. The gradient is 0 where the norm is 0."""
    if p == 0:
        size = x.abs()
        return (size * 0 + (size.detach() != 0).to(x.dtype)).sum(dim, keepdim)
    return x.norm(p, dim, keepdim)


def _floored(norm: Tensor, eps: float) -> Tensor:
    """Return max(norm, eps). Where norm is below eps, no gradient flows."""
    return maximum(norm, Tensor(np.full_like(norm.array, eps)))
