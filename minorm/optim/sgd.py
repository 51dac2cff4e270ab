"""Stochastic gradient descent: steps against the gradient, or against its running sum (momentum)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from minorm.kernels.select import backend
from minorm.optim.argument_texts import optimizer
from minorm.optim.optimizer import Optimizer
from minorm.tensor.tensor import Tensor


@optimizer(
    0.1,
    "[ 0.8, -1.6]",
    "Robbins and Monro 1951; momentum: Sutskever et al. 2013.",
    dampening="the share of the new gradient that is not added to m; must be 0 with nesterov",
    nesterov="True steps along gradient + momentum * m instead of m, which approximates the gradient after the step "
    "along m",
)
class SGD(Optimizer):
    """p -= lr * m  with  m = momentum * m + (1 - dampening) * (gradient + weight_decay * p)

    At the first step m is the gradient itself. The arguments and results are PyTorch's. Raises ValueError for lr,
    momentum or weight_decay < 0. Also raises ValueError if nesterov is True, but momentum is 0 or dampening is not 0.
    """

    _can_be_captured = True
    _at_least_0 = ("lr", "momentum", "weight_decay")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,  # noqa: ARG002
        differentiable: bool = False,
        fused: bool | None = None,  # noqa: ARG002
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "dampening": dampening,
                                  "weight_decay": weight_decay, "nesterov": nesterov, "maximize": maximize},
                         differentiable)  # fmt: skip

    def _check(self, group: dict[str, Any]) -> None:
        super()._check(group)
        if group["nesterov"] and (group["momentum"] == 0 or group["dampening"] != 0):
            raise ValueError(
                f"SGD: nesterov=True with momentum={group['momentum']} and dampening={group['dampening']}; "
                "expected momentum > 0 and dampening=0"
            )

    def _update(self, group: dict[str, Any], parameters: list[Tensor], gradients: list[Any]) -> None:
        arrays = [p.array for p in parameters]
        settings = {name: group[name] for name in self.defaults}
        sgd = backend(arrays[0]).update.sgd
        if not group["momentum"]:
            sgd(arrays, gradients, [], **settings)
            return
        buffers = []
        fresh = []  # parameters at their first step
        for i, p in enumerate(parameters):
            state = self._state_of(p)
            buffer = state.get("momentum_buffer")
            if buffer is None:
                buffer = state["momentum_buffer"] = np.zeros_like(p.array)
                fresh.append(i)
            buffers.append(buffer)
        if fresh and group["dampening"]:
            first = [[values[i] for i in fresh] for values in (arrays, gradients, buffers)]
            sgd(*first, **{**settings, "dampening": 0.0})
            later = [i for i in range(len(arrays)) if i not in set(fresh)]
            arrays, gradients, buffers = ([values[i] for i in later] for values in (arrays, gradients, buffers))
        sgd(arrays, gradients, buffers, **settings)
