"""Loss layers with a margin; see minorm.functional.losses.margins."""

from __future__ import annotations

from collections.abc import Callable

from minorm.functional.losses import margins as F
from minorm.nn.options import Options
from minorm.support.documented import arguments_of, documented
from minorm.tensor.tensor import Tensor


@documented(arguments_of(F.margin_ranking_loss))
class MarginRankingLoss(Options):
    """loss = max(0, margin - target * (input1 - input2)): target says which of two scores should be larger.

    loss(input1, input2, target) takes three tensors of the same shape. target is 1 where input1 should be larger than
    input2, else -1. The loss is one number; with reduction="none", the loss has this shape.

    Example:
        >>> loss = nn.MarginRankingLoss(reduction="none")
        >>> loss(mn.tensor([1.0, 1.0]), mn.tensor([3.0, 3.0]), mn.tensor([1.0, -1.0]))
        tensor([2., 0.])

    An ONNX export writes the formula's operations.
    """

    function = staticmethod(F.margin_ranking_loss)

    def __init__(self, margin: float = 0.0, *, reduction: str = "mean") -> None:
        super().__init__(margin=margin, reduction=reduction)


@documented(arguments_of(F.hinge_embedding_loss))
class HingeEmbeddingLoss(Options):
    """loss = input where target is 1, and max(0, margin - input) where target is -1; input holds distances.

    target is 1 for pairs that should be alike, else -1. input and target have the same shape. The loss is one number;
    with reduction="none", the loss has this shape.

    Example:
        >>> loss = nn.HingeEmbeddingLoss(reduction="none")
        >>> loss(mn.tensor([0.2, 0.2]), mn.tensor([1.0, -1.0]))
        tensor([0.2, 0.8])

    An ONNX export writes the formula's operations.
    """

    function = staticmethod(F.hinge_embedding_loss)

    def __init__(self, margin: float = 1.0, *, reduction: str = "mean") -> None:
        super().__init__(margin=margin, reduction=reduction)


@documented(arguments_of(F.cosine_embedding_loss))
class CosineEmbeddingLoss(Options):
    """loss = 1 - cos(input1, input2) where target is 1, and max(0, cos - margin) where target is -1.

    loss(input1, input2, target) takes vectors input1 and input2 of shape (N, M) or (M), and a target of shape (N) or
    one number. The loss is one number, or (N) with reduction="none". A call raises ValueError unless there is one
    target for each pair of vectors.

    Example:
        >>> loss = nn.CosineEmbeddingLoss(reduction="none")
        >>> x = mn.tensor([[1.0, 0.0], [1.0, 0.0]])
        >>> loss(x, x, mn.tensor([1, -1]))
        tensor([0., 1.])

    An ONNX export writes the formula's operations.
    """

    function = staticmethod(F.cosine_embedding_loss)

    def __init__(self, margin: float = 0.0, *, reduction: str = "mean") -> None:
        super().__init__(margin=margin, reduction=reduction)


@documented(arguments_of(F.soft_margin_loss))
class SoftMarginLoss(Options):
    """loss = log(1 + exp(-target * input)), with target 1 or -1: for yes-or-no answers.

    input holds logits. input and target have the same shape. The loss is one number; with reduction="none", the loss
    has this shape.

    Example:
        >>> nn.SoftMarginLoss(reduction="none")(mn.tensor([0.0, 2.0]), mn.tensor([1.0, 1.0]))
        tensor([0.6931, 0.1269])

    An ONNX export writes the formula's operations.
    """

    function = staticmethod(F.soft_margin_loss)

    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)


@documented(arguments_of(F.multilabel_margin_loss))
class MultiLabelMarginLoss(Options):
    """loss = sum over right classes r and wrong classes w of max(0, 1 - input[r] + input[w]) / C.

    input (N, C) or (C) holds a score for each of the C classes. target has the same shape and lists the right classes;
    a -1 ends the list. The loss is one number, or (N) with reduction="none". A call raises ValueError if target does
    not have input's shape.

    Example:
        >>> nn.MultiLabelMarginLoss()(mn.tensor([[0.2, 0.5, 0.9]]), mn.tensor([[2, -1, 0]]))  # (0.3 + 0.6) / 3
        tensor(0.3)

    It has no ONNX form.
    """

    function = staticmethod(F.multilabel_margin_loss)

    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)


