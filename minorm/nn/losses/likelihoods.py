"""Loss layers for numbers and probabilities; see minorm.functional.losses.likelihoods."""

from __future__ import annotations

from minorm.functional.losses import likelihoods as F
from minorm.functional.losses.ctc import ctc_loss
from minorm.nn.options import Options
from minorm.support.documented import arguments_of, documented
from minorm.tensor.tensor import Tensor


@documented(arguments_of(F.binary_cross_entropy))
class BCELoss(Options):
    """loss = -weight * (target * log p + (1 - target) * log(1 - p)), where p = input; logarithms are at least -100.

    input and target do not broadcast: a call raises ValueError if their shapes differ, and TypeError if their float
    types differ. A call also raises ValueError if input is outside 0 to 1. The loss is one number; with
    reduction="none", the loss has input's shape. weight is stored as a buffer. `BCEWithLogitsLoss` takes the logits
    before the sigmoid, and is more exact than this loss.

    Example:
        >>> nn.BCELoss(reduction="none")(mn.tensor([0.5, 0.9]), mn.tensor([1.0, 1.0]))
        tensor([0.6931, 0.1054])

    An ONNX export writes the formula's operations.
    """

    function = staticmethod(F.binary_cross_entropy)
    as_buffers = "weight"

    def __init__(self, weight: Tensor | None = None, *, reduction: str = "mean") -> None:
        super().__init__(weight=weight, reduction=reduction)


@documented(arguments_of(F.kl_div))
class KLDivLoss(Options):
    """loss = target * (log target - input): how far exp(input) is from the distribution target.

    input holds log-probabilities; target holds probabilities or their logarithms. Where target is 0, the loss is 0.
    input and target broadcast to one shape. The loss is one number; with reduction="none", the loss has this shape.
    reduction="batchmean" gives the divergence, which is the sum divided by the size of the batch.

    Example:
        >>> input = mn.tensor([[0.5, 0.5]]).log()
        >>> nn.KLDivLoss(reduction="batchmean")(input, mn.tensor([[0.5, 0.5]]))
        tensor(0.)

    An ONNX export writes the formula's operations; Kullback and Leibler 1951.
    """

    function = staticmethod(F.kl_div)

    def __init__(self, *, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__(reduction=reduction, log_target=log_target)


@documented(arguments_of(F.huber_loss))
class HuberLoss(Options):
    """loss = d^2 / 2 where |d| <= delta, else delta * (|d| - delta / 2), where d = input - target.

    The loss is a parabola with straight ends. input and target do not broadcast: a call raises ValueError if their
    shapes differ, and TypeError if their float types differ. The loss is one number; with reduction="none", the loss
    has input's shape. A call raises ValueError unless delta > 0.

    Example:
        >>> nn.HuberLoss(reduction="none")(mn.tensor([0.5, 3.0]), mn.tensor([0.0, 0.0]))
        tensor([0.125, 2.5  ])

    An ONNX export writes the formula's operations; Huber 1964.
    """

    function = staticmethod(F.huber_loss)

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction=reduction, delta=delta)


@documented(arguments_of(F.poisson_nll_loss))
class PoissonNLLLoss(Options):
    """loss = exp(input) - target * input: -log of the probability of a count with mean exp(input).

    input is the logarithm of the mean. With log_input=False, input is the mean itself, and the loss is input - target *
    log(input + eps). target holds the counts. input and target broadcast to one shape. The loss is one number; with
    reduction="none", the loss has this shape. See `F.poisson_nll_loss`.

    Example:
        >>> nn.PoissonNLLLoss()(mn.tensor([0.0, 1.0]), mn.tensor([1.0, 3.0]))
        tensor(0.3591)

    An ONNX export writes the formula's operations.
    """

    function = staticmethod(F.poisson_nll_loss)

    def __init__(
        self, log_input: bool = True, full: bool = False, *, eps: float = 1e-8, reduction: str = "mean"
    ) -> None:
        super().__init__(log_input=log_input, full=full, eps=eps, reduction=reduction)


@documented(arguments_of(F.gaussian_nll_loss))
class GaussianNLLLoss(Options):
    """loss = (log var + (input - target)^2 / var) / 2: -log of a normal density with mean input and variance var.

    The call is loss(input, target, var). input and target have the same shape. var is a number, or a Tensor of this
    shape. The last axis of var may be missing, and an axis of var may have length 1. The loss is one number; with
    reduction="none", the loss has input's shape. A call raises ValueError if the shapes do not fit together, or if var
    is below 0.

    Example:
        >>> loss = nn.GaussianNLLLoss()
        >>> loss(mn.tensor([1.0]), mn.tensor([3.0]), mn.tensor([4.0]))  # (log 4 + 4 / 4) / 2
        tensor(1.1931)

    An ONNX export writes the formula's operations; Nix and Weigend 1994.
    """

    function = staticmethod(F.gaussian_nll_loss)

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(full=full, eps=eps, reduction=reduction)


@documented(arguments_of(ctc_loss))
class CTCLoss(Options):
    """loss = -log p, where p is the probability of a text, summed over all ways in which a sequence can spell the text.

    The call is loss(log_probs, targets, input_lengths, target_lengths). log_probs (T, N, C) or (T, C) holds the
    log-probabilities of C symbols at each step. targets holds the texts as integers, either as (N, S), or in one axis
    with all texts one after the other. input_lengths (N) holds the number of steps of each sequence, and target_lengths
    (N) the number of symbols of each text. A symbol may last several steps, and blanks between symbols are removed:
    if "-" is the blank, "aab-b" spells "abb". The loss is one number, or (N) with reduction="none". The mean first
    divides each loss by the length of its text.

    Example:
        >>> log_probs = nn.LogSoftmax(dim=-1)(mn.zeros(4, 1, 3))  # 4 steps, 3 symbols, all alike
        >>> loss = nn.CTCLoss(reduction="sum")
        >>> loss(log_probs, mn.tensor([[1, 2]]), mn.tensor([4]), mn.tensor([2])).exp()  # 15 of 81 ways spell the text
        tensor(5.4)

    It has no ONNX form; Graves et al. 2006.
    """

    function = staticmethod(ctc_loss)

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        super().__init__(blank=blank, reduction=reduction, zero_infinity=zero_infinity)
