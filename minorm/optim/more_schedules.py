"""Schedules that follow a function or a cycle; also exports the classes of combined_schedules.py and plateau.py.

Names and values are PyTorch's. As in PyTorch, LambdaLR, CosineAnnealingWarmRestarts and CyclicLR overwrite a rate that
something else has set. In a ChainedScheduler, they multiply the rate by a factor, like all other schedules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from minorm.optim.argument_texts import schedule
from minorm.optim.combined_schedules import ChainedScheduler as ChainedScheduler  # noqa: PLC0414  passed on
from minorm.optim.combined_schedules import SequentialLR as SequentialLR  # noqa: PLC0414  passed on
from minorm.optim.optimizer import Optimizer
from minorm.optim.plateau import ReduceLROnPlateau as ReduceLROnPlateau  # noqa: PLC0414  passed on
from minorm.optim.rates import set_rate
from minorm.optim.schedule import LRScheduler, set_momentum

Factor = Callable[[int], float]


class _ByFunction(LRScheduler):
    """Base of schedules that take a function of t for each group. The functions are not part of the state."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Factor | Sequence[Factor], last_epoch: int = -1) -> None:
        many: list[Any] = (
            list(lr_lambda) if isinstance(lr_lambda, (list, tuple)) else [lr_lambda] * len(optimizer.param_groups)
        )
        if len(many) != len(optimizer.param_groups) or not all(map(callable, many)):
            raise ValueError(f"{self._name}: lr_lambda has {len(many)} functions; expected one for each of the "
                             f"{len(optimizer.param_groups)} parameter groups")  # fmt: skip
        self.lr_lambdas, self.factors = many, dict[int, list[float]]()
        super().__init__(optimizer, last_epoch)

    def _settings(self) -> dict[str, Any]:
        """Return the settings that are numbers or lists of numbers, without the functions."""
        return {name: value for name, value in super()._settings().items() if name not in ("lr_lambdas", "factors")}


@schedule("optimizer, lambda t: 1 / (1 + t)", "[1.0, 0.5, 0.333, 0.25, 0.2]")
class LambdaLR(_ByFunction):
    """lr = initial * lr_lambda(t)

    The functions are not part of the state. Raises ValueError unless there is one function, or one for each group.
    """

    _absolute = True

    def _rates(self, t: int, initial: list[float]) -> list[float]:
        return [rate * function(t) for rate, function in zip(initial, self.lr_lambdas, strict=True)]


@schedule("optimizer, lambda t: 0.5", "[1.0, 0.5, 0.25, 0.125, 0.062]")
class MultiplicativeLR(_ByFunction):
    """lr = (the rate at t - 1) * lr_lambda(t), and lr = initial at t = 0.

    The functions are not part of the state. Raises ValueError unless there is one function, or one for each group.
    """

    _takes_over = True

    def _rates(self, t: int, initial: list[float]) -> list[float]:
        return [rate * self._factor(i, t) for i, rate in enumerate(initial)]

    def _next(self, t: int, rates: list[float]) -> list[float]:
        return [rate * function(t) for rate, function in zip(rates, self.lr_lambdas, strict=True)]

    def _at_once(self, t: float, rates: list[float]) -> list[float]:
        return self._next(t, rates)  # type: ignore[arg-type]

    def _factor(self, group: int, t: int) -> float:
        """Return the product of the values of the group's function at 1, 2 ... t."""
        known = self.factors.setdefault(group, [1.0])
        while len(known) <= t:
            known.append(known[-1] * self.lr_lambdas[group](len(known)))
        return known[t]


