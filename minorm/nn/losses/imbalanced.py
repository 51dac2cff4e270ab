"""Loss layers for classes of very different sizes; see minorm.functional.losses.imbalanced."""

from __future__ import annotations

from minorm.functional.losses import imbalanced as F
from minorm.nn.losses.loss import _Loss
from minorm.support.documented import arguments_of, documented
from minorm.tensor.tensor import Tensor


@documented(arguments_of(F.focal_loss))
class FocalLoss(_Loss):
    """loss = -(1 - p)^gamma log p, p = softmax(input)[target]: cross entropy in which easy examples count little.

    input is (N, C, d1, ...) or (C), where C is the number of classes. target is (N, d1, ...) and holds classes as
    integers from 0 to C - 1; or it holds probabilities, and has input's shape and type. The loss is one number, or (N,
    d1, ...) without a reduction. The mean divides by the sum of the targets' weights. weight is a buffer. See
    `F.focal_loss`; `F.sigmoid_focal_loss` is for yes-or-no answers.

    Example:
        >>> nn.FocalLoss(reduction="none")(mn.tensor([[2.0, 0.0], [0.0, 0.0]]), mn.tensor([0, 1]))
        tensor([0.0018, 0.1733])

    Written to ONNX by its formula; Lin et al. 2017, arXiv:1708.02002.
    """

    function = staticmethod(F.focal_loss)
    as_buffers = "weight"

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        gamma: float = 2.0,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(
            reduction, weight=weight, gamma=gamma, ignore_index=ignore_index, label_smoothing=label_smoothing
        )


@documented(arguments_of(F.dice_loss))
class DiceLoss(_Loss):
    """loss = 1 - (2 sum(p * q) + smooth) / (sum(p) + sum(q) + smooth): for segmentation.

    input is (N, C, d1, ...), and p is softmax(input) along axis 1, or sigmoid(input) if C is 1. target is (N, d1, ...)
    and holds classes as integers; or it holds probabilities, and has input's shape and type. q is the target, as
    probabilities. The sums run over the positions of one class in one sample. The better the predicted areas overlap
    the target's, the smaller the loss. The loss is one number, or (N, C) without a reduction. See `F.dice_loss`.

    Example:
        >>> nn.DiceLoss()(mn.tensor([[[30.0, 30.0, -30.0, -30.0]]]), mn.tensor([[1, 0, 0, 0]]))
        tensor(0.25)

    Written to ONNX by its formula; Milletari et al. 2016, arXiv:1606.04797.
    """

    function = staticmethod(F.dice_loss)

    def __init__(self, *, smooth: float = 1.0, ignore_index: int = -100, reduction: str = "mean") -> None:
        super().__init__(reduction, smooth=smooth, ignore_index=ignore_index)
