"""Activations, sums and row-wise softmax: the formulas, each gradient directly below its function.

A gradient takes `dy`, then what forward left behind: the output y where the formula needs only that (it is kept
anyway, as the input of the next operation), the input x otherwise. At a kink the gradient is PyTorch's.
16-bit floats are widened to float32, computed, and rounded once at the end.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from minorm import dtypes


def widened(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give `function` its 16-bit arrays as float32 and round its array results back, once."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        half = next((a.dtype for a in args if getattr(a, "dtype", None) in dtypes.HALVES), None)
        if half is None:
            return function(*args, **kwargs)
        args = tuple(a.astype(np.float32) if getattr(a, "dtype", None) == half else a for a in args)
        result = function(*args, **kwargs)
        if isinstance(result, tuple):
            return tuple(array.astype(half) for array in result)
        return result.astype(half)

    return run


# Arithmetic on operands that may broadcast.


def add(a: Any, b: Any) -> Any:
    """a + b"""
    return a + b


def sub(a: Any, b: Any) -> Any:
    """a - b"""
    return a - b


def mul(a: Any, b: Any) -> Any:
    """a * b"""
    return a * b


def scale(x: Any, factor: float) -> Any:
    """x * factor, for a Python number"""
    return x * x.dtype.type(factor)


def accumulate(total: Any, x: Any) -> None:
    """total += x, in place"""
    total += x


def sum_to(x: Any, shape: tuple[int, ...]) -> Any:
    """`x` summed over the axes along which an operand of `shape` was broadcast to `x.shape`."""
    lead = x.ndim - len(shape)
    stretched = tuple(i + lead for i, n in enumerate(shape) if n == 1 and x.shape[i + lead] != 1)
    axes = tuple(range(lead)) + stretched
    total = x.sum(axis=axes, dtype=dtypes.compute_type(x.dtype)) if axes else x
    return total.astype(x.dtype, copy=False).reshape(shape)


# Activations made of comparisons and products.


@widened
def relu(x: Any) -> Any:
    """max(x, 0); NaN stays NaN"""
    return np.maximum(x, x.dtype.type(0))


@widened
def relu_grad(dy: Any, y: Any) -> Any:
    """dy where y > 0 (or NaN), else 0"""
    return np.where(y <= 0, dy.dtype.type(0), dy)


@widened
def relu6(x: Any) -> Any:
    """min(max(x, 0), 6)"""
    return np.minimum(np.maximum(x, x.dtype.type(0)), x.dtype.type(6))


@widened
def relu6_grad(dy: Any, y: Any) -> Any:
    """dy where 0 < y < 6 (or NaN), else 0"""
    return np.where((y <= 0) | (y >= 6), dy.dtype.type(0), dy)


@widened
def leaky_relu(x: Any, slope: float = 0.01) -> Any:
    """x where x > 0, else slope * x"""
    return np.where(x > 0, x, x * x.dtype.type(slope))


@widened
def leaky_relu_grad(dy: Any, x: Any, slope: float = 0.01) -> Any:
    """dy where x > 0, else slope * dy"""
    return np.where(x > 0, dy, dy * dy.dtype.type(slope))


@widened
def hardswish(x: Any) -> Any:
    """x * min(max(x + 3, 0), 6) / 6"""
    three, six = x.dtype.type(3), x.dtype.type(6)
    return x * np.minimum(np.maximum(x + three, x.dtype.type(0)), six) / six


@widened
def hardswish_grad(dy: Any, x: Any) -> Any:
    """dy * (0 for x <= -3, 1 for x >= 3, x/3 + 1/2 between)"""
    three, half = x.dtype.type(3), x.dtype.type(0.5)
    return np.where(x <= -3, x.dtype.type(0), np.where(x >= 3, dy, dy * (x / three + half)))


# Activations with an exponential.


@widened
def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)), written so that exp never overflows"""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, x.dtype.type(1), small) / (1 + small)


@widened
def sigmoid_grad(dy: Any, y: Any) -> Any:
    """dy * y * (1 - y)"""
    return dy * y * (1 - y)


@widened
def tanh(x: Any) -> Any:
    """tanh(x)"""
    return np.tanh(x)


@widened
def tanh_grad(dy: Any, y: Any) -> Any:
    """dy * (1 - y^2)"""
    return dy * (1 - y * y)


@widened
def silu(x: Any) -> Any:
    """x * sigmoid(x)"""
    return x * sigmoid(x)


@widened
def silu_grad(dy: Any, x: Any) -> Any:
    """dy * s * (1 + x * (1 - s)) with s = sigmoid(x)"""
    s = sigmoid(x)
    return dy * (s * (1 + x * (1 - s)))


