"""Activation layers: each calls its functional, and holds no parameters.

`inplace` is there so that a definition written for PyTorch builds; the result is always a new tensor.
"""

from __future__ import annotations

import minorm.functional as F
from minorm.nn.module import Module
from minorm.support.documented import arguments_of, documented
from minorm.tensor.tensor import Tensor


@documented(arguments_of(F.relu))
class ReLU(Module):
    """y = max(x, 0), element by element.

    x has any shape, y has x's shape and type. The slope is 1 above 0 and 0 elsewhere, so a layer of these is linear
    in pieces.

    Example:
        >>> nn.ReLU()(mn.tensor([-2.0, 0.5]))
        tensor([0. , 0.5])

    ONNX Relu 14; Nair and Hinton 2010.
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, x: Tensor) -> Tensor:
        """See `F.relu`."""
        return F.relu(x)


@documented(arguments_of(F.relu6))
class ReLU6(Module):
    """y = min(max(x, 0), 6), element by element.

    x has any shape, y has x's shape and type. The bound keeps numbers small, for networks that will compute in 8
    bits.

    Example:
        >>> nn.ReLU6()(mn.tensor([-2.0, 0.5, 8.0]))
        tensor([0. , 0.5, 6. ])

    ONNX Clip 13; Howard et al. 2017, arXiv:1704.04861.
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, x: Tensor) -> Tensor:
        """See `F.relu6`."""
        return F.relu6(x)


@documented(arguments_of(F.leaky_relu))
class LeakyReLU(Module):
    """y = x where x > 0, else negative_slope * x.

    x has any shape, y has x's shape and type. Unlike ReLU it has a gradient everywhere, so no unit can stop
    learning.

    Example:
        >>> nn.LeakyReLU(0.1)(mn.tensor([-2.0, 0.5]))
        tensor([-0.2,  0.5])

    ONNX LeakyRelu 16; Maas, Hannun and Ng 2013.
    """

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope, self.inplace = negative_slope, inplace

    def forward(self, x: Tensor) -> Tensor:
        """See `F.leaky_relu`."""
        return F.leaky_relu(x, self.negative_slope)

    def extra_repr(self) -> str:
        """The slope."""
        return f"negative_slope={self.negative_slope}"


@documented(arguments_of(F.elu))
class ELU(Module):
    """y = x where x > 0, else alpha * (exp(x) - 1).

    x has any shape, y has x's shape and type. What is below 0 brings the mean of y nearer to 0.

    Example:
        >>> nn.ELU()(mn.tensor([-2.0, 0.5]))
        tensor([-0.8647,  0.5   ])

    ONNX Elu 22; Clevert, Unterthiner and Hochreiter 2015, arXiv:1511.07289.
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def forward(self, x: Tensor) -> Tensor:
        """See `F.elu`."""
        return F.elu(x, self.alpha)

    def extra_repr(self) -> str:
        """The factor."""
        return f"alpha={self.alpha}"


@documented(arguments_of(F.gelu))
class GELU(Module):
    """y = x * Phi(x), Phi the normal distribution function: Phi(x) = (1 + erf(x / sqrt 2)) / 2.

    x has any shape, y has x's shape and type. The usual approximation, faster on some devices, is

        Phi(x) ~ (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2

    Example:
        >>> nn.GELU()(mn.tensor([-2.0, 0.5]))
        tensor([-0.0455,  0.3457])

    ONNX Gelu 20, before opset 20 by the formula; Hendrycks and Gimpel 2016, arXiv:1606.08415.
    """

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        """See `F.gelu`."""
        return F.gelu(x, self.approximate)

    def extra_repr(self) -> str:
        """Which form."""
        return f"approximate={self.approximate!r}"


@documented(arguments_of(F.silu))
class SiLU(Module):
    """y = x * sigmoid(x), also called swish.

    x has any shape, y has x's shape and type.

    Example:
        >>> nn.SiLU()(mn.tensor([-2.0, 0.5]))
        tensor([-0.2384,  0.3112])

    ONNX Sigmoid 13 and Mul 14; Elfwing, Uchibe and Doya 2017, arXiv:1702.03118.
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, x: Tensor) -> Tensor:
        """See `F.silu`."""
        return F.silu(x)


