"""Combines several schedules of one optimizer into one schedule. The schedules work at the same time, or one after
another.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from minorm.optim.argument_texts import SCHEDULE, schedule
from minorm.optim.optimizer import Optimizer
from minorm.optim.plateau import ReduceLROnPlateau
from minorm.optim.schedule import LRScheduler
from minorm.support.documented import documented


@schedule(
    "[mn.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)]",
    "[1.0, 0.5, 0.25, 0.125, 0.062]",
    schedulers="the schedulers that work at the same time, all of one optimizer",
    optimizer="the optimizer of the schedulers; None takes the optimizer of the last scheduler",
)
class ChainedScheduler(LRScheduler):
    """lr = initial * the product of the factors of all schedules, which work at the same time.

    A schedule that falls to a rate other than 0 (eta_min, swa_lr) starts from the rate that the earlier schedules in
    the list have set.
    """

    _is_combined = True

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        _check_parts("ChainedScheduler", schedulers, optimizer)
        self.schedulers = list(schedulers)
        self.optimizer = self.schedulers[-1].optimizer
        self.base_lrs = list(self.schedulers[0].base_lrs)
        self.start_lrs = list(self.base_lrs)
        self.last_epoch = self.schedulers[0].last_epoch
        if any(scheduler._absolute for scheduler in self.schedulers):  # it has overwritten the rates before it
            self._set_rates_and_others(self._rates(self.last_epoch, self.base_lrs))

    @property
    def _takes_over(self) -> bool:  # type: ignore[override]
        return all(scheduler._takes_over for scheduler in self.schedulers)

    def _places(self, t: int) -> list[tuple[LRScheduler, int]]:
        """Return pairs (schedule, the schedule's t) for the moment when the chain is at t."""
        return [(scheduler, scheduler.last_epoch + t - self.last_epoch) for scheduler in self.schedulers]

    def _rates(self, t: int, initial: list[float]) -> list[float]:
        for scheduler, place in self._places(t):
            initial = scheduler._rates_at(place, initial)
        return initial

    def _next(self, t: int, rates: list[float]) -> list[float]:
        zeros = [0.0] * len(rates)
        asked = any(scheduler._is_asked for scheduler in self.schedulers)
        if not asked and all(scheduler._rates(place, zeros) == zeros for scheduler, place in self._places(t)):
            return super()._next(t, rates)  # all are factors, whose product is known even after a factor of 0
        for scheduler, place in self._places(t):
            rates = scheduler._next_at(place, rates)
        return rates

    def _go(self, t: int) -> None:
        for scheduler, place in self._places(t):
            scheduler._go(place)
        self.last_epoch = t

    def _set_others(self) -> None:
        for scheduler in self.schedulers:
            scheduler._set_others()

    def _settings(self) -> dict[str, Any]:
        """Return the states of the schedules."""
        return {"last_epoch": self.last_epoch, "base_lrs": self.base_lrs, "start_lrs": self.start_lrs,
                "schedulers": [scheduler.state_dict() for scheduler in self.schedulers]}  # fmt: skip

    def _check_state(self, operation: str, state_dict: dict[str, Any]) -> None:
        super()._check_state(operation, state_dict)
        _check_states(operation, self.schedulers, state_dict["schedulers"])

    def _take(self, state_dict: dict[str, Any]) -> None:
        for scheduler, state in zip(self.schedulers, state_dict["schedulers"], strict=True):
            scheduler._take(state)
        self.last_epoch = state_dict["last_epoch"]
        self.start_lrs = list(state_dict.get("start_lrs", self.base_lrs))


@documented(
    SCHEDULE,
    schedulers="the schedulers that follow one another, all of one optimizer",
    milestones="a list of the values of t at which the second and each later scheduler begins",
)
class SequentialLR(LRScheduler):
    """Schedules run one after another: schedulers[i] sets the rate from milestones[i - 1] on, with t starting at 0.

    Each schedule begins with the initial rate, but MultiplicativeLR and SWALR begin with the current rate, as in
    PyTorch.

    Raises ValueError unless len(milestones) == len(schedulers) - 1.

    Example:
        >>> optimizer = mn.optim.SGD([nn.Parameter(mn.zeros(1))], lr=1.0)
        >>> parts = [
        ...     mn.optim.lr_scheduler.ConstantLR(optimizer, 0.5),
        ...     mn.optim.lr_scheduler.ExponentialLR(optimizer, 0.1),
        ... ]
        >>> scheduler = mn.optim.lr_scheduler.SequentialLR(optimizer, parts, milestones=[2])
        >>> rates = []
        >>> for epoch in range(4):
        ...     rates += [round(rate, 3) for rate in scheduler.get_last_lr()]
        ...     scheduler.step()
        >>> rates
        [0.5, 0.5, 1.0, 0.1]
    """

    _is_combined = True

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int], last_epoch: int = -1
    ) -> None:
        _check_parts("SequentialLR", schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                f"SequentialLR: {len(schedulers)} schedulers and {len(milestones)} milestones; expected one milestone "
                "less than schedulers"
            )
        self.schedulers, self.milestones = list(schedulers), list(milestones)
        self.optimizer = optimizer
        self.base_lrs = list(self.schedulers[0].base_lrs)
        self.start_lrs = list(self.base_lrs)
        if last_epoch == -1:
            rates = self._at(0)[0]._start(self.base_lrs)
        else:
            rates = self.get_last_lr()
        self._go(last_epoch + 1)
        self._set_rates_and_others(rates)

    def _at(self, t: int) -> tuple[LRScheduler, int]:
        """Return the schedule that sets the rate at t, and the t at which this schedule began."""
        index = bisect_right(self.milestones, t)
        return self.schedulers[index], self.milestones[index - 1] if index else 0

    def _rates(self, t: int, initial: list[float]) -> list[float]:
        scheduler, begin = self._at(t)
        if begin and scheduler._takes_over:
            initial = self._rates(begin - 1, initial)
        return scheduler._rates_at(t - begin, initial)

    def _next(self, t: int, rates: list[float]) -> list[float]:
        scheduler, begin = self._at(t)
        return scheduler._start(rates) if t == begin else scheduler._after(t - begin, rates)

    def _go(self, t: int) -> None:
        scheduler, begin = self._at(t)
        scheduler._go(t - begin)
        self.last_epoch = t

    def _set_others(self) -> None:
        self._at(self.last_epoch)[0]._set_others()

    def _settings(self) -> dict[str, Any]:
        """Return the states of the schedules, the milestones, and the current t."""
        return {"last_epoch": self.last_epoch, "base_lrs": self.base_lrs, "start_lrs": self.start_lrs,
                "milestones": self.milestones,
                "schedulers": [scheduler.state_dict() for scheduler in self.schedulers]}  # fmt: skip

    def _check_state(self, operation: str, state_dict: dict[str, Any]) -> None:
        super()._check_state(operation, state_dict)
        _check_states(operation, self.schedulers, state_dict["schedulers"])
        if len(state_dict["milestones"]) != len(self.schedulers) - 1:
            raise ValueError(
                f"{operation}: the state has {len(state_dict['milestones'])} milestones; "
                f"expected {len(self.schedulers) - 1}"
            )

    def _take(self, state_dict: dict[str, Any]) -> None:
        for scheduler, state in zip(self.schedulers, state_dict["schedulers"], strict=True):
            scheduler._take(state)
        self.last_epoch, self.milestones = state_dict["last_epoch"], list(state_dict["milestones"])
        self.start_lrs = list(state_dict.get("start_lrs", self.base_lrs))


def _check_states(operation: str, schedulers: Sequence[LRScheduler], states: Sequence[Any]) -> None:
    if len(states) != len(schedulers):
        raise ValueError(f"{operation}: the state has {len(states)} schedules; expected {len(schedulers)}")
    for i, (scheduler, state) in enumerate(zip(schedulers, states, strict=True)):
        scheduler._check_state(f"{operation}: schedulers[{i}]", state)


def _check_parts(name: str, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None) -> None:
    if not schedulers:
        raise ValueError(f"{name}: schedulers is empty; expected at least one")
    wanted = schedulers[0].optimizer if optimizer is None else optimizer
    for i, scheduler in enumerate(schedulers):
        if isinstance(scheduler, ReduceLROnPlateau) or scheduler.optimizer is not wanted:
            raise ValueError(f"{name}: schedulers[{i}] is a {type(scheduler).__name__}, which belongs to another "
                             "optimizer or needs a number at each step; expected schedules of one optimizer that need "
                             "no number")  # fmt: skip
