"""Activations made of exponentials and quotients. Most of the functions call another activation in one line."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minorm.devices import constant_of, dtypes, generators
from minorm.functional.activation import elu, sigmoid, softmax, softplus, tanh
from minorm.functional.argument_texts import ALONG, ELEMENTWISE
from minorm.functional.arguments import floats
from minorm.graph import trace
from minorm.ops.operands import axis_of
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor

SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


@documented(ELEMENTWISE)
@trace.operation
def selu(input: Tensor, inplace: bool = False) -> Tensor:  # noqa: ARG001
    """y = 1.0507 * (x where x > 0, else 1.6733 * (exp(x) - 1)): layers with this activation keep mean 0 and variance 1.

    Example:
        >>> F.selu(mn.tensor([-1.0, 0.0, 2.0]))
        tensor([-1.1113,  0.    ,  2.1014])

    Its ONNX operator is Selu; Klambauer et al. 2017, arXiv:1706.02515.
    """
    floats("selu", input=input)
    return elu(input, SELU_ALPHA) * SELU_SCALE


@documented(ELEMENTWISE, alpha="how far below 0 the curve ends, at -alpha; not 0")
@trace.operation
def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:  # noqa: ARG001
    """y = x where x > 0, else alpha * (exp(x / alpha) - 1): an elu whose slope at 0 is 1 for every alpha.

    Example:
        >>> F.celu(mn.tensor([-1.0, 2.0]), alpha=2.0)
        tensor([-0.7869,  2.    ])

    Its ONNX operator is Celu (opset 12); Barron 2017, arXiv:1704.07483.
    """
    floats("celu", input=input)
    if not alpha:
        raise ValueError("celu: alpha is 0; expected another number")
    return elu(input / alpha) * alpha


@documented(ELEMENTWISE)
@trace.operation
def mish(input: Tensor, inplace: bool = False) -> Tensor:  # noqa: ARG001
    """y = x * tanh(log(1 + exp(x)))

    Example:
        >>> F.mish(mn.tensor([-1.0, 0.0, 2.0]))
        tensor([-0.3034,  0.    ,  1.944 ])

    Its ONNX operator is Mish (opset 18); Misra 2019, arXiv:1908.08681.
    """
    floats("mish", input=input)
    return input * tanh(softplus(input, threshold=math.inf))


@documented(ELEMENTWISE)
@trace.operation
def logsigmoid(input: Tensor) -> Tensor:
    """y = log(1 / (1 + exp(-x))), without overflow for any x

    Example:
        >>> F.logsigmoid(mn.tensor([-100.0, 0.0, 1.0]))
        tensor([-100.    ,   -0.6931,   -0.3133])
    """
    floats("logsigmoid", input=input)
    return -softplus(-input, threshold=math.inf)


@documented(ELEMENTWISE)
@trace.operation
def softsign(input: Tensor) -> Tensor:
    """y = x / (1 + |x|)

    Example:
        >>> F.softsign(mn.tensor([-1.0, 0.0, 3.0]))
        tensor([-0.5 ,  0.  ,  0.75])

    Its ONNX operator is Softsign.
    """
    floats("softsign", input=input)
    return input / (input.abs() + 1)


@documented(ELEMENTWISE)
@trace.operation
def tanhshrink(input: Tensor) -> Tensor:
    """y = x - tanh(x)

    Example:
        >>> F.tanhshrink(mn.tensor([-2.0, 0.0, 2.0]))
        tensor([-1.036,  0.   ,  1.036])
    """
    floats("tanhshrink", input=input)
    return input - tanh(input)


@documented(ELEMENTWISE, dim="the axis that is halved; its length must be even")
@trace.operation
def glu(input: Tensor, dim: int = -1) -> Tensor:
    """y = a * sigmoid(b), where a and b are the halves of x along axis `dim`: the gate b scales a.

    y has x's shape with axis `dim` half as long.

    Example:
        >>> F.glu(mn.tensor([[1.0, 2.0, 0.0, 100.0]]))
        tensor([[0.5, 2. ]])

    Dauphin et al. 2017, arXiv:1612.08083.
    """
    floats("glu", input=input)
    if input.ndim == 0:
        raise ValueError("glu: input has shape (); expected an axis to halve")
    length = input.shape[axis_of("glu", dim, input)]
    if length % 2:
        raise ValueError(f"glu: axis {dim} of {input.shape} has {length} elements; expected an even number")
    a, b = input.split([length // 2] * 2, dim)
    return a * sigmoid(b)


@documented(ALONG)
@trace.operation
def softmin(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """y = exp(-x) / sum exp(-x), with the sum along axis `dim`: the smallest x gets the largest y.

    Example:
        >>> F.softmin(mn.tensor([0.0, 1.0]), dim=0)
        tensor([0.7311, 0.2689])
    """
    floats("softmin", input=input)
    return softmax(-(input if dtype is None else input.to(dtype)), dim)


@documented(
    ALONG,
    logits="any shape, floats: unnormalized log-probabilities along `dim`",
    tau="the temperature: a small tau makes y nearly one-hot, a large tau nearly uniform",
    hard="True gives 1 for the largest element and 0 for the others, with the same gradient as hard=False",
    eps="accepted but ignored, as in PyTorch",
)
@trace.operation
def gumbel_softmax(logits: Tensor, tau: float = 1.0, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """y = softmax((logits + g) / tau) along `dim`, with random g = -log(-log(u)).

    This draws a class in a way that lets gradients flow to logits. y has the shape of logits. The draws come from
    minorm's generator, so they repeat after `minorm.manual_seed` with the same seed.

    Example:
        >>> y = F.gumbel_softmax(mn.tensor([[0.0, 1.0, 2.0]]), hard=True)
        >>> y.sum(1)
        tensor([1.])

    Jang et al. 2017, arXiv:1611.01144.
    """
    floats("gumbel_softmax", logits=logits)
    del eps
    wide = dtypes.compute_type(logits.dtype)
    noise = generators.source().gumbel(size=logits.shape)
    soft = softmax((logits + Tensor(np.asarray(noise, wide)).to(logits.device).to(logits.dtype)) / tau, dim)
    if not hard:
        return soft
    chosen = soft.detach().argmax(dim, True)
    places = np.arange(soft.shape[dim]).reshape([-1 if i == dim % soft.ndim else 1 for i in range(soft.ndim)])
    one_hot = (Tensor(constant_of(places, soft.array)) == chosen).to(soft.dtype)
    return one_hot - soft.detach() + soft
