"""Loss layers for classes of very different sizes; see minorm.functional.losses.imbalanced."""

from __future__ import annotations

from minorm.functional.losses import imbalanced as F
from minorm.nn.losses.loss import _Loss
from minorm.support.documented import arguments_of, documented
from minorm.tensor.tensor import Tensor


@documented(arguments_of(F.focal_loss))
class FocalLoss(_Loss):
    """loss = -(1 - p)^gamma log p with p = softmax(input)[target]: cross entropy with little weight for easy examples.

    input is (N, C, d1, ...) or (C), where C is the number of classes. target is (N, d1, ...) and holds classes as
    integers from 0 to C - 1. Alternatively, target has input's shape and type and holds probabilities. The loss is one
    number, or (N, d1, ...) with reduction="none". The mean divides by the sum of the targets' weights. weight is stored
    as a buffer. See `F.focal_loss`; `F.sigmoid_focal_loss` is for yes-or-no answers.

    Example:
        >>> nn.FocalLoss(reduction="none")(mn.tensor([[2.0, 0.0], [0.0, 0.0]]), mn.tensor([0, 1]))
        tensor([0.0018, 0.1733])

    An ONNX export writes the formula's operations; Lin et al. 2017, arXiv:1708.02002.
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
    and holds classes as integers. Alternatively, target has input's shape and type and holds probabilities. q is the
    target's probability of a class. The sums run over the positions of one class in one sample. The loss is small if
    the predicted area and the target's area overlap well. The loss is one number, or (N, C) with reduction="none". See
    `F.dice_loss`.

    Example:
        >>> nn.DiceLoss()(mn.tensor([[[30.0, 30.0, -30.0, -30.0]]]), mn.tensor([[1, 0, 0, 0]]))
        tensor(0.25)

    An ONNX export writes the formula's operations; Milletari et al. 2016, arXiv:1606.04797.
    """

    function = staticmethod(F.dice_loss)

    def __init__(self, *, smooth: float = 1.0, ignore_index: int = -100, reduction: str = "mean") -> None:
        super().__init__(reduction, smooth=smooth, ignore_index=ignore_index)