class Sigmoid(Module):
    """y = 1 / (1 + exp(-x)), a number between 0 and 1.

    x has any shape, y has x's shape and type. Nothing overflows, however large x is. A loss that takes what comes
    before it loses fewer digits: `BCEWithLogitsLoss`.

    Example:
        >>> nn.Sigmoid()(mn.tensor([-2.0, 0.5]))
        tensor([0.1192, 0.6225])

    ONNX Sigmoid 13.
    """

    def forward(self, x: Tensor) -> Tensor:
        """See `F.sigmoid`."""
        return F.sigmoid(x)


class Tanh(Module):
    """y = tanh(x) = (exp(x) - exp(-x)) / (exp(x) + exp(-x)), a number between -1 and 1.

    x has any shape, y has x's shape and type.

    Example:
        >>> nn.Tanh()(mn.tensor([-2.0, 0.5]))
        tensor([-0.964 ,  0.4621])

    ONNX Tanh 13.
    """

    def forward(self, x: Tensor) -> Tensor:
        """See `F.tanh`."""
        return F.tanh(x)


@documented(arguments_of(F.hardswish))
class Hardswish(Module):
    """y = x * min(max(x + 3, 0), 6) / 6: SiLU out of straight pieces.

    x has any shape, y has x's shape and type.

    Example:
        >>> nn.Hardswish()(mn.tensor([-2.0, 0.5]))
        tensor([-0.3333,  0.2917])

    ONNX HardSwish 22; Howard et al. 2019, arXiv:1905.02244.
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, x: Tensor) -> Tensor:
        """See `F.hardswish`."""
        return F.hardswish(x)


@documented(arguments_of(F.hardsigmoid))
class Hardsigmoid(Module):
    """y = min(max(x + 3, 0), 6) / 6: the sigmoid out of straight pieces.

    x has any shape, y has x's shape and type. The slope is 1 / 6, as PyTorch's is; ONNX's own default is 0.2.

    Example:
        >>> nn.Hardsigmoid()(mn.tensor([-2.0, 0.5]))
        tensor([0.1667, 0.5833])

    ONNX HardSigmoid 22; Howard et al. 2019, arXiv:1905.02244.
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, x: Tensor) -> Tensor:
        """See `F.hardsigmoid`."""
        return F.hardsigmoid(x)


@documented(arguments_of(F.softplus))
class Softplus(Module):
    """y = log(1 + exp(beta * x)) / beta, and x itself where beta * x > threshold: a ReLU without a corner.

    x has any shape, y has x's shape and type. ValueError, when it is called, for beta <= 0.

    Example:
        >>> nn.Softplus()(mn.tensor([-2.0, 0.5]))
        tensor([0.1269, 0.9741])

    ONNX Softplus 22; Dugas et al. 2001.
    """

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta, self.threshold = beta, threshold

    def forward(self, x: Tensor) -> Tensor:
        """See `F.softplus`."""
        return F.softplus(x, self.beta, self.threshold)

    def extra_repr(self) -> str:
        """Both numbers."""
        return f"beta={self.beta}, threshold={self.threshold}"


@documented(arguments_of(F.softmax))
class Softmax(Module):
    """y = exp(x) / sum exp(x), the sum along axis `dim`: numbers above 0 that add up to 1.

    x has any shape, y has x's shape and type. It is computed from x - max(x), so nothing overflows. PyTorch
    guesses `dim` where none is given; here it must be. For training, give x itself to `CrossEntropyLoss`, which holds
    a softmax.

    Example:
        >>> nn.Softmax(dim=1)(mn.tensor([[1.0, 2.0, 3.0]]))
        tensor([[0.09  , 0.2447, 0.6652]])

    ONNX Softmax 13.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        """See `F.softmax`."""
        return F.softmax(x, self.dim)

    def extra_repr(self) -> str:
        """The axis."""
        return f"dim={self.dim}"


@documented(arguments_of(F.log_softmax))
class LogSoftmax(Module):
    """y = x - log sum exp(x), the sum along axis `dim`: the logarithm of Softmax.

    x has any shape, y has x's shape and type. It is computed from x - max(x), so nothing overflows and no logarithm
    of 0 is taken. `NLLLoss` takes what it gives.

    Example:
        >>> nn.LogSoftmax(dim=1)(mn.tensor([[1.0, 2.0, 3.0]]))
        tensor([[-2.4076, -1.4076, -0.4076]])

    ONNX LogSoftmax 13.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        """See `F.log_softmax`."""
        return F.log_softmax(x, self.dim)

    def extra_repr(self) -> str:
        """The axis."""
        return f"dim={self.dim}"
