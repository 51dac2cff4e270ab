"""Optimizers whose step is a few lines of array arithmetic: RMSprop, Adagrad, Adadelta, Lion. adam_variants.py has
further optimizers.

Each optimizer computes in float64 for float64 parameters, and in float32 for all others. Names, defaults and formulas
are PyTorch's. PyTorch lacks Lion and LAMB; their formulas are algorithm 2 of their papers. g is the gradient, plus
weight_decay * p unless the decay is decoupled. t is the number of the step.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.optim.argument_texts import optimizer
from minorm.optim.optimizer import Optimizer
from minorm.tensor.tensor import Tensor


class Elementwise(Optimizer):
    """Base class. A subclass defines the first values of its arrays (`start`), and how a step changes them (`move`)."""

    names: tuple[str, ...] = ()  # names of the arrays kept for a parameter
    decoupled = False
    _at_least_0 = ("lr", "eps", "weight_decay", "momentum", "lr_decay", "momentum_decay")

    def start(self, group: dict[str, Any], name: str, p: Any) -> Any:  # noqa: ARG002
        """Return the array `name` of p's state with its values before the first step."""
        return np.zeros_like(p)

    def move(self, group: dict[str, Any], p: Any, g: Any, state: dict[str, Any], t: int) -> Any:
        """Return the parameter after step t; change the arrays in `state` in place."""
        raise NotImplementedError(f"{self._name} has no move")

    def kept(self, group: dict[str, Any]) -> tuple[str, ...]:  # noqa: ARG002
        """Return the names of the arrays that the group's settings need."""
        return self.names

    def _update(self, group: dict[str, Any], parameters: list[Tensor], gradients: list[Any]) -> None:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            state = self._state_of(parameter)
            state.setdefault("step", 0)
            for name in self.kept(group):
                if name not in state:
                    state[name] = self.start(group, name, parameter.array)
            state["step"] += 1
            wide = dtypes.compute_type(parameter.dtype)
            p, g = (a.astype(wide, copy=False) for a in (parameter.array, gradient))
            if group.get("maximize"):
                g = -g
            if group["weight_decay"] and not group.get("decoupled_weight_decay", self.decoupled):
                g = g + group["weight_decay"] * p
            parameter.array[...] = self.move(group, p, g, state, state["step"])


def blend(average: Any, value: Any, beta: float) -> Any:
    """Compute average = beta * average + (1 - beta) * value in place, and return the average."""
    average *= average.dtype.type(beta)
    average += (average.dtype.type(1 - beta) * value).astype(average.dtype, copy=False)
    return average


