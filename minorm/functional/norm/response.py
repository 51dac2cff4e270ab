"""Normalizations without a mean. They divide x by a power of the sum of squares of neighbouring channels, or by an Lp
norm.
"""

from __future__ import annotations

import math

from minorm.functional.arguments import floats, number, whole
from minorm.functional.norm.texts import LRN
from minorm.graph import trace
from minorm.ops.operands import axis_of
from minorm.ops.response import LocalResponse, LpNormalize
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor


@documented(LRN, x="(N, C, *), floats")
@trace.operation
def local_response_norm(x: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """y = x / (k + alpha / size * sum x^2)^beta, with the sum over `size` neighbouring channels.

    The window of channels is PyTorch's. For an even size, the window of ONNX is the mirror image. y has x's shape and
    type. Raises ValueError if size < 1, or if x has fewer than 2 axes.

    Example:
        >>> F.local_response_norm(mn.ones(1, 3), size=3, alpha=3.0, beta=1.0)
        tensor([[0.3333, 0.25  , 0.3333]])

    Its ONNX operator is LRN (opset 13); Krizhevsky, Sutskever and Hinton 2012, section 3.3.
    """
    floats("local_response_norm", x=x)
    if x.ndim < 2:
        raise ValueError(f"local_response_norm: x.shape is {x.shape}; expected (N, C, *), at least 2 axes")
    size = whole("local_response_norm", "size", size)
    if size < 1:
        raise ValueError(f"local_response_norm: size={size!r}; expected an integer of at least 1")
    for name, value in (("alpha", alpha), ("beta", beta), ("k", k)):
        number("local_response_norm", name, value)
    return LocalResponse.apply(x, size=size, alpha=float(alpha), beta=float(beta), k=float(k))


@documented(
    {},
    x="floats of any shape",
    p="the p of the norm, at least 1",
    dim="the axis along which the norm is taken",
    eps="the smallest divisor, so that zeros stay zeros; with eps=0 zeros also stay zeros, but get no gradient",
)
@trace.operation
def normalize(x: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """y = x / max(||x||_p, eps), where ||x||_p = (sum |x|^p)^(1/p) along `dim`.

    y has x's shape and type. Raises ValueError unless 1 <= p < infinity, and IndexError if x has no axis `dim`.

    Example:
        >>> F.normalize(mn.tensor([[3.0, 4.0]]))
        tensor([[0.6, 0.8]])

    Its ONNX operator is LpNormalization (opset 22), whose p is 1 or 2.
    """
    floats("normalize", x=x)
    number("normalize", "p", p)
    number("normalize", "eps", eps)
    if not 1 <= p < math.inf:
        raise ValueError(f"normalize: p={p}; expected 1 <= p < infinity")
    if not eps >= 0:
        raise ValueError(f"normalize: eps={eps}; expected a number of at least 0")
    dim = whole("normalize", "dim", dim)
    return LpNormalize.apply(x, p=float(p), axis=axis_of("normalize", dim, x), eps=float(eps))
