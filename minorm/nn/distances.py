"""Distances of vectors as layers; see minorm.functional.distances."""

from __future__ import annotations

from minorm.functional import distances as F
from minorm.nn.options import Options


class CosineSimilarity(Options):
    """x1 . x2 / (|x1| |x2|) along axis `dim`"""

    function = staticmethod(F.cosine_similarity)

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__(dim=dim, eps=eps)


class PairwiseDistance(Options):
    """(sum |x1 - x2 + eps|^p)^(1/p) along the last axis"""

    function = staticmethod(F.pairwise_distance)

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__(p=p, eps=eps, keepdim=keepdim)
