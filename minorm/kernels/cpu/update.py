"""Optimizer steps by fused kernels: one call for a list of parameters, one pass over the memory of each parameter.

The kernels update contiguous float32 and float64 parameters. They return the indices of all other parameters, and the
reference updates these.
"""

from __future__ import annotations

from typing import Any

import minorm_ext
from minorm.kernels.reference import update as reference

_kernels: Any = minorm_ext.kernels("update")
_get_num_threads = minorm_ext.get_num_threads


def sgd(
    parameters: list[Any],
    gradients: list[Any],
    buffers: list[Any],
    *,
    lr: float,
    momentum: float = 0.0,
    dampening: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
    maximize: bool = False,
) -> None:
    left = _kernels.sgd(
        parameters, gradients, buffers, lr, momentum, dampening, weight_decay, nesterov, maximize, _get_num_threads()
    )
    if left:
        reference.sgd(
            *_chosen(left, parameters, gradients, buffers),
            lr=lr,
            momentum=momentum,
            dampening=dampening,
            weight_decay=weight_decay,
            nesterov=nesterov,
            maximize=maximize,
        )


def adam(
    parameters: list[Any],
    gradients: list[Any],
    means: list[Any],
    squares: list[Any],
    peaks: list[Any],
    steps: list[int],
    *,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float = 0.0,
    decoupled: bool = False,
    maximize: bool = False,
) -> None:
    left = _kernels.adam(
        parameters,
        gradients,
        means,
        squares,
        peaks,
        steps,
        lr,
        beta1,
        beta2,
        eps,
        weight_decay,
        decoupled,
        maximize,
        _get_num_threads(),
    )
    if left:
        reference.adam(
            *_chosen(left, parameters, gradients, means, squares, peaks, steps),
            lr=lr,
            beta1=beta1,
            beta2=beta2,
            eps=eps,
            weight_decay=weight_decay,
            decoupled=decoupled,
            maximize=maximize,
        )


def scale(arrays: list[Any], factor: float) -> None:
    left = _kernels.scale(arrays, factor, _get_num_threads())
    if left:
        reference.scale([arrays[i] for i in left], factor)


def square_sum(array: Any) -> float:
    total = _kernels.square_sum(array, _get_num_threads())
    return reference.square_sum(array) if total is None else total


def _chosen(indices: list[int], *lists: list[Any]) -> list[list[Any]]:
    """Return the entries at `indices` of every list.

    If the optimizer does not keep a state, the list of this state is empty, and stays empty.
    """
    return [[values[i] for i in indices] if values else values for values in lists]
