"""Activation layers made of exponentials and quotients; see minorm.functional.smooth."""

from __future__ import annotations

from minorm.functional import activation
from minorm.functional import smooth as F
from minorm.nn.module import Module
from minorm.nn.options import Options
from minorm.tensor import Tensor


class SELU(Options):
    """1.0507 * elu(x, 1.6733), which keeps mean 0 and variance 1"""

    function = staticmethod(F.selu)

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(inplace=inplace)


class CELU(Options):
    """x where x > 0, else alpha * (exp(x / alpha) - 1)"""

    function = staticmethod(F.celu)
    shown = "alpha"

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(alpha=alpha, inplace=inplace)


class Mish(Options):
    """x * tanh(log(1 + exp(x)))"""

    function = staticmethod(F.mish)

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(inplace=inplace)


class GLU(Options):
    """a * sigmoid(b), a and b the halves of axis `dim`"""

    function = staticmethod(F.glu)
    shown = "dim"

    def __init__(self, dim: int = -1) -> None:
        super().__init__(dim=dim)


class LogSigmoid(Options):
    """log(1 / (1 + exp(-x)))"""

    function = staticmethod(F.logsigmoid)


class Softsign(Options):
    """x / (1 + |x|)"""

    function = staticmethod(F.softsign)


class Tanhshrink(Options):
    """x - tanh(x)"""

    function = staticmethod(F.tanhshrink)


class Softmin(Options):
    """exp(-x) / sum exp(-x), the sum along axis `dim`; unlike PyTorch's, `dim` must be given"""

    function = staticmethod(F.softmin)
    shown = "dim"

    def __init__(self, dim: int) -> None:
        super().__init__(dim=dim)


class Softmax2d(Module):
    """exp(x) / sum exp(x), the sum over the channels of (N, C, H, W) or (C, H, W)."""

    def forward(self, input: Tensor) -> Tensor:
        """See `F.softmax`."""
        if input.ndim not in (3, 4):
            raise ValueError(f"Softmax2d: input has shape {input.shape}; expected (N, C, H, W) or (C, H, W)")
        return activation.softmax(input, -3)