@schedule(
    "optimizer, total_iters=4",
    "[1.0, 0.75, 0.5, 0.25, 0.0]",
    total_iters="the t, at least 1, from which on the rate is 0",
    power="the exponent; with 1 the rate falls along a line",
)
class PolynomialLR(LRScheduler):
    """lr = initial * (1 - t / total_iters)^power, and 0 from total_iters on."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        if total_iters < 1:
            raise ValueError(f"PolynomialLR: total_iters={total_iters}; expected at least 1")
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def _rate(self, t: int, initial: float) -> float:
        return initial * float((1 - min(t, self.total_iters) / self.total_iters) ** self.power)


@schedule(
    "optimizer, T_0=2",
    "[1.0, 0.5, 1.0, 0.5, 1.0]",
    "Loshchilov and Hutter 2016, arXiv:1608.03983.",
    T_0="the t of the first restart, a number of at least 1",
    T_mult="a number of at least 1: each period is T_mult times as long as the period before",
)
class CosineAnnealingWarmRestarts(LRScheduler):
    """lr = eta_min + (initial - eta_min) * (1 + cos(pi t' / T)) / 2, where t' counts from the last restart.

    T is the length of a period: T_0, then T_0 T_mult, and so on. step(epoch) sets t = epoch, which may be a fraction.
    """

    _absolute = True

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        if T_0 < 1 or T_mult < 1:
            raise ValueError(f"CosineAnnealingWarmRestarts: T_0={T_0}, T_mult={T_mult}; expected ints of at least 1")
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
        super().__init__(optimizer, last_epoch)

    def _rate(self, t: float, initial: float) -> float:
        length = self.T_0
        if self.T_mult == 1:
            t %= length
        else:
            while t >= length:
                t, length = t - length, length * self.T_mult
        return self.eta_min + (initial - self.eta_min) * (1 + math.cos(math.pi * t / length)) / 2


@schedule(
    "optimizer, 0.0, 1.0, step_size_up=2, cycle_momentum=False",
    "[0.0, 0.5, 1.0, 0.5, 0.0]",
    "Smith 2017, arXiv:1506.01186.",
    base_lr="the lowest rate, or a list of them, one for each group",
    max_lr="the highest rate, or a list of them, one for each group",
    step_size_up="the number of steps in which the rate rises",
    step_size_down="the number of steps in which the rate falls; None is step_size_up",
    mode='"triangular", "triangular2" (half the height each cycle) or "exp_range" (the height times gamma^t)',
    gamma='the factor of mode "exp_range"',
    scale_fn="a function that gives the factor of the height, in place of mode; None uses mode",
    scale_mode='the argument of scale_fn: the number of the "cycle" or of the "iterations"',
)
class CyclicLR(LRScheduler):
    """lr rises from base_lr to max_lr within step_size_up steps and falls back within step_size_down steps, repeatedly.

    Raises ValueError for an unknown mode, and if cycle_momentum is True but the optimizer has no momentum.
    """

    _absolute = True
    _decided = frozenset({"mode", "total_size", "step_ratio"})

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | list[float],
        max_lr: float | list[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float = 0.8,
        max_momentum: float = 0.9,
        last_epoch: int = -1,
    ) -> None:
        if scale_fn is None and mode not in ("triangular", "triangular2", "exp_range"):
            raise ValueError(f"CyclicLR: mode={mode!r}; expected 'triangular', 'triangular2' or 'exp_range'")
        if cycle_momentum and not {"momentum", "betas"} & optimizer.defaults.keys():
            raise ValueError(f"CyclicLR: {type(optimizer).__name__} has no momentum; use cycle_momentum=False")
        down = step_size_up if step_size_down is None else step_size_down
        self.total_size, self.step_ratio = float(step_size_up + down), step_size_up / (step_size_up + down)
        self.mode, self.gamma, self.scale_fn, self.scale_mode = mode, gamma, scale_fn, scale_mode
        if scale_fn is None:
            self.scale_mode = "iterations" if mode == "exp_range" else "cycle"
        count = len(optimizer.param_groups)
        low, high = (list(v) if isinstance(v, (list, tuple)) else [v] * count for v in (base_lr, max_lr))
        if len(low) != count or len(high) != count:
            raise ValueError(f"CyclicLR: base_lr has {len(low)} values, max_lr {len(high)}; expected {count} each")
        self.max_lrs, self.cycle_momentum = high, cycle_momentum
        self.base_momentum, self.max_momentum = base_momentum, max_momentum
        if last_epoch == -1:
            for group, rate in zip(optimizer.param_groups, low, strict=True):
                group["initial_lr"] = rate
                set_rate(group, rate)
        super().__init__(optimizer, last_epoch)

    def _settings(self) -> dict[str, Any]:
        """Return the settings that are numbers or lists of numbers, without scale_fn."""
        return {name: value for name, value in super()._settings().items() if name != "scale_fn"}

    def _scale(self, x: float) -> float:
        if self.scale_fn is not None:
            return self.scale_fn(x)
        return {"triangular": 1.0, "triangular2": 1 / 2.0 ** (x - 1)}.get(self.mode, self.gamma**x)

    def _height(self, t: int) -> float:
        """Return the height of step t: 0 is the lowest rate, and 1 the highest."""
        cycle = math.floor(1 + t / self.total_size)
        x = 1 + t / self.total_size - cycle
        up = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        return up * self._scale(cycle if self.scale_mode == "cycle" else t)

    def _rates(self, t: int, initial: list[float]) -> list[float]:
        height = self._height(t)
        rows = zip(initial, self.base_lrs, self.max_lrs, strict=True)
        return [(low + (high - low) * height) * (rate / low if low else 1.0) for rate, low, high in rows]

    def _set_others(self) -> None:
        if self.cycle_momentum:
            reach = self.max_momentum - self.base_momentum
            set_momentum(self.optimizer, self.max_momentum - reach * self._height(self.last_epoch))
