"""Softmax along one axis, its logarithm, and the cross entropy of rows, with each gradient directly below its function.

The softmax functions also take `dtype`, which is the type of the result. If `dtype` is missing, the result has the type
of the arguments (see `widened`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.devices.dtypes import compute_type
from minorm.kernels.reference.widening import widened


@widened
def softmax(x: Any, axis: int = -1) -> Any:
    """exp(x - max) / sum exp(x - max) along `axis`"""
    if not x.size:
        return x.copy()
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


@widened
def softmax_grad(dy: Any, y: Any, axis: int = -1) -> Any:
    """y * (dy - sum(dy * y))"""
    return y * (dy - (dy * y).sum(axis=axis, keepdims=True))


@widened
def log_softmax(x: Any, axis: int = -1) -> Any:
    """(x - max) - log sum exp(x - max) along `axis`"""
    if not x.size:
        return x.copy()
    shifted = x - x.max(axis=axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))


@widened
def log_softmax_grad(dy: Any, y: Any, axis: int = -1) -> Any:
    """dy - exp(y) * sum(dy)"""
    return dy - np.exp(y) * dy.sum(axis=axis, keepdims=True)


def cross_entropy(x: Any, target: Any, ignore_index: int = -100, label_smoothing: float = 0.0) -> Any:
    """Return the loss of each row of logits x (rows, classes) for the classes target (rows,), and lse for the gradient.

        loss = lse - (1 - label_smoothing) * x[target] - label_smoothing * mean(x),   lse = log sum exp(x)

    A row whose target is ignore_index has loss 0. The result is loss (rows,) in the type of the computation, which is
    float32 for 16-bit floats, and lse (rows,) in float64, because logits may be large. Raises ValueError for a target
    that is neither a class nor ignore_index.
    """
    check_target(x, target, ignore_index)
    x = x.astype(compute_type(x.dtype), copy=False)
    counted = target != ignore_index
    top = x.max(axis=1, keepdims=True)
    shifted = x - top
    size = np.log(np.exp(shifted).sum(axis=1))
    chosen = shifted[np.arange(len(x), like=x), np.where(counted, target, 0)]
    loss = (1 - label_smoothing) * (size - chosen)
    if label_smoothing:
        loss = loss + label_smoothing * (size - shifted.mean(axis=1))
    return np.where(counted, loss, 0).astype(x.dtype), top[:, 0].astype(np.float64) + size


def cross_entropy_grad(
    dy: Any, x: Any, target: Any, lse: Any, ignore_index: int = -100, label_smoothing: float = 0.0, count: Any = None
) -> Any:
    """Return share * (softmax(x) - (1 - label_smoothing) * onehot(target) - label_smoothing / classes), in x's type.

    dy is one number, or has a number for each row. If `count` is given, the share of a row is dy / count, otherwise dy.
    """
    (rows, classes), dtype = x.shape, x.dtype
    x = x.astype(compute_type(dtype), copy=False)
    counted = target != ignore_index
    dx = np.exp((x - lse[:, None]).astype(x.dtype)) - x.dtype.type(label_smoothing / classes)
    dx[np.arange(rows, like=x), np.where(counted, target, 0)] -= x.dtype.type(1 - label_smoothing)
    return np.where(counted[:, None], dx * shares(dy, count, rows)[:, None], x.dtype.type(0)).astype(dtype, copy=False)


def shares(dy: Any, count: Any, rows: int) -> Any:
    """Return each row's share of the gradient dy, in the type of the computation.

    If no row counts, the mean is NaN, but its gradient is 0, so that no parameter becomes NaN.
    """
    dy = dy.reshape(-1).astype(compute_type(dy.dtype), copy=False)
    if count is not None:
        dy = dy / dy.dtype.type(count) if count else np.zeros_like(dy)
    return np.broadcast_to(dy, (rows,))


def reduce_losses(losses: Any, target: Any, ignore_index: int, mean: bool, dtype: Any) -> tuple[Any, Any]:
    """Return the sum of the losses, and how many targets are not ignore_index. With mean=True, the sum is divided by
    this count.

    Sums are computed in float64, and the result is rounded once to `dtype`. If the count is 0, the mean is NaN.
    """
    total, count = losses.sum(dtype=np.float64), np.count_nonzero(target != ignore_index)
    if mean:
        with np.errstate(invalid="ignore", divide="ignore"):
            total = total / total.dtype.type(count)
    return total.astype(dtype), count


def check_target(x: Any, target: Any, ignore_index: int) -> None:
    """Raise ValueError for the first target that is neither a class of x (rows, classes) nor ignore_index.

    On a GPU nothing is checked, since a check would make the host wait for the GPU.
    """
    if type(target) is not np.ndarray:
        return
    wrong = ((target < 0) | (target >= x.shape[1])) & (target != ignore_index)
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            f"cross_entropy: target[{row}] is {int(target[row])}; expected a class 0 <= target < {x.shape[1]} "
            f"(x.shape is {x.shape}), or ignore_index={ignore_index}"
        )
