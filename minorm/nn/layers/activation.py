"""Activation layers. Each layer calls the function of minorm.functional with the layer's options.

The layers accept `inplace` so that a model written for PyTorch runs, but the result is always a new tensor.
"""

from __future__ import annotations

import minorm.functional as F
from minorm.nn.options import OfOne
from minorm.support.documented import arguments_of, documented


class _Plain(OfOne):
    """Base of the layers whose only option is `inplace`."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(inplace=inplace)


@documented(arguments_of(F.relu))
class ReLU(_Plain):
    """y = max(x, 0), element by element.

    x has any shape; y has x's shape and type. The slope of y is 1 where x > 0, else 0.

    Example:
        >>> nn.ReLU()(mn.tensor([-2.0, 0.5]))
        tensor([0. , 0.5])

    Written to ONNX as Relu (opset 14); Nair and Hinton 2010.
    """

    function = staticmethod(F.relu)


@documented(arguments_of(F.relu6))
class ReLU6(_Plain):
    """y = min(max(x, 0), 6), element by element.

    x has any shape; y has x's shape and type. The bound 6 keeps values small. This helps networks that are later
    quantized to 8 bits.

    Example:
        >>> nn.ReLU6()(mn.tensor([-2.0, 0.5, 8.0]))
        tensor([0. , 0.5, 6. ])

    Written to ONNX as Clip (opset 13); Howard et al. 2017, arXiv:1704.04861.
    """

    function = staticmethod(F.relu6)


@documented(arguments_of(F.leaky_relu))
class LeakyReLU(OfOne):
    """y = x where x > 0, else negative_slope * x.

    x has any shape; y has x's shape and type. Unlike in ReLU the gradient is nowhere 0, so no unit can stop learning.

    Example:
        >>> nn.LeakyReLU(0.1)(mn.tensor([-2.0, 0.5]))
        tensor([-0.2,  0.5])

    Written to ONNX as LeakyRelu (opset 16); Maas, Hannun and Ng 2013.
    """

    function = staticmethod(F.leaky_relu)
    shown = "negative_slope"

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__(negative_slope=negative_slope, inplace=inplace)


@documented(arguments_of(F.elu))
class ELU(OfOne):
    """y = x where x > 0, else alpha * (exp(x) - 1).

    x has any shape; y has x's shape and type. The negative values bring the mean of y nearer to 0.

    Example:
        >>> nn.ELU()(mn.tensor([-2.0, 0.5]))
        tensor([-0.8647,  0.5   ])

    Written to ONNX as Elu (opset 22); Clevert, Unterthiner and Hochreiter 2015, arXiv:1511.07289.
    """

    function = staticmethod(F.elu)
    shown = "alpha"

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(alpha=alpha, inplace=inplace)


@documented(arguments_of(F.gelu))
class GELU(OfOne):
    """y = x * Phi(x), where Phi is the normal distribution function: Phi(x) = (1 + erf(x / sqrt 2)) / 2.

    x has any shape; y has x's shape and type. approximate="tanh" uses an approximation, which is faster on some
    devices:

        Phi(x) ~ (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2

    Example:
        >>> nn.GELU()(mn.tensor([-2.0, 0.5]))
        tensor([-0.0455,  0.3457])

    Written to ONNX as Gelu (opset 20), or as its formula before opset 20; Hendrycks and Gimpel 2016, arXiv:1606.08415.
    """

    function = staticmethod(F.gelu)
    shown = "approximate"

    def __init__(self, approximate: str = "none") -> None:
        super().__init__(approximate=approximate)


@documented(arguments_of(F.silu))
class SiLU(_Plain):
    """y = x * sigmoid(x), also called swish.

    x has any shape; y has x's shape and type.

    Example:
        >>> nn.SiLU()(mn.tensor([-2.0, 0.5]))
        tensor([-0.2384,  0.3112])

    Written to ONNX as Sigmoid (opset 13) and Mul (opset 14); Elfwing, Uchibe and Doya 2017, arXiv:1702.03118.
    """

    function = staticmethod(F.silu)


class Sigmoid(OfOne):
    """y = 1 / (1 + exp(-x)), a number between 0 and 1.

    x has any shape; y has x's shape and type. A large x causes no overflow. For training, pass x itself to
    `BCEWithLogitsLoss`, which is more exact than a sigmoid and `BCELoss`.

    Example:
        >>> nn.Sigmoid()(mn.tensor([-2.0, 0.5]))
        tensor([0.1192, 0.6225])

    Written to ONNX as Sigmoid (opset 13).
    """

    function = staticmethod(F.sigmoid)

    def __init__(self) -> None:
        super().__init__()


class Tanh(OfOne):
    """y = tanh(x) = (exp(x) - exp(-x)) / (exp(x) + exp(-x)), a number between -1 and 1.

    x has any shape; y has x's shape and type.

    Example:
        >>> nn.Tanh()(mn.tensor([-2.0, 0.5]))
        tensor([-0.964 ,  0.4621])

    Written to ONNX as Tanh (opset 13).
    """

    function = staticmethod(F.tanh)

    def __init__(self) -> None:
        super().__init__()


@documented(arguments_of(F.hardswish))
class Hardswish(_Plain):
    """y = x * min(max(x + 3, 0), 6) / 6: SiLU with a piecewise linear sigmoid.

    x has any shape; y has x's shape and type.

    Example:
        >>> nn.Hardswish()(mn.tensor([-2.0, 0.5]))
        tensor([-0.3333,  0.2917])

    Written to ONNX as HardSwish (opset 22); Howard et al. 2019, arXiv:1905.02244.
    """

    function = staticmethod(F.hardswish)


@documented(arguments_of(F.hardsigmoid))
class Hardsigmoid(_Plain):
    """y = min(max(x + 3, 0), 6) / 6: a piecewise linear sigmoid.

    x has any shape; y has x's shape and type. The slope is 1 / 6, as in PyTorch; ONNX's default is 0.2.

    Example:
        >>> nn.Hardsigmoid()(mn.tensor([-2.0, 0.5]))
        tensor([0.1667, 0.5833])

    Written to ONNX as HardSigmoid (opset 22); Howard et al. 2019, arXiv:1905.02244.
    """

    function = staticmethod(F.hardsigmoid)


@documented(arguments_of(F.softplus))
class Softplus(OfOne):
    """y = log(1 + exp(beta * x)) / beta, but y = x where beta * x > threshold: a smooth ReLU.

    x has any shape; y has x's shape and type. A call raises ValueError if beta <= 0.

    Example:
        >>> nn.Softplus()(mn.tensor([-2.0, 0.5]))
        tensor([0.1269, 0.9741])

    Written to ONNX as Softplus (opset 22); Dugas et al. 2001.
    """

    function = staticmethod(F.softplus)
    shown = "beta threshold"

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__(beta=beta, threshold=threshold)


@documented(arguments_of(F.softmax))
class Softmax(OfOne):
    """y = exp(x) / sum exp(x), with the sum along axis `dim`: numbers above 0 that add up to 1.

    x has any shape; y has x's shape and type. The computation starts from x - max(x), so nothing overflows. `dim` is
    required here; PyTorch guesses a missing `dim`. For training, pass x itself to `CrossEntropyLoss`, which contains a
    softmax.

    Example:
        >>> nn.Softmax(dim=1)(mn.tensor([[1.0, 2.0, 3.0]]))
        tensor([[0.09  , 0.2447, 0.6652]])

    Written to ONNX as Softmax (opset 13).
    """

    function = staticmethod(F.softmax)
    shown = "dim"

    def __init__(self, dim: int) -> None:
        super().__init__(dim=dim)


@documented(arguments_of(F.log_softmax))
class LogSoftmax(OfOne):
    """y = x - log sum exp(x), with the sum along axis `dim`: the logarithm of Softmax.

    x has any shape; y has x's shape and type. The computation starts from x - max(x), so nothing overflows and no
    logarithm of 0 is taken. `NLLLoss` takes this result as its input.

    Example:
        >>> nn.LogSoftmax(dim=1)(mn.tensor([[1.0, 2.0, 3.0]]))
        tensor([[-2.4076, -1.4076, -0.4076]])

    Written to ONNX as LogSoftmax (opset 13).
    """

    function = staticmethod(F.log_softmax)
    shown = "dim"

    def __init__(self, dim: int) -> None:
        super().__init__(dim=dim)
