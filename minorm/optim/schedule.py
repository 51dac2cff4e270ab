"""The base of all schedules: it keeps t and the rates that the groups began with, and sets what a subclass computes."""

from __future__ import annotations

from typing import Any

from minorm.documented import documented
from minorm.mistakes import Checked
from minorm.optim.argument_texts import SCHEDULE
from minorm.optim.optimizer import Optimizer
from minorm.states import check_form, check_number, guarded


@documented(SCHEDULE)
class LRScheduler(Checked):
    """Base of the schedules: a subclass says in `_rate(t, initial)` what the rate at step t is.

    Example:
        >>> class Halved(mn.optim.lr_scheduler.LRScheduler):
        ...     def _rate(self, t, initial):
        ...         return initial / 2**t
        >>> scheduler = Halved(mn.optim.SGD([nn.Parameter(mn.zeros(1))], lr=1.0))
        >>> scheduler.step()
        >>> scheduler.get_last_lr()
        [0.5]
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{self._name}: optimizer is a {type(optimizer).__name__}; expected an Optimizer")
        self.optimizer = optimizer
        for number, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])  # of several schedules all know the first rate
            elif "initial_lr" not in group:
                raise ValueError(
                    f"{self._name}: last_epoch={last_epoch}, but group {number} has no 'initial_lr'; "
                    "load the optimizer's state first, or start with last_epoch=-1"
                )
        self.base_lrs: list[float] = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch + 1
        self._set()

    @property
    def _name(self) -> str:
        return type(self).__name__

    def _rate(self, t: int, initial: float) -> float:
        raise NotImplementedError(f"{self._name} has no _rate")

    def _set(self) -> None:
        for group, initial in zip(self.optimizer.param_groups, self.base_lrs, strict=True):
            group["lr"] = self._rate(self.last_epoch, initial)

    def step(self) -> None:
        """Go to the next t, after an epoch (for OneCycleLR: after each optimizer step)."""
        self.last_epoch += 1
        self._set()

    def get_last_lr(self) -> list[float]:
        """The rate of each group now."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Numbers and lists of numbers; everything but the optimizer."""
        return {name: value for name, value in vars(self).items() if name != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where the schedule that gave this `state_dict()` stood.

        ValueError, and nothing is changed, for that of another schedule.
        """
        operation = f"{self._name}.load_state_dict"
        self._check_state(operation, state_dict)
        before, rates = self.state_dict(), self.get_last_lr()

        def change() -> None:
            self._take(state_dict)
            self._resume()

        def undo() -> None:
            self._take(before)
            for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
                group["lr"] = rate

        guarded(operation, change, undo)

    def _check_state(self, operation: str, state_dict: dict[str, Any]) -> None:
        check_form(operation, state_dict, self.state_dict())
        check_number(operation, "last_epoch", state_dict["last_epoch"], 0, whole=True)
        for name, value in state_dict.items():
            if name.endswith("_lrs") and len(value) != len(self.base_lrs):
                raise ValueError(
                    f"{operation}: {name} has the rates of {len(value)} groups; expected {len(self.base_lrs)}"
                )

    def _resume(self) -> None:
        """The rates of the place that a state has."""
        self._set()

    def _take(self, state_dict: dict[str, Any]) -> None:
        vars(self).update(state_dict)

    def __repr__(self) -> str:
        hidden = ("optimizer", "base_lrs", "schedulers", "lr_lambdas", "scale_fn", "ends", "heights")
        said = [f"{name}={value!r}" for name, value in vars(self).items() if name not in hidden]
        said = [*map(repr, getattr(self, "schedulers", ())), *said]
        return f"{self._name}({', '.join(said)}; lr=[{', '.join(f'{rate:g}' for rate in self.get_last_lr())}])"
