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

    A call raises ValueError unless input and target have the same shape (they do not broadcast), and TypeError unless
    they have the same float type. The loss is one number; without a reduction it has their shape. Raises ValueError for
    an input outside 0 to 1. weight is a buffer. `BCEWithLogitsLoss` takes the logits before the sigmoid, and loses
    fewer digits.

    Example:
        >>> nn.BCELoss(reduction="none")(mn.tensor([0.5, 0.9]), mn.tensor([1.0, 1.0]))
        tensor([0.6931, 0.1054])

    Written to ONNX by its formula.
    """

    function = staticmethod(F.binary_cross_entropy)
    as_buffers = "weight"

    def __init__(self, weight: Tensor | None = None, *, reduction: str = "mean") -> None:
        super().__init__(weight=weight, reduction=reduction)


@documented(arguments_of(F.kl_div))
class KLDivLoss(Options):
    """loss = target * (log target - input): how far exp(input) is from the distribution target.

    input holds log-probabilities; target holds probabilities or their logarithms. Where target is 0, the loss is 0. The
    two broadcast to one shape. The loss is one number; without a reduction it has that shape. reduction="batchmean"
    gives the divergence: the sum divided by the size of the batch.

    Example:
        >>> input = mn.tensor([[0.5, 0.5]]).log()
        >>> nn.KLDivLoss(reduction="batchmean")(input, mn.tensor([[0.5, 0.5]]))
        tensor(0.)

    Written to ONNX by its formula; Kullback and Leibler 1951.
    """

    function = staticmethod(F.kl_div)

    def __init__(self, *, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__(reduction=reduction, log_target=log_target)


@documented(arguments_of(F.huber_loss))
class HuberLoss(Options):
    """loss = d^2 / 2 where |d| <= delta, else delta * (|d| - delta / 2), d = input - target: a parabola with straight
    ends.

    A call raises ValueError unless input and target have the same shape (they do not broadcast), and TypeError unless
    they have the same float type. The loss is one number; without a reduction it has their shape. A call raises
    ValueError unless delta > 0.

    Example:
        >>> nn.HuberLoss(reduction="none")(mn.tensor([0.5, 3.0]), mn.tensor([0.0, 0.0]))
        tensor([0.125, 2.5  ])

    Written to ONNX by its formula; Huber 1964.
    """

    function = staticmethod(F.huber_loss)

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction=reduction, delta=delta)


@documented(arguments_of(F.poisson_nll_loss))
class PoissonNLLLoss(Options):
    """loss = exp(input) - target * input: -log of the probability of a count with mean exp(input).

    input is the logarithm of the mean. With log_input=False it is the mean itself, and the loss is
    input - target * log(input + eps). target holds the counts. The two broadcast to one shape. The loss is one number;
    without a reduction it has that shape. See `F.poisson_nll_loss`.

    Example:
        >>> nn.PoissonNLLLoss()(mn.tensor([0.0, 1.0]), mn.tensor([1.0, 3.0]))
        tensor(0.3591)

    Written to ONNX by its formula.
    """

    function = staticmethod(F.poisson_nll_loss)

    def __init__(
        self, log_input: bool = True, full: bool = False, *, eps: float = 1e-8, reduction: str = "mean"
    ) -> None:
        super().__init__(log_input=log_input, full=full, eps=eps, reduction=reduction)


@documented(arguments_of(F.gaussian_nll_loss))
class GaussianNLLLoss(Options):
    """loss = (log var + (input - target)^2 / var) / 2: -log of the density of target around input, with variance var.

    The call is loss(input, target, var). input and target have the same shape. var has this shape too, or this shape
    without the last axis, or axes of length 1; or it is a number. The loss is one number; without a reduction it has
    input's shape. A call raises ValueError for other shapes and for a var below 0.

    Example:
        >>> loss = nn.GaussianNLLLoss()
        >>> loss(mn.tensor([1.0]), mn.tensor([3.0]), mn.tensor([4.0]))  # (log 4 + 4 / 4) / 2
        tensor(1.1931)

    Written to ONNX by its formula; Nix and Weigend 1994.
    """

    function = staticmethod(F.gaussian_nll_loss)

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(full=full, eps=eps, reduction=reduction)


@documented(arguments_of(ctc_loss))
class CTCLoss(Options):
    """loss = -log of the probability of a text: the sum over all ways in which the steps of a sequence can spell it.

    The call is loss(log_probs, targets, input_lengths, target_lengths). log_probs (T, N, C) or (T, C) holds the
    log-probabilities of C symbols at each step. targets holds the texts as integers: it is (N, S), or has all texts one
    after the other. The lengths (N) say how many steps of each sequence and how many symbols of each text count. A
    symbol may last several steps, and blanks between symbols vanish: with - for the blank, "aab-b" spells "abb". The
    loss is one number, or (N) without a reduction; the mean first divides each loss by the length of its text.

    Example:
        >>> log_probs = nn.LogSoftmax(dim=-1)(mn.zeros(4, 1, 3))  # 4 steps, 3 symbols, all alike
        >>> loss = nn.CTCLoss(reduction="sum")
        >>> loss(log_probs, mn.tensor([[1, 2]]), mn.tensor([4]), mn.tensor([2])).exp()  # 81 ways, 15 of them right
        tensor(5.4)

    It has no ONNX form; Graves et al. 2006.
    """

    function = staticmethod(ctc_loss)

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        super().__init__(blank=blank, reduction=reduction, zero_infinity=zero_infinity)
