"""Activation layers made of exponentials and quotients; see minorm.functional.smooth."""

from __future__ import annotations

from minorm.functional import activation
from minorm.functional import smooth as F
from minorm.nn.module import Module
from minorm.nn.options import Options
from minorm.support.documented import arguments_of, documented
from minorm.tensor.tensor import Tensor


@documented(arguments_of(F.selu))
class SELU(Options):
    """y = 1.0507 * elu(x, 1.6733): layers with this activation keep mean 0 and variance 1.

    x has any shape; y has x's shape and type. Mean 0 and variance 1 are kept only if the weights start with variance 1
    / fan_in. For dropout, use `AlphaDropout`.

    Example:
        >>> nn.SELU()(mn.tensor([-2.0, 0.5]))
        tensor([-1.5202,  0.5254])

    Written to ONNX as Selu (opset 22); Klambauer et al. 2017, arXiv:1706.02515.
    """

    function = staticmethod(F.selu)

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(inplace=inplace)


@documented(arguments_of(F.celu))
class CELU(Options):
    """y = x where x > 0, else alpha * (exp(x / alpha) - 1): an ELU whose slope is 1 at 0 for every alpha.

    x has any shape; y has x's shape and type.

    Example:
        >>> nn.CELU()(mn.tensor([-2.0, 0.5]))
        tensor([-0.8647,  0.5   ])

    Written to ONNX as Celu (opset 12); Barron 2017, arXiv:1704.07483.
    """

    function = staticmethod(F.celu)
    shown = "alpha"

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(alpha=alpha, inplace=inplace)


@documented(arguments_of(F.mish))
class Mish(Options):
    """y = x * tanh(log(1 + exp(x))).

    x has any shape; y has x's shape and type.

    Example:
        >>> nn.Mish()(mn.tensor([-2.0, 0.5]))
        tensor([-0.2525,  0.3752])

    Written to ONNX as Mish (opset 22); Misra 2019, arXiv:1908.08681.
    """

    function = staticmethod(F.mish)

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(inplace=inplace)


@documented(arguments_of(F.glu))
class GLU(Options):
    """y = a * sigmoid(b), where a and b are the halves of x along axis `dim`: the gate b scales a.

    x has any shape, with an even length n along `dim`. y has the length n / 2 along `dim`. A call raises ValueError if
    n is odd.

    Example:
        >>> nn.GLU(dim=1)(mn.randn(2, 6, 5)).shape
        (2, 3, 5)

    Written to ONNX as Slice (opset 13), Sigmoid (opset 13) and Mul (opset 14); Dauphin et al. 2017, arXiv:1612.08083.
    """

    function = staticmethod(F.glu)
    shown = "dim"

    def __init__(self, dim: int = -1) -> None:
        super().__init__(dim=dim)


@documented({}, options="only `inplace`, which is accepted but ignored")
class LogSigmoid(Options):
    """y = log(1 / (1 + exp(-x))), a number below 0.

    x has any shape; y has x's shape and type. A large x causes no overflow.

    Example:
        >>> nn.LogSigmoid()(mn.tensor([-2.0, 0.5]))
        tensor([-2.1269, -0.4741])

    Written to ONNX as Neg (opset 13) and Softplus (opset 22).
    """

    function = staticmethod(F.logsigmoid)


@documented({}, options="only `inplace`, which is accepted but ignored")
class Softsign(Options):
    """y = x / (1 + |x|), a number between -1 and 1 that approaches the bounds more slowly than tanh.

    x has any shape; y has x's shape and type.

    Example:
        >>> nn.Softsign()(mn.tensor([-2.0, 0.5]))
        tensor([-0.6667,  0.3333])

    Written to ONNX as Softsign (opset 22).
    """

    function = staticmethod(F.softsign)


@documented({}, options="only `inplace`, which is accepted but ignored")
class Tanhshrink(Options):
    """y = x - tanh(x), which is nearly 0 around 0.

    x has any shape; y has x's shape and type.

    Example:
        >>> nn.Tanhshrink()(mn.tensor([-2.0, 0.5]))
        tensor([-1.036 ,  0.0379])

    Written to ONNX as Tanh (opset 13) and Sub (opset 14).
    """

    function = staticmethod(F.tanhshrink)


@documented(arguments_of(F.softmin))
class Softmin(Options):
    """y = exp(-x) / sum exp(-x), with the sum along axis `dim`: Softmax of -x, so the smallest x has the largest y.

    x has any shape; y has x's shape and type.

    Example:
        >>> nn.Softmin(dim=1)(mn.tensor([[1.0, 2.0, 3.0]]))
        tensor([[0.6652, 0.2447, 0.09  ]])

    Written to ONNX as Neg (opset 13) and Softmax (opset 13).
    """

    function = staticmethod(F.softmin)
    shown = "dim"

    def __init__(self, dim: int) -> None:
        super().__init__(dim=dim)


class Softmax2d(Module):
    """y = exp(x) / sum exp(x), with the sum over the channels at each position of an image.

    x is (N, C, H, W) or (C, H, W); y has x's shape and type. A call raises ValueError for other shapes.

    Example:
        >>> nn.Softmax2d()(mn.randn(2, 3, 4, 4)).sum(1)[0, 0]
        tensor([1., 1., 1., 1.])

    Written to ONNX as Softmax (opset 13).
    """

    def forward(self, input: Tensor) -> Tensor:
        """See `F.softmax`."""
        if input.ndim not in (3, 4):
            raise ValueError(f"Softmax2d: input has shape {input.shape}; expected (N, C, H, W) or (C, H, W)")
        return activation.softmax(input, -3)
