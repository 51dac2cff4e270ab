"""Losses of numbers and probabilities as layers; see minorm.functional.likelihoods."""

from __future__ import annotations

from minorm.functional import likelihoods as F
from minorm.functional.ctc import ctc_loss
from minorm.nn.options import Options
from minorm.tensor import Tensor


class BCELoss(Options):
    """-weight * (target * log p + (1 - target) * log(1 - p)), p = input; weight is a buffer."""

    function = staticmethod(F.binary_cross_entropy)

    def __init__(self, weight: Tensor | None = None, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.register_buffer("weight", weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Probabilities against probabilities, equal shapes."""
        return F.binary_cross_entropy(input, target, self.weight, **self.options())


class KLDivLoss(Options):
    """target * (log target - input), input a log-probability; "batchmean" is a reduction too"""

    function = staticmethod(F.kl_div)

    def __init__(self, *, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__(reduction=reduction, log_target=log_target)


class HuberLoss(Options):
    """d^2 / 2 where |d| <= delta, else delta * (|d| - delta / 2), d = input - target"""

    function = staticmethod(F.huber_loss)

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction=reduction, delta=delta)


class PoissonNLLLoss(Options):
    """exp(input) - target * input, or of an input that is no logarithm; see `F.poisson_nll_loss`"""

    function = staticmethod(F.poisson_nll_loss)

    def __init__(
        self, log_input: bool = True, full: bool = False, *, eps: float = 1e-8, reduction: str = "mean"
    ) -> None:
        super().__init__(log_input=log_input, full=full, eps=eps, reduction=reduction)


class GaussianNLLLoss(Options):
    """(log var + (input - target)^2 / var) / 2, for (input, target, var)"""

    function = staticmethod(F.gaussian_nll_loss)

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(full=full, eps=eps, reduction=reduction)


class CTCLoss(Options):
    """-log of the probability of a text, for (log_probs, targets, input_lengths, target_lengths)"""

    function = staticmethod(ctc_loss)

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        super().__init__(blank=blank, reduction=reduction, zero_infinity=zero_infinity)
