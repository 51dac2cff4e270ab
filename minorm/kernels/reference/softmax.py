"""Softmax along one axis, its logarithm, and the cross entropy of rows, with each gradient directly below its function.

The softmax functions take `dtype`, the type of the result, if it differs from the type of the arguments (see
`widened`).
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

    A row whose target is ignore_index has loss 0. Returns loss (rows,) in the type of the computation, which is float32
    for 16 bits, and lse (rows,) in float64, because logits may be large. Raises ValueError for a target that is neither
    a class nor ignore_index.
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
    """share * (softmax(x) - (1 - label_smoothing) * onehot(target) - label_smoothing / classes), in x's type

    The share of a row is dy, which is one number or a number for each row, divided by `count` if that is
    given.
    """
    (rows, classes), dtype = x.shape, x.dtype
    x = x.astype(compute_type(dtype), copy=False)
    counted = target != ignore_index
    dx = np.exp((x - lse[:, None]).astype(x.dtype)) - x.dtype.type(label_smoothing / classes)
    dx[np.arange(rows, like=x), np.where(counted, target, 0)] -= x.dtype.type(1 - label_smoothing)
    return np.where(counted[:, None], dx * shares(dy, count, rows)[:, None], x.dtype.type(0)).astype(dtype, copy=False)


def shares(dy: Any, count: Any, rows: int) -> Any:
    """Return each row's share of the gradient dy, in the type of the computation.

    The mean over no rows has gradient 0: its loss is NaN, but no parameter becomes NaN.
    """
    dy = dy.reshape(-1).astype(compute_type(dy.dtype), copy=False)
    if count is not None:
        dy = dy / dy.dtype.type(count) if count else np.zeros_like(dy)
    return np.broadcast_to(dy, (rows,))


def reduce_losses(losses: Any, target: Any, ignore_index: int, mean: bool, dtype: Any) -> tuple[Any, Any]:
    """Return the sum of losses, or with mean=True the mean over the targets that count, rounded once to `dtype`; and
    the count of these targets.

    Sums are computed in float64; the mean over no targets is NaN.
    """
    total, count = losses.sum(dtype=np.float64), np.count_nonzero(target != ignore_index)
    if mean:
        with np.errstate(invalid="ignore", divide="ignore"):
            total = total / total.dtype.type(count)
    return total.astype(dtype), count


def check_target(x: Any, target: Any, ignore_index: int) -> None:
    """Raise ValueError for the first target that is neither a class of x (rows, classes) nor ignore_index.

    On a GPU nothing is checked, since the host would have to wait for the answer.
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
