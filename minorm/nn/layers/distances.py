"""Layers that compute distances of vectors; see minorm.functional.distances."""

from __future__ import annotations

from minorm.functional import distances as F
from minorm.nn.options import Options
from minorm.support.documented import arguments_of, documented


@documented(arguments_of(F.cosine_similarity))
class CosineSimilarity(Options):
    """y = x1 . x2 / (|x1| |x2|), the cosine of the angle between the vectors along axis `dim`. y is 1 for the same
    direction, and 0 for a right angle.

    x1 and x2 broadcast to one shape; y has that shape without axis `dim`.

    Example:
        >>> nn.CosineSimilarity()(mn.tensor([[1.0, 0.0]]), mn.tensor([[3.0, 4.0]]))
        tensor([0.6])

    An ONNX export writes the formula's operations.
    """

    function = staticmethod(F.cosine_similarity)

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__(dim=dim, eps=eps)


@documented(arguments_of(F.pairwise_distance))
class PairwiseDistance(Options):
    """y = (sum |x1 - x2 + eps|^p)^(1/p), the distance of two vectors, along the last axis.

    x1 and x2 are (..., M) and are broadcast to one shape; y is (...), or (..., 1) with keepdim=True.

    Example:
        >>> nn.PairwiseDistance()(mn.tensor([[1.0, 0.0]]), mn.tensor([[4.0, 4.0]]))
        tensor([5.])

    An ONNX export writes the formula's operations.
    """

    function = staticmethod(F.pairwise_distance)

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__(p=p, eps=eps, keepdim=keepdim)
