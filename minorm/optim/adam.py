"""Adam: every element of a parameter takes steps of about lr, since each gradient is divided by its recent size."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from minorm.kernels.select import backend
from minorm.optim.argument_texts import optimizer
from minorm.optim.optimizer import Optimizer
from minorm.tensor.tensor import Tensor


@optimizer(0.1, "[ 0.9, -1.9]", "Kingma and Ba 2014, arXiv:1412.6980; amsgrad: Reddi et al. 2018, arXiv:1904.09237.")
class Adam(Optimizer):
    """p -= lr * m' / (sqrt(v') + eps)  with  m = beta1 m + (1 - beta1) g  and  v = beta2 v + (1 - beta2) g^2

    At step t, m' = m / (1 - beta1^t) and v' = v / (1 - beta2^t). The divisors compensate for the start of m and v at
    zero. So every element of p takes steps of about lr. The arguments and results are PyTorch's. Raises ValueError for
    lr, eps or weight_decay < 0 and for betas outside [0, 1).
    """

    decoupled = False

    _can_be_captured = True
    _at_least_0 = ("lr", "eps", "weight_decay")
    _required = frozenset({"step", "exp_avg", "exp_avg_sq"})

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,  # noqa: ARG002
        capturable: bool = False,  # noqa: ARG002
        differentiable: bool = False,
        fused: bool | None = None,  # noqa: ARG002
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay,
                                  "amsgrad": amsgrad, "maximize": maximize},
                         differentiable)  # fmt: skip

    def _update(self, group: dict[str, Any], parameters: list[Tensor], gradients: list[Any]) -> None:
        means, squares, peaks, steps = [], [], [], []
        amsgrad = group["amsgrad"]
        for p in parameters:
            state = self._state_of(p)
            if not state:
                state["step"] = 0
                state["exp_avg"] = np.zeros_like(p.array)
                state["exp_avg_sq"] = np.zeros_like(p.array)
            if amsgrad and "max_exp_avg_sq" not in state:
                state["max_exp_avg_sq"] = np.zeros_like(p.array)
            state["step"] = step = state["step"] + 1
            steps.append(step)
            means.append(state["exp_avg"])
            squares.append(state["exp_avg_sq"])
            if amsgrad:
                peaks.append(state["max_exp_avg_sq"])
        beta1, beta2 = group["betas"]
        arrays = [p.array for p in parameters]
        backend(arrays[0]).update.adam(
            arrays,
            gradients,
            means,
            squares,
            peaks,
            steps,
            lr=group["lr"],
            beta1=beta1,
            beta2=beta2,
            eps=group["eps"],
            weight_decay=group["weight_decay"],
            decoupled=self.decoupled,
            maximize=group["maximize"],
        )


@optimizer(
    0.1,
    "[ 0.899, -1.898]",
    "Loshchilov and Hutter 2017, arXiv:1711.05101.",
    weight_decay="before each step p is reduced by lr * weight_decay * p",
)
class AdamW(Adam):
    """First p -= lr * weight_decay * p, then Adam's step p -= lr * m' / (sqrt(v') + eps).

    m = beta1 m + (1 - beta1) g and v = beta2 v + (1 - beta2) g^2, as in `Adam`; the decay does not change m and v. The
    arguments and results are PyTorch's. Raises ValueError for lr, eps or weight_decay < 0 and for betas outside [0, 1).
    """

    decoupled = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,  # noqa: ARG002
        capturable: bool = False,  # noqa: ARG002
        differentiable: bool = False,
        fused: bool | None = None,  # noqa: ARG002
    ) -> None:
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize, differentiable=differentiable
        )
