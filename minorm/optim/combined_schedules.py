"""Several schedules of one optimizer as one: all at once, or one after the other."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from minorm.documented import documented
from minorm.optim.argument_texts import SCHEDULE
from minorm.optim.optimizer import Optimizer
from minorm.optim.plateau import ReduceLROnPlateau
from minorm.optim.schedule import LRScheduler


@documented(
    SCHEDULE,
    schedulers="those that work at once, of one optimizer",
    optimizer="the optimizer that they have; None is that of the last one",
)
class ChainedScheduler(LRScheduler):
    """lr = initial * the product of all schedules' factors: several at once.

    Example:
        >>> optimizer = mn.optim.SGD([nn.Parameter(mn.zeros(1))], lr=1.0)
        >>> scheduler = mn.optim.lr_scheduler.ChainedScheduler([mn.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)])
        >>> rates = []
        >>> for epoch in range(5):
        ...     rates += [round(rate, 3) for rate in scheduler.get_last_lr()]
        ...     scheduler.step()
        >>> rates
        [1.0, 0.5, 0.25, 0.125, 0.062]
    """

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        _check_parts("ChainedScheduler", schedulers, optimizer)
        self.schedulers = list(schedulers)
        self.optimizer = self.schedulers[-1].optimizer
        self.base_lrs = list(self.schedulers[0].base_lrs)
        self.last_epoch = self.schedulers[0].last_epoch
        self._set()

    def _set(self) -> None:
        factors = [1.0] * len(self.base_lrs)
        for scheduler in self.schedulers:
            scheduler._set()
            for i, (rate, initial) in enumerate(zip(scheduler.get_last_lr(), self.base_lrs, strict=True)):
                factors[i] *= rate / initial if initial else 1.0
        for group, initial, factor in zip(self.optimizer.param_groups, self.base_lrs, factors, strict=True):
            group["lr"] = initial * factor

    def step(self) -> None:
        """Go to the next t in all of them."""
        self.last_epoch += 1
        for scheduler in self.schedulers:
            scheduler.last_epoch += 1
        self._set()

    def state_dict(self) -> dict[str, Any]:
        """The states of the schedules."""
        return {"last_epoch": self.last_epoch, "base_lrs": self.base_lrs,
                "schedulers": [scheduler.state_dict() for scheduler in self.schedulers]}  # fmt: skip

    def _check_state(self, operation: str, state_dict: dict[str, Any]) -> None:
        super()._check_state(operation, state_dict)
        _check_states(operation, self.schedulers, state_dict["schedulers"])

    def _take(self, state_dict: dict[str, Any]) -> None:
        for scheduler, state in zip(self.schedulers, state_dict["schedulers"], strict=True):
            scheduler._take(state)
        self.last_epoch = state_dict["last_epoch"]


@documented(
    SCHEDULE,
    schedulers="those that follow one another, of one optimizer",
    milestones="the t at which the next one begins, one less than there are schedulers",
)
class SequentialLR(LRScheduler):
    """One schedule after the other: schedulers[i] from milestones[i - 1] on, with its own t from 0.

    ValueError for another number of milestones.

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

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int], last_epoch: int = -1
    ) -> None:
        _check_parts("SequentialLR", schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                f"SequentialLR: {len(schedulers)} schedulers, {len(milestones)} milestones; expected 1 less"
            )
        self.schedulers, self.milestones = list(schedulers), list(milestones)
        self.optimizer = optimizer
        self.base_lrs = list(self.schedulers[0].base_lrs)
        self.last_epoch = last_epoch + 1
        self._set()

    def _set(self) -> None:
        index = bisect_right(self.milestones, self.last_epoch)
        scheduler = self.schedulers[index]
        scheduler.last_epoch = self.last_epoch - (self.milestones[index - 1] if index else 0)
        scheduler._set()

    def state_dict(self) -> dict[str, Any]:
        """The states of the schedules, and the place."""
        return {"last_epoch": self.last_epoch, "base_lrs": self.base_lrs, "milestones": self.milestones,
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


def _check_states(operation: str, schedulers: Sequence[LRScheduler], states: Sequence[Any]) -> None:
    if len(states) != len(schedulers):
        raise ValueError(f"{operation}: the state is that of {len(states)} schedules; expected {len(schedulers)}")
    for i, (scheduler, state) in enumerate(zip(schedulers, states, strict=True)):
        scheduler._check_state(f"{operation}: schedulers[{i}]", state)


def _check_parts(name: str, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None) -> None:
    if not schedulers:
        raise ValueError(f"{name}: schedulers is empty; expected at least one")
    wanted = schedulers[0].optimizer if optimizer is None else optimizer
    for i, scheduler in enumerate(schedulers):
        if isinstance(scheduler, ReduceLROnPlateau) or scheduler.optimizer is not wanted:
            raise ValueError(f"{name}: schedulers[{i}] is a {type(scheduler).__name__} of another optimizer, or one "
                             "that needs a number at each step; expected schedules of one optimizer")  # fmt: skip
