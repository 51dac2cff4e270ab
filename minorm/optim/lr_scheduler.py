"""Learning-rate schedules: each step changes the current rate by a factor, as in PyTorch.

    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs)
    for epoch in range(epochs):
        train(...)
        scheduler.step()

A schedule sets `group["lr"]` when it is made and at every `step()`, and stores the first rate as `group["initial_lr"]`.
Names and values are PyTorch's. If an optimizer has several schedules, their factors are multiplied. If a user sets a
rate, the schedule continues from this rate. The formulas below hold for a single schedule. As long as nothing else sets
the rate, the rate is computed from t alone, so a resumed run gives the same bits. more_schedules.py has the rarer
schedules, and is loaded when such a schedule is first used.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from minorm.optim.argument_texts import schedule
from minorm.optim.optimizer import Optimizer
from minorm.optim.rates import set_rate
from minorm.optim.schedule import LRScheduler, set_momentum
from minorm.support import lazy


@schedule(
    "optimizer, step_size=2",
    "[1.0, 1.0, 0.1, 0.1, 0.01]",
    step_size="the number of steps of t between two changes of the rate, at least 1",
)
class StepLR(LRScheduler):
    """lr = initial * gamma^(t // step_size): the rate falls by the factor gamma every step_size steps."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        if step_size < 1:
            raise ValueError(f"StepLR: step_size={step_size}; expected at least 1")
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def _rate(self, t: int, initial: float) -> float:
        return initial * self.gamma ** (t // self.step_size)


@schedule("optimizer, milestones=[1, 4]", "[1.0, 0.1, 0.1, 0.1, 0.01]")
class MultiStepLR(LRScheduler):
    """lr = initial * gamma^(number of milestones <= t): the rate falls by the factor gamma at each milestone."""

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones, self.gamma = sorted(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def _rate(self, t: int, initial: float) -> float:
        return initial * self.gamma ** sum(milestone <= t for milestone in self.milestones)


@schedule(
    "optimizer, factor=0.5, total_iters=2",
    "[0.5, 0.5, 1.0, 1.0, 1.0]",
    factor="the factor of the rate before total_iters, from 0 to 1",
)
class ConstantLR(LRScheduler):
    """lr = initial * factor for t < total_iters, and lr = initial from then on."""

    def __init__(
        self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1
    ) -> None:
        if not 0 <= factor <= 1:
            raise ValueError(f"ConstantLR: factor={factor}; expected 0 <= factor <= 1")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def _rate(self, t: int, initial: float) -> float:
        return initial * self.factor if t < self.total_iters else initial


@schedule(
    "optimizer, start_factor=0.25, total_iters=3",
    "[0.25, 0.5, 0.75, 1.0, 1.0]",
    start_factor="the factor of the rate at t = 0, above 0 and at most 1",
    end_factor="the factor of the rate from total_iters on, from 0 to 1",
)
class LinearLR(LRScheduler):
    """lr = initial * (start_factor + (end_factor - start_factor) * min(t / total_iters, 1)): linear, for a warm-up."""

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 < start_factor <= 1 or not 0 <= end_factor <= 1:
            raise ValueError(
                f"LinearLR: start_factor={start_factor}, end_factor={end_factor}; "
                "expected 0 < start_factor <= 1 and 0 <= end_factor <= 1"
            )
        if total_iters < 1:
            raise ValueError(f"LinearLR: total_iters={total_iters}; expected at least 1")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def _rate(self, t: int, initial: float) -> float:
        done = min(t, self.total_iters) / self.total_iters
        return initial * (self.start_factor + (self.end_factor - self.start_factor) * done)


@schedule(
    "optimizer, gamma=0.5",
    "[1.0, 0.5, 0.25, 0.125, 0.062]",
    gamma="the number by which the rate is multiplied at each t",
)
class ExponentialLR(LRScheduler):
    """lr = initial * gamma^t"""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _rate(self, t: int, initial: float) -> float:
        return initial * self.gamma**t


@schedule(
    "optimizer, T_max=4",
    "[1.0, 0.854, 0.5, 0.146, 0.0]",
    "Loshchilov and Hutter 2016, arXiv:1608.03983.",
    T_max="the t, at least 1, at which the rate is lowest; after T_max the rate rises again",
)
class CosineAnnealingLR(LRScheduler):
    """lr = eta_min + (initial - eta_min) * (1 + cos(pi t / T_max)) / 2: the rate follows half a cosine to eta_min."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        if T_max < 1:
            raise ValueError(f"CosineAnnealingLR: T_max={T_max}; expected at least 1")
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def _rate(self, t: int, initial: float) -> float:
        return self.eta_min + (initial - self.eta_min) * (1 + math.cos(math.pi * t / self.T_max)) / 2


@schedule(
    "optimizer, max_lr=1.0, total_steps=5, cycle_momentum=False",
    "[0.04, 0.95, 0.611, 0.188, 0.0]",
    "Smith and Topin 2017, arXiv:1708.07120.",
    max_lr="the highest rate, or a list of them, one for each group",
    total_steps="the number of all steps; None is epochs * steps_per_epoch",
    epochs="the number of epochs; used if total_steps is None",
    steps_per_epoch="the number of batches per epoch; used if total_steps is None",
    pct_start="the share of the steps in which the rate rises, 0 to 1",
    div_factor="the first rate is max_lr / div_factor",
    final_div_factor="the last rate is the first rate / final_div_factor",
    three_phase="True lets the rate fall back to the first rate in as many steps as it rose, and then to the last rate",
)
class OneCycleLR(LRScheduler):
    """lr rises to max_lr during the share pct_start of all steps, then falls to almost 0. Call `step()` after every
    batch.

        lr:        max_lr / div_factor  ->  max_lr  ->  max_lr / div_factor / final_div_factor
        momentum:  max_momentum  ->  base_momentum  ->  max_momentum        (beta1 in Adam; with cycle_momentum)

    After the last step, the rate stays the same. Raises ValueError if no argument gives the number of steps, and if
    `step()` is called more than total_steps times.
    """

    _absolute = True
    _decided = frozenset({"total_steps", "div_factor"})

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | list[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float = 0.85,
        max_momentum: float = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ValueError("OneCycleLR: expected total_steps, or both epochs and steps_per_epoch")
            total_steps = epochs * steps_per_epoch
        if total_steps < 1:
            raise ValueError(f"OneCycleLR: {total_steps} steps in total; expected at least 1")
        if not 0 <= pct_start <= 1:
            raise ValueError(f"OneCycleLR: pct_start={pct_start}; expected 0 <= pct_start <= 1")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"OneCycleLR: anneal_strategy={anneal_strategy!r}; expected 'cos' or 'linear'")
        peaks = list(max_lr) if isinstance(max_lr, (list, tuple)) else [max_lr] * len(optimizer.param_groups)
        if len(peaks) != len(optimizer.param_groups):
            raise ValueError(
                f"OneCycleLR: max_lr has {len(peaks)} values; expected one for each of the "
                f"{len(optimizer.param_groups)} parameter groups"
            )
        if cycle_momentum and not {"momentum", "betas"} & optimizer.defaults.keys():
            raise ValueError(f"OneCycleLR: {type(optimizer).__name__} has no momentum; use cycle_momentum=False")
        up = float(pct_start * total_steps) - 1
        self.total_steps, self.cycle_momentum, self.anneal_strategy = total_steps, cycle_momentum, anneal_strategy
        self.base_momentum, self.max_momentum = base_momentum, max_momentum
        self.div_factor, self.final_div_factor = div_factor, final_div_factor
        # pairs: the step at which a phase ends, and the height there (0: first rate, 1: peak, -1: last rate)
        self.ends = [up, 2 * up, total_steps - 1.0] if three_phase else [up, total_steps - 1.0]
        self.heights = [0, 1, 0, -1] if three_phase else [0, 1, -1]
        if last_epoch == -1:
            for group, peak in zip(optimizer.param_groups, peaks, strict=True):
                group["initial_lr"] = peak / div_factor
                set_rate(group, group["initial_lr"])
                group["max_lr"] = peak
        super().__init__(optimizer, last_epoch)

    def _between(self, start: float, end: float, part: float) -> float:
        if self.anneal_strategy == "linear":
            return (end - start) * part + start
        return end + (start - end) / 2 * (1 + math.cos(math.pi * part))

    def _at(self, t: int, low: float, high: float, last: float) -> float:
        """Return the rate or the momentum at step t: low at the start, high at the peak, last at the end."""
        value = {0: low, 1: high, -1: last}
        start = 0.0
        for phase, end in enumerate(self.ends):
            if t <= end or phase == len(self.ends) - 1:
                part = min(1.0, (t - start) / (end - start)) if end != start else 1.0
                return self._between(value[self.heights[phase]], value[self.heights[phase + 1]], part)
            start = end
        raise AssertionError("a cycle has phases")

    def _rate(self, t: int, initial: float) -> float:
        if t > self.total_steps:
            raise ValueError(
                f"OneCycleLR: step() was called {t} times, but the cycle has {self.total_steps} steps; "
                "expected one call after each batch, and total_steps batches"
            )
        return self._at(t, initial, initial * self.div_factor, initial / self.final_div_factor)

    def _set_others(self) -> None:
        if self.cycle_momentum:
            set_momentum(
                self.optimizer, self._at(self.last_epoch, self.max_momentum, self.base_momentum, self.max_momentum)
            )


__getattr__, __dir__ = lazy.from_module(
    __name__,
    "minorm.optim.more_schedules",
    "ChainedScheduler CosineAnnealingWarmRestarts CyclicLR LambdaLR MultiplicativeLR PolynomialLR ReduceLROnPlateau "
    "SequentialLR",
)