@documented(arguments_of(F.multilabel_soft_margin_loss))
class MultiLabelSoftMarginLoss(Options):
    """loss = mean over classes of -weight * (target * log p + (1 - target) * log(1 - p)) with p = sigmoid(input).

    This loss is for samples that can have several classes. input (N, C) or (C) holds logits. target has the same shape,
    and is 1 for each class of the sample, else 0. The loss is one number, or (N) with reduction="none". weight is
    stored as a buffer.

    Example:
        >>> nn.MultiLabelSoftMarginLoss()(mn.tensor([[0.0, 2.0]]), mn.tensor([[1.0, 1.0]]))
        tensor(0.41)

    An ONNX export writes the formula's operations.
    """

    function = staticmethod(F.multilabel_soft_margin_loss)
    as_buffers = "weight"

    def __init__(self, weight: Tensor | None = None, *, reduction: str = "mean") -> None:
        super().__init__(weight=weight, reduction=reduction)


@documented(arguments_of(F.multi_margin_loss))
class MultiMarginLoss(Options):
    """loss = sum over the wrong classes of weight[target] * max(0, margin - input[target] + input[class])^p / C.

    This is the loss of a support vector machine for several classes. input (N, C) or (C) holds a score for each of the
    C classes. target (N), or one number, holds the right class of each sample as an integer. The loss is one number, or
    (N) with reduction="none". weight is stored as a buffer. A call raises ValueError unless p is 1 or 2.

    Example:
        >>> nn.MultiMarginLoss()(mn.tensor([[1.0, 0.5, 0.0]]), mn.tensor([0]))  # 0.5 / 3
        tensor(0.1667)

    An ONNX export writes the formula's operations; Weston and Watkins 1999.
    """

    function = staticmethod(F.multi_margin_loss)
    as_buffers = "weight"

    def __init__(
        self, p: int = 1, margin: float = 1.0, weight: Tensor | None = None, *, reduction: str = "mean"
    ) -> None:
        super().__init__(weight=weight, p=p, margin=margin, reduction=reduction)


@documented(arguments_of(F.triplet_margin_loss))
class TripletMarginLoss(Options):
    """loss = max(0, d(anchor, positive) - d(anchor, negative) + margin) with d(x, y) = (sum |x - y + eps|^p)^(1/p).

    loss(anchor, positive, negative) takes vectors (..., M), all of the same shape. In training, the vectors of similar
    things move together, and the vectors of different things move apart. The loss is one number, or (...) with
    reduction="none".

    Example:
        >>> anchor, near, far = mn.tensor([[0.0, 0.0]]), mn.tensor([[0.0, 1.0]]), mn.tensor([[0.0, 3.0]])
        >>> loss = nn.TripletMarginLoss()
        >>> loss(anchor, near, far), loss(anchor, far, near)
        (tensor(0.), tensor(3.))

    An ONNX export writes the formula's operations; Balntas et al. 2016.
    """

    function = staticmethod(F.triplet_margin_loss)

    def __init__(
        self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False, *, reduction: str = "mean"
    ) -> None:
        super().__init__(margin=margin, p=p, eps=eps, swap=swap, reduction=reduction)


@documented(arguments_of(F.triplet_margin_with_distance_loss))
class TripletMarginWithDistanceLoss(Options):
    """loss = max(0, d(anchor, positive) - d(anchor, negative) + margin), where d is a custom distance.

    loss(anchor, positive, negative) takes tensors of one shape, which are arguments of distance_function. The loss is
    one number; with reduction="none", the loss has the shape of the distances.

    Example:
        >>> loss = nn.TripletMarginWithDistanceLoss(distance_function=lambda x, y: (x - y).abs().sum(-1))
        >>> anchor, near, far = mn.tensor([[0.0, 0.0]]), mn.tensor([[0.0, 1.0]]), mn.tensor([[2.0, 3.0]])
        >>> loss(anchor, far, near)
        tensor(5.)

    An ONNX export writes the formula's operations.
    """

    function = staticmethod(F.triplet_margin_with_distance_loss)

    def __init__(
        self,
        *,
        distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(distance_function=distance_function, margin=margin, swap=swap, reduction=reduction)
