"""Optimizers that differ from Adam in one idea: Adamax, NAdam, RAdam, LAMB. Their method `move` computes a step.

m and v are Adam's averages of the gradient g and of g^2; t is the number of the step.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from minorm.optim.argument_texts import optimizer
from minorm.optim.per_element import Elementwise, blend


@optimizer(
    0.1,
    "[ 0.9, -1.9]",
    "Kingma and Ba 2014, arXiv:1412.6980, section 7.1.",
    eps="added to |g|, so that nothing is divided by 0",
)
class Adamax(Elementwise):
    """p -= lr / (1 - beta1^t) * m / u  with  m = beta1 m + (1 - beta1) g  and  u = max(beta2 u, |g| + eps)

    Adamax is Adam with the largest recent gradient instead of the mean square. The arguments and results are PyTorch's.
    Raises ValueError for a negative setting and for betas outside [0, 1).
    """

    names = ("exp_avg", "exp_inf")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        foreach: bool | None = None,  # noqa: ARG002
        capturable: bool = False,  # noqa: ARG002
        differentiable: bool = False,
        fused: bool | None = None,  # noqa: ARG002
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay,
                                  "maximize": maximize},
                         differentiable)  # fmt: skip

    def move(self, group: dict[str, Any], p: Any, g: Any, state: dict[str, Any], t: int) -> Any:
        """Return p after step t, by the formula of the class."""
        beta1, beta2 = group["betas"]
        mean = blend(state["exp_avg"], g, beta1)
        state["exp_inf"][...] = np.maximum(state["exp_inf"] * beta2, abs(g) + group["eps"])
        return p - group["lr"] / (1 - beta1**t) * (mean / state["exp_inf"])


@optimizer(0.1, "[ 0.8944, -1.8944]", "Dozat 2016.", momentum_decay="how fast mu(t) goes from beta1 / 2 to beta1")
class NAdam(Elementwise):
    """p -= lr * m' / (sqrt(v') + eps): Adam with Nesterov's look ahead in m'.

    At step t, m' = mu(t+1) m / (1 - M(t+1)) + (1 - mu(t)) g / (1 - M(t)), with M(t) = mu(1) ... mu(t) and
    mu(t) = beta1 * (1 - 0.96^(t * momentum_decay) / 2). m, v and v' are the same as in `Adam`. The arguments and
    results are PyTorch's. Raises ValueError for a negative setting and for betas outside [0, 1).
    """

    names = ("exp_avg", "exp_avg_sq")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,  # noqa: ARG002
        capturable: bool = False,  # noqa: ARG002
        differentiable: bool = False,
        fused: bool | None = None,  # noqa: ARG002
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay,
                                  "momentum_decay": momentum_decay, "decoupled_weight_decay": decoupled_weight_decay,
                                  "maximize": maximize},
                         differentiable)  # fmt: skip

    def move(self, group: dict[str, Any], p: Any, g: Any, state: dict[str, Any], t: int) -> Any:
        """Return p after step t, by the formula of the class."""
        beta1, beta2 = group["betas"]
        lr, decay = group["lr"], group["momentum_decay"]
        if group["decoupled_weight_decay"]:
            p = p * (1 - lr * group["weight_decay"])
        mu, ahead = (beta1 * (1 - 0.5 * 0.96 ** (i * decay)) for i in (t, t + 1))
        state["mu_product"] = product = state.get("mu_product", 1.0) * mu
        mean = blend(state["exp_avg"], g, beta1)
        square = blend(state["exp_avg_sq"], g * g, beta2)
        below = np.sqrt(square / (1 - beta2**t)) + group["eps"]
        p = p - lr * (1 - mu) / (1 - product) * (g / below)
        return p - lr * ahead / (1 - product * ahead) * (mean / below)


@optimizer(0.1, "[ 0.8, -1.6]", "Liu et al. 2019, arXiv:1908.03265.")
class RAdam(Elementwise):
    """p -= lr * m' in the first steps; later, when v' is reliable, p -= lr * r * m' / (sqrt(v') + eps).

    m, v, m' and v' are the same as in `Adam`. The second formula applies once
    rho = 2 / (1 - beta2) - 1 - 2 t beta2^t / (1 - beta2^t) is above 5; r grows to 1 as rho grows. So no warm-up of the
    rate is needed. The arguments and results are PyTorch's. Raises ValueError for a negative setting and for
    betas outside [0, 1).
    """

    names = ("exp_avg", "exp_avg_sq")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,  # noqa: ARG002
        capturable: bool = False,  # noqa: ARG002
        differentiable: bool = False,
        fused: bool | None = None,  # noqa: ARG002
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay,
                                  "decoupled_weight_decay": decoupled_weight_decay, "maximize": maximize},
                         differentiable)  # fmt: skip

    def move(self, group: dict[str, Any], p: Any, g: Any, state: dict[str, Any], t: int) -> Any:
        """Return p after step t, by the formula of the class."""
        beta1, beta2 = group["betas"]
        lr = group["lr"]
        if group["decoupled_weight_decay"]:
            p = p * (1 - lr * group["weight_decay"])
        mean = blend(state["exp_avg"], g, beta1) / (1 - beta1**t)
        square = blend(state["exp_avg_sq"], g * g, beta2)
        most = 2 / (1 - beta2) - 1
        rho = most - 2 * t * beta2**t / (1 - beta2**t)
        if rho <= 5:
            return p - lr * mean
        factor = math.sqrt((rho - 4) * (rho - 2) * most / ((most - 4) * (most - 2) * rho))
        return p - lr * factor * math.sqrt(1 - beta2**t) * (mean / (np.sqrt(square) + group["eps"]))


@optimizer(
    0.1,
    "[ 0.8419, -1.8419]",
    "You et al. 2019, arXiv:1904.00962, algorithm 2.",
    weight_decay="how much of p is added to u",
)
class LAMB(Elementwise):
    """p -= lr * |p| / |u| * u  with  u = m' / (sqrt(v') + eps) + weight_decay * p

    m' and v' are the same as in `Adam`. |p| and |u| are norms over the whole parameter; if |p| or |u| is 0, the factor
    |p| / |u| is 1. LAMB is made for large batches. PyTorch lacks LAMB. Raises ValueError for a negative setting and for
    betas outside [0, 1).
    """

    names, decoupled = ("exp_avg", "exp_avg_sq"), True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay,
                                  "maximize": maximize})  # fmt: skip

    def move(self, group: dict[str, Any], p: Any, g: Any, state: dict[str, Any], t: int) -> Any:
        """Return p after step t, by the formula of the class."""
        beta1, beta2 = group["betas"]
        mean = blend(state["exp_avg"], g, beta1) / (1 - beta1**t)
        square = blend(state["exp_avg_sq"], g * g, beta2) / (1 - beta2**t)
        u = mean / (np.sqrt(square) + group["eps"]) + group["weight_decay"] * p
        size, length = (np.sqrt((a.astype(np.float64) ** 2).sum()) for a in (p, u))
        ratio = np.where((size > 0) & (length > 0), size / np.where(length > 0, length, 1), 1.0).astype(p.dtype)
        return p - group["lr"] * ratio * u
