"""Activations, which work element by element, and softmax along one axis. All functions keep the shape and the float
type of x.

The functions accept `inplace` so that a model written for PyTorch runs, but the result is always a new tensor.
"""

from __future__ import annotations

from typing import Any

from minorm.functional.argument_texts import ALONG, ELEMENTWISE
from minorm.functional.arguments import floats, holds_integers
from minorm.graph import trace
from minorm.ops import activation as ops
from minorm.ops.operands import axis_of
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor


@documented(ELEMENTWISE)
@trace.operation
def relu(x: Tensor, inplace: bool = False) -> Tensor:  # noqa: ARG001
    """y = max(x, 0). The slope at 0 is 0, and NaN stays NaN. Integers stay integers.

    Example:
        >>> F.relu(mn.tensor([-1.0, 0.0, 2.0]))
        tensor([0., 0., 2.])

    Its ONNX operator is Relu; Nair and Hinton 2010.
    """
    return x.clip(0) if holds_integers("relu", "x", x) else ops.Relu.apply(x)


@documented(ELEMENTWISE)
@trace.operation
def relu6(x: Tensor, inplace: bool = False) -> Tensor:  # noqa: ARG001
    """y = min(max(x, 0), 6). Integers stay integers.

    Example:
        >>> F.relu6(mn.tensor([-1.0, 2.0, 8.0]))
        tensor([0., 2., 6.])

    Its ONNX operator is Clip; Howard et al. 2017, arXiv:1704.04861.
    """
    return x.clip(0, 6) if holds_integers("relu6", "x", x) else ops.Relu6.apply(x)


