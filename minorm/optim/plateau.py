"""ReduceLROnPlateau: lowers the rate when a number, such as a loss, stops improving."""

from __future__ import annotations

import math
from typing import Any

from minorm.devices import capture
from minorm.optim.argument_texts import SCHEDULE
from minorm.optim.optimizer import Optimizer
from minorm.optim.rates import as_number, set_rate
from minorm.optim.schedule import LRScheduler
from minorm.support.documented import documented


@documented(
    SCHEDULE,
    mode='which way is better: "min" or "max"',
    patience="how many steps without an improvement to wait before the rate changes",
    threshold="how much better the number must be to count as an improvement",
    threshold_mode='whether threshold is relative to the best number ("rel") or absolute ("abs")',
    cooldown="how many steps after a change are not counted",
    min_lr="the lowest rate, or a list of them, one for each group",
    eps="changes of the rate smaller than this are not made",
)
class ReduceLROnPlateau(LRScheduler):
    """lr = lr * factor, whenever the number that `step` gets has not improved for more than `patience` steps.

    Example:
        >>> optimizer = mn.optim.SGD([nn.Parameter(mn.zeros(1))], lr=1.0)
        >>> scheduler = mn.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
        >>> for loss in (3.0, 2.0, 2.0):
        ...     scheduler.step(loss)
        >>> scheduler.get_last_lr()
        [0.1]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | list[float] = 0.0,
        eps: float = 1e-8,
    ) -> None:
        if not factor < 1:
            raise ValueError(f"ReduceLROnPlateau: factor={factor}; expected a number below 1")
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            raise ValueError(f"ReduceLROnPlateau: mode={mode!r}, threshold_mode={threshold_mode!r}; expected 'min' or "
                             "'max', and 'rel' or 'abs'")  # fmt: skip
        self.mode, self.factor, self.patience, self.threshold = mode, factor, patience, threshold
        self.threshold_mode, self.cooldown, self.eps = threshold_mode, cooldown, eps
        count = len(optimizer.param_groups)
        self.min_lrs = list(min_lr) if isinstance(min_lr, (list, tuple)) else [min_lr] * count
        if len(self.min_lrs) != count:
            raise ValueError(f"ReduceLROnPlateau: min_lr has {len(self.min_lrs)} values; expected {count} each")
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad_epochs = self.cooldown_counter = 0
        super().__init__(optimizer)

    def _rates(self, t: int, initial: list[float]) -> list[float]:  # noqa: ARG002
        """Return the current rates, which only `step` changes."""
        return self.get_last_lr()

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Compare this epoch's number `metrics`, such as a loss, with the best number so far.

        If the number has not improved for more than `patience` epochs, lower the rate.
        """
        capture.refuse_number(f"{self._name}.step", "metrics")
        current = float(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self.is_better(current, self.best):
            self.best, self.num_bad_epochs = current, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            for group, least in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
                now = as_number(group["lr"])
                rate = max(now * self.factor, least)
                if now - rate > self.eps:
                    set_rate(group, rate)
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0

    def is_better(self, a: float, best: float) -> bool:
        """Return True if the number `a` is better than `best` by more than the threshold."""
        sign = 1 if self.mode == "min" else -1
        if self.threshold_mode == "rel":
            return (
                sign * a < sign * best * (1 - sign * self.threshold) if math.isfinite(best) else sign * a < sign * best
            )
        return sign * a < sign * best - self.threshold
