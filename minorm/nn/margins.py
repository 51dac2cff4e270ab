"""Losses with a margin as layers; see minorm.functional.margins."""

from __future__ import annotations

from collections.abc import Callable

from minorm.functional import margins as F
from minorm.nn.options import Options
from minorm.tensor import Tensor


class _Weighted(Options):
    def __init__(self, weight: Tensor | None, **options: object) -> None:
        super().__init__(**options)
        self.register_buffer("weight", weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The function of the two, with the weight."""
        return type(self).function(input, target, weight=self.weight, **self.options())


class MarginRankingLoss(Options):
    """max(0, margin - target * (input1 - input2))"""

    function = staticmethod(F.margin_ranking_loss)

    def __init__(self, margin: float = 0.0, *, reduction: str = "mean") -> None:
        super().__init__(margin=margin, reduction=reduction)


class HingeEmbeddingLoss(Options):
    """input where target is 1, max(0, margin - input) where it is -1"""

    function = staticmethod(F.hinge_embedding_loss)

    def __init__(self, margin: float = 1.0, *, reduction: str = "mean") -> None:
        super().__init__(margin=margin, reduction=reduction)


class CosineEmbeddingLoss(Options):
    """1 - cos where target is 1, max(0, cos - margin) where it is -1, for (input1, input2, target)"""

    function = staticmethod(F.cosine_embedding_loss)

    def __init__(self, margin: float = 0.0, *, reduction: str = "mean") -> None:
        super().__init__(margin=margin, reduction=reduction)


class SoftMarginLoss(Options):
    """log(1 + exp(-target * input)), target 1 or -1"""

    function = staticmethod(F.soft_margin_loss)

    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)


class MultiLabelMarginLoss(Options):
    """sum over right and wrong classes of max(0, 1 - right + wrong) / classes"""

    function = staticmethod(F.multilabel_margin_loss)

    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)


class MultiLabelSoftMarginLoss(_Weighted):
    """The mean over classes of the loss of a sigmoid for each"""

    function = staticmethod(F.multilabel_soft_margin_loss)

    def __init__(self, weight: Tensor | None = None, *, reduction: str = "mean") -> None:
        super().__init__(weight=weight, reduction=reduction)


class MultiMarginLoss(_Weighted):
    """sum over wrong classes of max(0, margin - right + wrong)^p / classes"""

    function = staticmethod(F.multi_margin_loss)

    def __init__(
        self, p: int = 1, margin: float = 1.0, weight: Tensor | None = None, *, reduction: str = "mean"
    ) -> None:
        super().__init__(weight=weight, p=p, margin=margin, reduction=reduction)


class TripletMarginLoss(Options):
    """max(0, d(anchor, positive) - d(anchor, negative) + margin)"""

    function = staticmethod(F.triplet_margin_loss)

    def __init__(
        self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False, *, reduction: str = "mean"
    ) -> None:
        super().__init__(margin=margin, p=p, eps=eps, swap=swap, reduction=reduction)


class TripletMarginWithDistanceLoss(Options):
    """TripletMarginLoss by a distance of one's own."""

    function = staticmethod(F.triplet_margin_with_distance_loss)

    def __init__(
        self,
        *,
        distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(margin=margin, swap=swap, reduction=reduction)
        self.distance_function = distance_function

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """See `F.triplet_margin_with_distance_loss`."""
        return F.triplet_margin_with_distance_loss(
            anchor, positive, negative, distance_function=self.distance_function, **self.options()
        )
