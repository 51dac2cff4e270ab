"""The base of all schedules: it holds t and each group's first rate, and sets the rates that a subclass computes.

A subclass has a formula that computes the rate at t from the first rate. If another schedule or the user has set the
current rate, the schedule must continue from the current rate. So the base class replaces the first rate by the number
from which the formula gives the current rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from minorm.devices import capture
from minorm.optim.argument_texts import SCHEDULE
from minorm.optim.optimizer import Optimizer
from minorm.optim.rates import as_number, set_rate
from minorm.support.argument_errors import Checked
from minorm.support.documented import documented
from minorm.support.states import check_form, check_number, guarded


@documented(SCHEDULE)
class LRScheduler(Checked):
    """Base of the schedules. As in PyTorch, a subclass defines `get_lr`, which returns the rate of each group.

    When `get_lr` is called, `last_epoch` is already the new t, but the groups still have the rates of the previous
    step.

    Example:
        >>> class Halved(mn.optim.lr_scheduler.LRScheduler):
        ...     def get_lr(self):
        ...         return [initial / 2**self.last_epoch for initial in self.base_lrs]
        >>> scheduler = Halved(mn.optim.SGD([nn.Parameter(mn.zeros(1))], lr=1.0))
        >>> scheduler.step()
        >>> scheduler.get_last_lr()
        [0.5]
    """

    _is_combined = False  # True: made of other schedules; it can only go from t to t + 1
    _absolute = False  # True: only t decides the rate; a rate that something else has set is overwritten
    _takes_over = False  # True: in a SequentialLR it begins with the current rate, not the initial one

    _decided: ClassVar[frozenset[str]] = frozenset()  # arguments that must not change once the schedule is made

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{self._name}: optimizer is a {type(optimizer).__name__}; expected an Optimizer")
        self.optimizer = optimizer
        for number, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", as_number(group["lr"]))  # several schedules of one optimizer share it
            elif "initial_lr" not in group:
                raise ValueError(
                    f"{self._name}: last_epoch={last_epoch}, but group {number} has no 'initial_lr'; "
                    "load the optimizer's state first, or start with last_epoch=-1"
                )
        self.base_lrs: list[float] = [group["initial_lr"] for group in optimizer.param_groups]
        self.start_lrs = list(self.base_lrs) if self._absolute or last_epoch >= 0 else self.get_last_lr()
        self.last_epoch = last_epoch + 1
        resumed = last_epoch >= 0 and not self._absolute  # the current rates are already those of last_epoch + 1
        self._set_rates_and_others(self.get_last_lr() if resumed else self._rates_at(self.last_epoch, self.start_lrs))

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._decided and name in self.__dict__:
            raise ValueError(
                f"{self._name}.{name} = {value!r}: a schedule's settings are fixed when the schedule is made; expected "
                f"a new {self._name} with {name}={value!r}"
            )
        object.__setattr__(self, name, value)

    @property
    def _name(self) -> str:
        return type(self).__name__

    def _rate(self, t: int, initial: float) -> float:
        raise NotImplementedError(f"{self._name} has no _rate")

    def _rates(self, t: int, initial: list[float]) -> list[float]:
        """Return the rate of each group at t, which the formula computes from the first rates `initial`."""
        return [self._rate(t, rate) for rate in initial]

    def _follow(self, t: int, rates: list[float]) -> list[float]:
        """Return the rates at t. The new rates continue from the current rates `rates`, unless the formula needs only
        t.
        """
        return self._rates(t, self.base_lrs) if self._absolute else self._next(t, rates)

    def _next(self, t: int, rates: list[float]) -> list[float]:
        """Return the rates at t, if `rates` are the rates at t - 1.

        If nothing else has set a rate, the new rate is computed from t and start_lrs, so a resumed run gives the same
        bits. If something else has set a rate, start_lrs is replaced by the first rate from which the formula gives the
        set rate at t - 1.
        """
        before, after = self._rates(t - 1, self.start_lrs), self._rates(t, self.start_lrs)
        if rates == before and self.start_lrs == self.base_lrs:
            return after
        self.start_lrs, lost = self._starts(t - 1, rates)
        before, after = self._rates(t - 1, self.start_lrs), self._rates(t, self.start_lrs)
        for i, rate in enumerate(rates):
            if before[i] == after[i]:  # this step changes nothing
                after[i] = rate
            elif lost[i]:
                after[i] += rate - before[i]
        return after

    def _starts(self, t: int, rates: list[float]) -> tuple[list[float], list[bool]]:
        """Return the first rates from which the formula gives `rates` at t, and a list of bools. A bool is True if no
        such first rate exists.

        For every schedule the rate is linear in the first rate: rate(t) = offset + slope * start. At eta_min the slope
        is 0. Then the schedule continues with the group's first rate, as in PyTorch.
        """
        now = self._rates(t, self.start_lrs)
        offsets, ends = (self._rates(t, [start] * len(rates)) for start in (0.0, 1.0))
        starts, lost = list(self.start_lrs), [end == offset for end, offset in zip(ends, offsets, strict=True)]
        for i, rate in enumerate(rates):
            if lost[i]:
                starts[i] = self.base_lrs[i]
            elif rate != now[i]:
                starts[i] = (rate - offsets[i]) / (ends[i] - offsets[i])
        return starts, lost

    def get_lr(self) -> list[float]:
        """Return the rate of each group at `last_epoch`, which step() sets; a subclass may override this method."""
        if self.last_epoch == 0:
            return self._rates(0, self.start_lrs)
        return self._follow(self.last_epoch, self.get_last_lr())

    @property
    def _is_asked(self) -> bool:
        """True if a subclass overrides get_lr."""
        return type(self).get_lr is not LRScheduler.get_lr

    def _asked(self, t: int, rates: list[float]) -> list[float]:
        """Return the rates that an overridden get_lr computes for t. During the call of get_lr, `last_epoch` is t, and
        the groups have the rates `rates`.
        """
        before, place = self.get_last_lr(), self.last_epoch
        self.last_epoch = t
        self._set_rates(rates)
        try:
            found = list(self.get_lr())
        finally:
            self.last_epoch = place
            self._set_rates(before)
        if len(found) != len(rates):
            raise ValueError(
                f"{self._name}.get_lr: the result has {len(found)} rates; expected {len(rates)}, one for each group"
            )
        return found

    def _rates_at(self, t: int, initial: list[float]) -> list[float]:
        return self._asked(t, initial) if self._is_asked else self._rates(t, initial)

    def _next_at(self, t: int, rates: list[float]) -> list[float]:
        return self._asked(t, rates) if self._is_asked else self._next(t, rates)

    def _start(self, rates: list[float]) -> list[float]:
        """Return the rates at t = 0, if this schedule follows another schedule whose last rates are `rates`."""
        self.start_lrs = list(rates if self._takes_over else self.base_lrs)
        return self._asked(0, rates) if self._is_asked else self._rates(0, self.start_lrs)

    def _after(self, t: int, rates: list[float]) -> list[float]:
        """Return the rates that step() sets at t. `rates` are the current rates. A get_lr that is overridden decides
        the result.
        """
        return self._asked(t, rates) if self._is_asked else self._follow(t, rates)

    def _go(self, t: int) -> None:
        self.last_epoch = t

    def _set_rates_and_others(self, rates: list[float]) -> None:
        self._set_rates(rates)
        self._set_others()

    def _set_rates(self, rates: list[float]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            set_rate(group, rate)

    def _set_others(self) -> None:
        """Set the values that change with the rates, such as the momentum."""

    @documented({}, epoch="the t to go to; None is the next t")
    def step(self, epoch: float | None = None) -> None:
        """Go to the next t, or to t = epoch. Call `step` after each epoch; for OneCycleLR, call it after each step of
        the optimizer.

        During the capture of a CUDA graph, the call does nothing now; each replay of the graph goes to the next t.
        """
        if epoch is not None:
            self._jump(epoch)
            return
        if capture.noted(self.step):
            return
        t = self.last_epoch + 1
        rates = self._after(t, self.get_last_lr())
        self._go(t)
        self._set_rates_and_others(rates)

    def _jump(self, epoch: float) -> None:
        """Go to any t and set the rates by the formula, even if something else has set the current rates."""
        capture.refuse_number(f"{self._name}.step", "epoch")
        if self._is_combined:
            raise TypeError(
                f"{self._name}.step: epoch is {epoch!r}; expected step() without an epoch, because this schedule can "
                "only go to the next t"
            )
        check_number(f"{self._name}.step", "epoch", epoch, 0)
        rates = self._at_once(epoch, self.get_last_lr())
        self.start_lrs = list(self.base_lrs)
        self._go(epoch)  # type: ignore[arg-type]
        self._set_rates_and_others(rates)

    def _at_once(self, t: float, rates: list[float]) -> list[float]:
        """Return the rates that a jump to t sets. `rates` are the current rates. A get_lr that is overridden decides
        the result.
        """
        return self._asked(t, rates) if self._is_asked else self._rates(t, self.base_lrs)  # type: ignore[arg-type]

    def get_last_lr(self) -> list[float]:
        """Return the current rate of each group."""
        return [as_number(group["lr"]) for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Return the state without the optimizer, as numbers and lists of numbers; `last_lrs` has the current rates."""
        return {**self._settings(), "last_lrs": self.get_last_lr()}

    def _settings(self) -> dict[str, Any]:
        """Return the state without the current rates."""
        return {name: value for name, value in vars(self).items() if name != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a state that another schedule's `state_dict()` returned, and set the optimizer to the state's
        rates.

        If the state is that of another kind of schedule, raise ValueError and change nothing.
        """
        operation = f"{self._name}.load_state_dict"
        self._check_state(operation, state_dict)
        before, rates = self._settings(), self.get_last_lr()

        def change() -> None:
            self._take(state_dict)
            now = self._rates_at(self.last_epoch, self.start_lrs)  # raises if the numbers belong to no schedule
            self._set_rates_and_others(state_dict.get("last_lrs", now))

        def undo() -> None:
            self._take(before)
            self._set_rates(rates)

        guarded(operation, change, undo)

    def _check_state(self, operation: str, state_dict: dict[str, Any]) -> None:
        wanted = self.state_dict()
        if isinstance(state_dict, Mapping):  # an older state has only base_lrs, which was enough then
            wanted = {k: v for k, v in wanted.items() if k in state_dict or k not in ("start_lrs", "last_lrs")}
        check_form(operation, state_dict, wanted)
        check_number(operation, "last_epoch", state_dict["last_epoch"], 0, whole=True)
        for name, value in state_dict.items():
            if name.endswith("_lrs") and len(value) != len(self.base_lrs):
                raise ValueError(
                    f"{operation}: {name} has the rates of {len(value)} groups; expected {len(self.base_lrs)}"
                )

    def _take(self, state_dict: dict[str, Any]) -> None:
        taken = {name: value for name, value in state_dict.items() if name != "last_lrs"}
        taken["start_lrs"] = list(state_dict.get("start_lrs", state_dict.get("base_lrs", self.base_lrs)))
        vars(self).update(taken)

    def __repr__(self) -> str:
        hidden = ("optimizer", "base_lrs", "start_lrs", "schedulers", "lr_lambdas", "factors", "scale_fn", "ends",
                  "heights")  # fmt: skip
        said = [f"{name}={value!r}" for name, value in vars(self).items() if name not in hidden]
        said = [*map(repr, getattr(self, "schedulers", ())), *said]
        return f"{self._name}({', '.join(said)}; lr=[{', '.join(f'{rate:g}' for rate in self.get_last_lr())}])"


def set_momentum(optimizer: Optimizer, momentum: float) -> None:
    """Set the momentum of all groups, which is beta1 in Adam."""
    for group in optimizer.param_groups:
        if "betas" in group:
            group["betas"] = (momentum, *group["betas"][1:])
        else:
            group["momentum"] = momentum