@optimizer(
    0.01,
    "[ 0.9, -1.9]",
    "Hinton's lecture 6e, 2012.",
    alpha="the share of the old average v that is kept, from 0 to below 1",
    centered="True divides by the standard deviation sqrt(v - m^2), where m is the average of g",
    momentum="the share of the old step b that is kept: p -= lr * b with b = momentum * b + g / (sqrt(v) + eps)",
)
class RMSprop(Elementwise):
    """p -= lr * g / (sqrt(v) + eps)  with  v = alpha v + (1 - alpha) g^2

    The arguments and results are PyTorch's. Raises ValueError for a negative setting.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,  # noqa: ARG002
        capturable: bool = False,  # noqa: ARG002
        differentiable: bool = False,
        fused: bool | None = None,  # noqa: ARG002
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "alpha": alpha, "eps": eps, "centered": centered,
                                  "weight_decay": weight_decay, "maximize": maximize},
                         differentiable)  # fmt: skip

    def kept(self, group: dict[str, Any]) -> tuple[str, ...]:
        """Return square_avg, and the arrays that momentum and centered need."""
        return ("square_avg", *(("momentum_buffer",) if group["momentum"] else ()),
                *(("grad_avg",) if group["centered"] else ()))  # fmt: skip

    def move(self, group: dict[str, Any], p: Any, g: Any, state: dict[str, Any], t: int) -> Any:  # noqa: ARG002
        """Return p after step t, by the formula of the class."""
        square = blend(state["square_avg"], g * g, group["alpha"])
        if group["centered"]:
            square = square - blend(state["grad_avg"], g, group["alpha"]) ** 2
        step = g / (np.sqrt(square) + group["eps"])
        if group["momentum"]:
            state["momentum_buffer"] *= group["momentum"]
            state["momentum_buffer"] += step
            step = state["momentum_buffer"]
        return p - group["lr"] * step


@optimizer(
    0.1,
    "[ 0.9, -1.9]",
    "Duchi, Hazan and Singer 2011.",
    lr_decay="how fast the rate falls with the number of steps",
    initial_accumulator_value="the value with which s starts",
)
class Adagrad(Elementwise):
    """p -= lr / (1 + (t - 1) * lr_decay) * g / (sqrt(s) + eps)  with  s = s + g^2, at step t

    So elements that rarely have a gradient take large steps. The arguments and results are PyTorch's. Raises ValueError
    for a negative setting.
    """

    names = ("sum",)

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        *,
        maximize: bool = False,
        foreach: bool | None = None,  # noqa: ARG002
        capturable: bool = False,  # noqa: ARG002
        differentiable: bool = False,
        fused: bool | None = None,  # noqa: ARG002
    ) -> None:
        super().__init__(params, {"lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay,
                                  "initial_accumulator_value": initial_accumulator_value,
                                  "maximize": maximize},
                         differentiable)  # fmt: skip

    def start(self, group: dict[str, Any], name: str, p: Any) -> Any:  # noqa: ARG002
        """Return an array filled with initial_accumulator_value."""
        return np.full_like(p, group["initial_accumulator_value"])

    def move(self, group: dict[str, Any], p: Any, g: Any, state: dict[str, Any], t: int) -> Any:
        """Return p after step t, by the formula of the class."""
        state["sum"] += (g * g).astype(p.dtype if state["sum"].dtype == p.dtype else state["sum"].dtype)
        rate = group["lr"] / (1 + (t - 1) * group["lr_decay"])
        return p - rate * (g / (np.sqrt(state["sum"]) + group["eps"]))


@optimizer(
    1.0,
    "[ 0.9968, -1.9968]",
    "Zeiler 2012, arXiv:1212.5701.",
    rho="the share of the old averages v and u that is kept, 0 to 1",
    eps="added under both roots; it also determines the size of the first step",
)
class Adadelta(Elementwise):
    """p -= lr * d  with  d = g * sqrt(u + eps) / sqrt(v + eps),  v = rho v + (1 - rho) g^2,  u = rho u + (1 - rho) d^2

    The step d has about the size of the earlier steps, so lr = 1 usually works. The arguments and results are
    PyTorch's. Raises ValueError for a negative setting and for rho above 1.
    """

    names = ("square_avg", "acc_delta")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        foreach: bool | None = None,  # noqa: ARG002
        *,
        capturable: bool = False,  # noqa: ARG002
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay,
                                  "maximize": maximize},
                         differentiable)  # fmt: skip

    def _check(self, group: dict[str, Any]) -> None:
        super()._check(group)
        if not 0 <= group["rho"] <= 1:
            raise ValueError(f"Adadelta: rho={group['rho']}; expected 0 <= rho <= 1")

    def move(self, group: dict[str, Any], p: Any, g: Any, state: dict[str, Any], t: int) -> Any:  # noqa: ARG002
        """Return p after step t, by the formula of the class."""
        rho, eps = group["rho"], group["eps"]
        square = blend(state["square_avg"], g * g, rho)
        step = g * (np.sqrt(state["acc_delta"].astype(p.dtype, copy=False) + eps) / np.sqrt(square + eps))
        blend(state["acc_delta"], step * step, rho)
        return p - group["lr"] * step


@optimizer(
    0.1,
    "[ 0.9, -1.9]",
    "Chen et al. 2023, arXiv:2302.06675, algorithm 2.",
    betas="(beta1, beta2): beta1 is the share of m in the step, and beta2 the share of the old m that is kept; each "
    "from 0 to below 1",
    weight_decay="at each step p is reduced by lr * weight_decay * p",
)
class Lion(Elementwise):
    """p -= lr * (sign(beta1 m + (1 - beta1) g) + weight_decay * p); then m = beta2 m + (1 - beta2) g

    Every element of p moves by lr, so a usual rate is a third to a tenth of Adam's. PyTorch lacks Lion. Raises
    ValueError for a negative setting and for betas outside [0, 1).
    """

    names, decoupled = ("exp_avg",), True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": tuple(betas), "weight_decay": weight_decay,
                                  "maximize": maximize})  # fmt: skip

    def move(self, group: dict[str, Any], p: Any, g: Any, state: dict[str, Any], t: int) -> Any:  # noqa: ARG002
        """Return p after step t, by the formula of the class."""
        beta1, beta2 = group["betas"]
        direction = np.sign(beta1 * state["exp_avg"].astype(p.dtype, copy=False) + (1 - beta1) * g)
        p = p - group["lr"] * (direction + group["weight_decay"] * p)
        blend(state["exp_avg"], g, beta2)
        return p