@widened
def elu(x: Any, alpha: float = 1.0) -> Any:
    """x where x > 0, else alpha * (exp(x) - 1)"""
    return np.where(x > 0, x, x.dtype.type(alpha) * np.expm1(np.minimum(x, x.dtype.type(0))))


@widened
def elu_grad(dy: Any, x: Any, alpha: float = 1.0) -> Any:
    """dy where x > 0, else dy * alpha * exp(x)"""
    return np.where(x > 0, dy, dy * (x.dtype.type(alpha) * np.exp(np.minimum(x, x.dtype.type(0)))))


@widened
def gelu(x: Any, approximate: str = "none") -> Any:
    """x * Phi(x), Phi the normal distribution function: (1 + erf(x/sqrt 2)) / 2, or its approximation by tanh"""
    return (x * _normal(x, approximate)[0]).astype(x.dtype)


@widened
def gelu_grad(dy: Any, x: Any, approximate: str = "none") -> Any:
    """dy * (Phi(x) + x * Phi'(x))"""
    phi, slope = _normal(x, approximate)
    return (dy * (phi + x * slope)).astype(x.dtype)


def _normal(x: Any, approximate: str) -> tuple[Any, Any]:
    """Phi(x) and its derivative, in float64 (NumPy has no erf, so this one is for reading, not for speed)."""
    x = x.astype(np.float64)
    if approximate == "tanh":
        c, cubic = math.sqrt(2 / math.pi), 0.044715
        t = np.tanh(c * (x + cubic * x**3))
        return (1 + t) / 2, (1 - t * t) / 2 * c * (1 + 3 * cubic * x * x)
    erfc = np.frompyfunc(math.erfc, 1, 1)
    return erfc(-x / math.sqrt(2)).astype(np.float64) / 2, np.exp(-x * x / 2) / math.sqrt(2 * math.pi)


# Softmax along one axis, and the cross entropy of rows.


@widened
def softmax(x: Any, axis: int = -1) -> Any:
    """exp(x - max) / sum exp(x - max) along `axis`"""
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


@widened
def softmax_grad(dy: Any, y: Any, axis: int = -1) -> Any:
    """y * (dy - sum(dy * y))"""
    return y * (dy - (dy * y).sum(axis=axis, keepdims=True))


@widened
def log_softmax(x: Any, axis: int = -1) -> Any:
    """(x - max) - log sum exp(x - max) along `axis`"""
    shifted = x - x.max(axis=axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))


@widened
def log_softmax_grad(dy: Any, y: Any, axis: int = -1) -> Any:
    """dy - exp(y) * sum(dy)"""
    return dy - np.exp(y) * dy.sum(axis=axis, keepdims=True)


@widened
def cross_entropy(x: Any, target: Any, ignore_index: int = -100, label_smoothing: float = 0.0) -> Any:
    """The loss of each row of logits x (rows, classes) against the class target (rows,), and what the gradient needs.

        loss = lse - (1 - label_smoothing) * x[target] - label_smoothing * mean(x),   lse = log sum exp(x)

    A row whose target is ignore_index costs 0. Returns (loss, lse), both (rows,).
    Raises ValueError for a target that is neither a class nor ignore_index.
    """
    check_target(x, target, ignore_index)
    top = x.max(axis=1, keepdims=True)
    lse = (top + np.log(np.exp(x - top).sum(axis=1, keepdims=True)))[:, 0]
    counted = target != ignore_index
    chosen = x[np.arange(len(x)), np.where(counted, target, 0)]
    off = x.dtype.type(label_smoothing)
    # differences first: lse and x[target] may both be large
    loss = (1 - off) * (lse - chosen) + off * (lse[:, None] - x).mean(axis=1) if off else lse - chosen
    return np.where(counted, loss, x.dtype.type(0)), lse


@widened
def cross_entropy_grad(
    dy: Any, x: Any, target: Any, lse: Any, ignore_index: int = -100, label_smoothing: float = 0.0
) -> Any:
    """dy * (softmax(x) - (1 - label_smoothing) * onehot(target) - label_smoothing / classes), dy (rows,)"""
    rows, classes = x.shape
    counted = target != ignore_index
    dx = np.exp(x - lse[:, None]) - x.dtype.type(label_smoothing / classes)
    dx[np.arange(rows), np.where(counted, target, 0)] -= x.dtype.type(1 - label_smoothing)
    return np.where(counted[:, None], dx * dy[:, None], x.dtype.type(0))


def check_target(x: Any, target: Any, ignore_index: int) -> None:
    """Every target a class of x (rows, classes), or ignore_index; else a ValueError that names the first that is not."""
    wrong = ((target < 0) | (target >= x.shape[1])) & (target != ignore_index)
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            f"cross_entropy: target[{row}] is {int(target[row])}; expected a class 0 <= target < {x.shape[1]} "
            f"(x.shape is {x.shape}), or ignore_index={ignore_index}"
        )
