"""Loss layers. Each layer holds options, and class weights as buffers. `forward` calls a function of
minorm.functional.
"""

from __future__ import annotations

from typing import Any

import minorm.functional as F
from minorm.nn.options import Options
from minorm.support.documented import arguments_of, documented
from minorm.tensor.tensor import Tensor


class _Loss(Options):
    def __init__(self, reduction: str, **options: Any) -> None:
        super().__init__(reduction=reduction, **options)
        if reduction not in ("mean", "sum", "none"):
            raise ValueError(f"{type(self).__name__}: reduction is {reduction!r}; expected 'mean', 'sum' or 'none'")

    def forward(self, input: Tensor, target: Tensor) -> Any:
        """Return the loss for this input and target."""
        return type(self).function(input, target, **self._arguments())


@documented(arguments_of(F.cross_entropy))
class CrossEntropyLoss(_Loss):
    """loss = -log softmax(input)[target]: for classification, with logits as input.

    input is (N, C, d1, ...) or (C), where C is the number of classes. target is (N, d1, ...) and holds classes as
    integers from 0 to C - 1. Alternatively, target has input's shape and type and holds probabilities; then the loss is
    -sum_c target_c log softmax(input)_c. The loss is one number, or (N, d1, ...) with reduction="none". The mean
    divides by the sum of the targets' weights. weight is stored as a buffer. A call raises TypeError for a wrong type,
    and ValueError for a wrong shape or a class outside 0 to C - 1. See `F.cross_entropy`.

    Example:
        >>> loss = nn.CrossEntropyLoss()
        >>> logits = mn.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0]], requires_grad=True)
        >>> loss(logits, mn.tensor([0, 1])).backward()  # the right class gets a gradient below 0
        >>> logits.grad.sign()
        tensor([[-1.,  1.,  1.],
                [ 1., -1.,  1.]])

    Written to ONNX as SoftmaxCrossEntropyLoss (opset 13). With probabilities or label_smoothing, the export writes the
    formula. Label smoothing: Szegedy et al. 2016, arXiv:1512.00567.
    """

    function = staticmethod(F.cross_entropy)
    as_buffers = "weight"

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(reduction, weight=weight, ignore_index=ignore_index, label_smoothing=label_smoothing)


@documented(arguments_of(F.nll_loss))
class NLLLoss(_Loss):
    """loss = -weight[target] * input[target]: the part of CrossEntropyLoss that follows its LogSoftmax.

    input is (N, C, d1, ...) or (C) and holds log-probabilities. target is (N, d1, ...) and holds classes as integers
    from 0 to C - 1. The loss is one number, or (N, d1, ...) with reduction="none". The mean divides by the sum of the
    targets' weights. weight is stored as a buffer. A call raises TypeError for a wrong type, and ValueError for a wrong
    shape or a class outside 0 to C - 1.

    Example:
        >>> nn.NLLLoss()(mn.tensor([[-0.1, -2.3]]), mn.tensor([1]))
        tensor(2.3)

    Written to ONNX as NegativeLogLikelihoodLoss (opset 22).
    """

    function = staticmethod(F.nll_loss)
    as_buffers = "weight"

    def __init__(self, weight: Tensor | None = None, *, ignore_index: int = -100, reduction: str = "mean") -> None:
        super().__init__(reduction, weight=weight, ignore_index=ignore_index)


class _Difference(_Loss):
    """input and target do not broadcast: a call raises ValueError if their shapes differ, and TypeError if their float
    types differ. The loss is one number; with reduction="none", the loss has input's shape.

    Example:
        >>> nn.{name}()(mn.tensor([1.0, 2.0]), mn.tensor([1.0, 4.0]))
        tensor({mean})

    {onnx}
    """

    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__(reduction)


@documented(
    arguments_of(F.mse_loss),
    base=_Difference,
    words={"mean": "2.", "onnx": "Written to ONNX as Sub, Mul (opset 14) and ReduceMean (opset 18)."},
)
class MSELoss(_Difference):
    """loss = (input - target)^2: for regression."""

    function = staticmethod(F.mse_loss)


@documented(
    arguments_of(F.l1_loss),
    base=_Difference,
    words={"mean": "1.", "onnx": "Written to ONNX as Sub (opset 14), Abs (opset 13) and ReduceMean (opset 18)."},
)
class L1Loss(_Difference):
    """loss = |input - target|: for regression with outliers, which have less influence than in MSELoss."""

    function = staticmethod(F.l1_loss)


@documented(arguments_of(F.smooth_l1_loss))
class SmoothL1Loss(_Loss):
    """loss = d^2 / (2 beta) where |d| < beta, else |d| - beta / 2, where d = input - target.

    input and target do not broadcast: a call raises ValueError if their shapes differ, and TypeError if their float
    types differ. The loss is one number; with reduction="none", the loss has input's shape.

    Example:
        >>> nn.SmoothL1Loss(reduction="none")(mn.tensor([0.5, 3.0]), mn.tensor([0.0, 0.0]))
        tensor([0.125, 2.5  ])

    An ONNX export writes the formula's operations; Girshick 2015, arXiv:1504.08083.
    """

    function = staticmethod(F.smooth_l1_loss)

    def __init__(self, *, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction, beta=beta)


@documented(arguments_of(F.binary_cross_entropy_with_logits))
class BCEWithLogitsLoss(_Loss):
    """loss = -weight * (pos_weight * target * log p + (1 - target) * log(1 - p)) with p = sigmoid(input).

    This loss is for yes-or-no answers. input holds logits. Large logits cause no overflow. input and target do
    not broadcast: a call raises ValueError if their shapes differ, and TypeError if their float types differ. The loss
    is one number; with reduction="none", the loss has input's shape. weight and pos_weight are stored as buffers.

    Example:
        >>> loss = nn.BCEWithLogitsLoss(reduction="none")
        >>> loss(mn.tensor([0.0, 2.0]), mn.tensor([1.0, 1.0]))
        tensor([0.6931, 0.1269])

    An ONNX export writes the formula's operations, with Softplus (opset 22).
    """

    function = staticmethod(F.binary_cross_entropy_with_logits)
    as_buffers = "weight pos_weight"

    def __init__(
        self, weight: Tensor | None = None, *, reduction: str = "mean", pos_weight: Tensor | None = None
    ) -> None:
        super().__init__(reduction, weight=weight, pos_weight=pos_weight)