@documented(ELEMENTWISE, negative_slope="the slope below 0")
@trace.operation
def leaky_relu(x: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:  # noqa: ARG001
    """y = x where x > 0, else negative_slope * x

    Example:
        >>> F.leaky_relu(mn.tensor([-1.0, 2.0]), negative_slope=0.1)
        tensor([-0.1,  2. ])

    Its ONNX operator is LeakyRelu; Maas, Hannun and Ng 2013.
    """
    floats("leaky_relu", x=x)
    return ops.LeakyRelu.apply(x, slope=float(negative_slope))


@documented(ELEMENTWISE, alpha="how far below 0 the curve ends: at -alpha")
@trace.operation
def elu(x: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:  # noqa: ARG001
    """y = x where x > 0, else alpha * (exp(x) - 1)

    Example:
        >>> F.elu(mn.tensor([-1.0, 2.0]))
        tensor([-0.6321,  2.    ])

    Its ONNX operator is Elu; Clevert et al. 2015, arXiv:1511.07289.
    """
    floats("elu", x=x)
    return ops.Elu.apply(x, alpha=float(alpha))


@documented(ELEMENTWISE, approximate='"none" is exact, "tanh" the approximation')
@trace.operation
def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """y = x * Phi(x), where Phi is the normal distribution function: Phi(x) = (1 + erf(x / sqrt 2)) / 2.

    approximate="tanh" uses Phi(x) ~ (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2 instead. Raises ValueError unless
    approximate is "none" or "tanh".

    Example:
        >>> F.gelu(mn.tensor([-1.0, 0.0, 2.0]))
        tensor([-0.1587,  0.    ,  1.9545])

    Its ONNX operator is Gelu (opset 20); Hendrycks and Gimpel 2016, arXiv:1606.08415.
    """
    floats("gelu", x=x)
    if approximate not in ("none", "tanh"):
        raise ValueError(f"gelu: approximate is {approximate!r}; expected 'none' (exact) or 'tanh'")
    return ops.Gelu.apply(x, approximate=approximate)


@documented(ELEMENTWISE)
@trace.operation
def silu(x: Tensor, inplace: bool = False) -> Tensor:  # noqa: ARG001
    """y = x * sigmoid(x), also called swish

    Example:
        >>> F.silu(mn.tensor([-1.0, 0.0, 2.0]))
        tensor([-0.2689,  0.    ,  1.7616])

    Its ONNX operator is Swish (opset 24), which an export writes as Sigmoid and Mul; Elfwing et al. 2017,
    arXiv:1702.03118.
    """
    floats("silu", x=x)
    return ops.Silu.apply(x)


@documented(ELEMENTWISE)
@trace.operation
def sigmoid(x: Tensor) -> Tensor:
    """y = 1 / (1 + exp(-x)), without overflow for any x

    Example:
        >>> F.sigmoid(mn.tensor([-1.0, 0.0, 100.0]))
        tensor([0.2689, 0.5   , 1.    ])

    Its ONNX operator is Sigmoid.
    """
    floats("sigmoid", x=x)
    return ops.Sigmoid.apply(x)


@documented(ELEMENTWISE)
@trace.operation
def tanh(x: Tensor) -> Tensor:
    """y = (exp(x) - exp(-x)) / (exp(x) + exp(-x)), the hyperbolic tangent.

    Example:
        >>> F.tanh(mn.tensor([-100.0, 0.5, 1.0]))
        tensor([-1.    ,  0.4621,  0.7616])

    Its ONNX operator is Tanh.
    """
    floats("tanh", x=x)
    return ops.Tanh.apply(x)


@documented(ELEMENTWISE)
@trace.operation
def hardswish(x: Tensor, inplace: bool = False) -> Tensor:  # noqa: ARG001
    """y = x * min(max(x + 3, 0), 6) / 6

    Example:
        >>> F.hardswish(mn.tensor([-1.0, 1.0, 4.0]))
        tensor([-0.3333,  0.6667,  4.    ])

    Its ONNX operator is HardSwish (opset 14); Howard et al. 2019, arXiv:1905.02244.
    """
    floats("hardswish", x=x)
    return ops.Hardswish.apply(x)


@documented(ELEMENTWISE)
@trace.operation
def hardsigmoid(x: Tensor, inplace: bool = False) -> Tensor:  # noqa: ARG001
    """y = min(max(x + 3, 0), 6) / 6

    Example:
        >>> F.hardsigmoid(mn.tensor([-4.0, 0.0, 4.0]))
        tensor([0. , 0.5, 1. ])

    Its ONNX operator is HardSigmoid with alpha = 1/6; Howard et al. 2019, arXiv:1905.02244.
    """
    floats("hardsigmoid", x=x)
    return ops.Hardsigmoid.apply(x)


@documented(
    ELEMENTWISE,
    beta="how sharp the bend at 0 is, above 0",
    threshold="y is x itself where beta * x is above this",
)
@trace.operation
def softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """y = log(1 + exp(beta * x)) / beta, but y = x where beta * x > threshold

    Raises ValueError unless beta > 0.

    Example:
        >>> F.softplus(mn.tensor([-1.0, 0.0, 30.0]))
        tensor([ 0.3133,  0.6931, 30.    ])

    Its ONNX operator is Softplus; Dugas et al. 2001.
    """
    floats("softplus", x=x)
    if not beta > 0:
        raise ValueError(f"softplus: beta is {beta}; expected a number above 0")
    return ops.Softplus.apply(x, beta=float(beta), threshold=float(threshold))


@documented(ALONG)
@trace.operation
def softmax(x: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """y = exp(x) / sum exp(x), with the sum along axis `dim`.

    The computation starts from x - max(x), so nothing overflows. y has x's shape. Raises IndexError if x has no axis
    `dim`.

    Example:
        >>> F.softmax(mn.tensor([[0.0, 1.0], [1000.0, 1000.0]]), dim=1)
        tensor([[0.2689, 0.7311],
                [0.5   , 0.5   ]])

    Its ONNX operator is Softmax (opset 13).
    """
    x = x if dtype is None else x.to(dtype)
    floats("softmax", x=x)
    return ops.Softmax.apply(x, axis=_axis("softmax", dim, x))


@documented(ALONG)
@trace.operation
def log_softmax(x: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """y = x - log sum exp(x), with the sum along axis `dim`.

    The computation starts from x - max(x), so nothing overflows. y has x's shape. Raises IndexError if x has no axis
    `dim`.

    Example:
        >>> F.log_softmax(mn.tensor([[0.0, 1.0], [1000.0, 1000.0]]), dim=1)
        tensor([[-1.3133, -0.3133],
                [-0.6931, -0.6931]])

    Its ONNX operator is LogSoftmax (opset 13).
    """
    x = x if dtype is None else x.to(dtype)
    floats("log_softmax", x=x)
    return ops.LogSoftmax.apply(x, axis=_axis("log_softmax", dim, x))


def _axis(operation: str, dim: int, x: Tensor) -> int:
    if isinstance(dim, bool) or not isinstance(dim, int):
        raise TypeError(
            f"{operation}: dim is {dim!r}; expected an int, the axis along which y sums to one, usually dim=1 or -1"
        )
    return -1 if x.ndim == 0 and dim in (0, -1) else axis_of(operation, dim, x)
