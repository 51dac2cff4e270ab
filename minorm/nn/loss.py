"""Losses as layers: they hold the options, and class weights as buffers; `forward` calls the functional."""

from __future__ import annotations

import minorm.functional as F
from minorm.nn.module import Module
from minorm.tensor import Tensor


class _Loss(Module):
    def __init__(self, reduction: str) -> None:
        super().__init__()
        if reduction not in ("mean", "sum", "none"):
            raise ValueError(f"{type(self).__name__}: reduction is {reduction!r}; expected 'mean', 'sum' or 'none'")
        self.reduction = reduction


class CrossEntropyLoss(_Loss):
    """-log softmax(input)[target], for logits (N, C, d1, ...) and classes (N, d1, ...) or probabilities.

    See `F.cross_entropy`. weight: a factor for each class, a buffer.
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Logits against classes or probabilities."""
        return F.cross_entropy(
            input,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class NLLLoss(_Loss):
    """-input[target], for log-probabilities (N, C, d1, ...) and classes (N, d1, ...). See `F.nll_loss`."""

    def __init__(self, weight: Tensor | None = None, *, ignore_index: int = -100, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Log-probabilities against classes."""
        return F.nll_loss(input, target, self.weight, ignore_index=self.ignore_index, reduction=self.reduction)


class MSELoss(_Loss):
    """(input - target)^2"""

    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__(reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Equal shapes."""
        return F.mse_loss(input, target, reduction=self.reduction)


class L1Loss(_Loss):
    """|input - target|"""

    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__(reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Equal shapes."""
        return F.l1_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(_Loss):
    """d^2 / (2 beta) where |d| < beta, else |d| - beta / 2, d = input - target"""

    def __init__(self, *, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction)
        self.beta = beta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Equal shapes."""
        return F.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class BCEWithLogitsLoss(_Loss):
    """-(target * log p + (1 - target) * log(1 - p)), p = sigmoid(input). See `F.binary_cross_entropy_with_logits`."""

    def __init__(
        self, weight: Tensor | None = None, *, reduction: str = "mean", pos_weight: Tensor | None = None
    ) -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Logits against probabilities, equal shapes."""
        return F.binary_cross_entropy_with_logits(
            input, target, self.weight, reduction=self.reduction, pos_weight=self.pos_weight
        )
