"""Activations made of exponentials and quotients, most of them a line over another one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minorm import dtypes, random, trace
from minorm.functional.activation import elu, sigmoid, softmax, softplus, tanh
from minorm.functional.arguments import floats
from minorm.ops.operands import axis_of
from minorm.tensor import Tensor

SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


@trace.operation
def selu(input: Tensor, inplace: bool = False) -> Tensor:  # noqa: ARG001
    """1.0507 * elu(x, 1.6733): layers of these keep mean 0 and variance 1. Klambauer et al. 2017, arXiv:1706.02515."""
    floats("selu", input=input)
    return elu(input, SELU_ALPHA) * SELU_SCALE


@trace.operation
def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:  # noqa: ARG001
    """x where x > 0, else alpha * (exp(x / alpha) - 1). Barron 2017, arXiv:1704.07483."""
    floats("celu", input=input)
    if not alpha:
        raise ValueError("celu: alpha is 0; expected another number")
    return elu(input / alpha) * alpha


@trace.operation
def mish(input: Tensor, inplace: bool = False) -> Tensor:  # noqa: ARG001
    """x * tanh(log(1 + exp(x))). Misra 2019, arXiv:1908.08681."""
    floats("mish", input=input)
    return input * tanh(softplus(input, threshold=math.inf))


@trace.operation
def logsigmoid(input: Tensor) -> Tensor:
    """log(1 / (1 + exp(-x))), without overflow for any x"""
    floats("logsigmoid", input=input)
    return -softplus(-input, threshold=math.inf)


@trace.operation
def softsign(input: Tensor) -> Tensor:
    """x / (1 + |x|)"""
    floats("softsign", input=input)
    return input / (input.abs() + 1)


@trace.operation
def tanhshrink(input: Tensor) -> Tensor:
    """x - tanh(x)"""
    floats("tanhshrink", input=input)
    return input - tanh(input)


@trace.operation
def glu(input: Tensor, dim: int = -1) -> Tensor:
    """a * sigmoid(b), a and b the halves of axis `dim`. Dauphin et al. 2017, arXiv:1612.08083."""
    floats("glu", input=input)
    if input.ndim == 0:
        raise ValueError("glu: input has shape (); expected an axis to halve")
    length = input.shape[axis_of("glu", dim, input)]
    if length % 2:
        raise ValueError(f"glu: axis {dim} of {input.shape} has {length} elements; expected an even number")
    a, b = input.split([length // 2] * 2, dim)
    return a * sigmoid(b)


@trace.operation
def softmin(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """exp(-x) / sum exp(-x), the sum along axis `dim`; in `dtype`, if one is given"""
    floats("softmin", input=input)
    return softmax(-(input if dtype is None else input.to(dtype)), dim)


@trace.operation
def gumbel_softmax(logits: Tensor, tau: float = 1.0, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """softmax((logits + g) / tau) along `dim`, g = -log(-log(u)) drawn anew: a draw of a class that has a gradient.

    hard: the largest element as 1, the others 0, with the gradient of the soft one. `eps` is there for old programs
    and has no effect, as in PyTorch. Source: Jang et al. 2017, arXiv:1611.01144.
    """
    floats("gumbel_softmax", logits=logits)
    del eps
    wide = dtypes.compute_type(logits.dtype)
    noise = random.generator().gumbel(size=logits.shape)
    soft = softmax((logits + Tensor(np.asarray(noise, wide)).to(logits.device).to(logits.dtype)) / tau, dim)
    if not hard:
        return soft
    chosen = soft.detach().argmax(dim, True)
    places = np.arange(soft.shape[dim]).reshape([-1 if i == dim % soft.ndim else 1 for i in range(soft.ndim)])
    one_hot = (Tensor(places).to(soft.device) == chosen).to(soft.dtype)
    return one_hot - soft.detach() + soft
