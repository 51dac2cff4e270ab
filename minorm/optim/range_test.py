"""The range test of learning rates: trains for some steps with rising rates, and finds the rate at which the loss falls
fastest.
"""

from __future__ import annotations

import copy
import importlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from minorm.devices import generators
from minorm.graph.grad_mode import no_grad
from minorm.nn import Module
from minorm.nn.utils import clip_grad_norm_
from minorm.optim.optimizer import Optimizer
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor

FIRST = 0.1  # share of the first steps that the search skips, since the loss falls there only by chance
LEAST = 5  # the fewest steps that can show a slope
BELOW = 10  # the rate of the smallest loss is divided by this, since the loss rises soon after it


@documented(
    {},
    rates="the learning rate of each step, rising",
    losses="the loss of each step's batch, before the step",
    smoothed="the moving average of the losses, corrected for its start at 0",
)
@dataclass(frozen=True)
class RangeTest:
    """The result of `lr_finder`: the loss at each rate, and two suggested rates.

    Example:
        >>> test = mn.optim.RangeTest([0.125, 0.5, 2.0], [3.0, 1.0, 9.0], [3.0, 1.0, 9.0])
        >>> test.minimum  # a tenth of 0.5
        0.05
    """

    rates: list[float]
    losses: list[float]
    smoothed: list[float]

    @property
    def steepest(self) -> float | None:
        """The rate at which the smoothed loss falls fastest, on a logarithmic scale of rates.

        The result is None if the loss never falls.
        """
        first, last = self._searched()
        if last - first < LEAST:
            return None
        slopes = np.gradient(self.smoothed[first : last + 1], np.log(self.rates[first : last + 1]))
        place = int(np.argmin(slopes))
        return self.rates[first + place] if slopes[place] < 0 else None

    @property
    def minimum(self) -> float:
        """A tenth of the rate at which the smoothed loss is smallest; above that rate, the loss soon rises."""
        return self.rates[int(np.argmin(self.smoothed))] / BELOW

    @property
    def suggestion(self) -> float | None:
        """The rate `minimum`, for use as the peak of a schedule that rises and falls again. `steepest` is the safer
        choice.

        The result is None if the loss never falls.
        """
        return None if self.steepest is None else self.minimum

    def plot(self) -> Any:
        """Return a matplotlib figure of the loss over the learning rate. The figure marks the suggested rates.

        Raises ImportError if matplotlib is missing.
        """
        plots = importlib.import_module("minorm.plots")  # late: it belongs to a higher layer and needs an extra
        return plots.learning_rates(self)

    def _searched(self) -> tuple[int, int]:
        """Return the first and the last step of the range in which `steepest` searches."""
        return math.ceil(FIRST * len(self.rates)), int(np.argmin(self.smoothed))


@documented(
    {},
    model="a Module, on any device",
    loader="batches (inputs, targets); if there are fewer than num_iter, they are read again from the start",
    loss_function="a function from (outputs, targets) to one number",
    optimizer="the optimizer of the model's parameters; the largest rate rises, and the rates of the other groups "
    "stay in proportion to it",
    start_lr="the rate of the first step",
    end_lr="the rate of the last step",
    num_iter="how many steps, at least 10",
    smoothing="the share of the old average that is kept, 0 to 1",
    diverge_threshold="the test ends early if the smoothed loss is this many times its smallest value; math.inf never "
    "ends it early",
    clip_grad="the largest norm that all gradients together may have, 0 for no limit",
)
def lr_finder(
    model: Module,
    loader: Iterable[Any],
    loss_function: Callable[[Any, Any], Tensor],
    optimizer: Optimizer,
    *,
    start_lr: float = 1e-6,
    end_lr: float = 10.0,
    num_iter: int = 100,
    smoothing: float = 0.9,
    diverge_threshold: float = 4.0,
    clip_grad: float = 0.0,
) -> RangeTest:
    """Train `num_iter` steps at rates that rise from start_lr to end_lr by a constant factor, and return the RangeTest.

    The test ends early if the loss diverges or is not finite. Afterwards, even after an error, everything is restored:
    the model with its gradients and modes, the optimizer, minorm's random numbers and the position of a DataLoader.

    Raises ValueError if the rates or the number of steps are wrong, the loader is empty, or the first loss is not
    finite.

    Example:
        >>> model = nn.Linear(1, 1, bias=False)
        >>> loader = [(mn.tensor([[1.0], [2.0]]), mn.tensor([[3.0], [6.0]]))]  # y = 3 x
        >>> optimizer = mn.optim.SGD(model.parameters(), lr=0.1)
        >>> test = mn.optim.lr_finder(model, loader, nn.MSELoss(), optimizer)
        >>> 0.01 < test.suggestion < 0.4  # from 0.4 on a step makes the loss larger
        True

    Smith 2015, arXiv:1506.01186.
    """
    _check(start_lr, end_lr, num_iter, smoothing, diverge_threshold)
    rates, losses, smoothed = list[float](), list[float](), list[float]()
    average = 0.0
    if hasattr(loader, "load_state_dict"):  # a copy of the loader has a separate position
        loader = copy.copy(loader)
    with _restored_afterwards(model, optimizer):
        shares = _shares(optimizer)
        model.train()
        device = next((p.device for p in model.parameters()), "cpu")
        for i, (inputs, targets) in zip(range(num_iter), _endless_batches(loader), strict=False):
            rate = start_lr * (end_lr / start_lr) ** (i / (num_iter - 1))
            for group, share in zip(optimizer.param_groups, shares, strict=True):
                group["lr"] = rate * share
            loss = loss_function(model(inputs.to(device)), targets.to(device))
            value = loss.item()
            if not math.isfinite(value):
                break
            average = smoothing * average + (1 - smoothing) * value
            rates.append(rate)
            losses.append(value)
            smoothed.append(average / (1 - smoothing ** (i + 1)))
            if smoothed[-1] > diverge_threshold * max(min(smoothed), 0.0):
                break
            optimizer.zero_grad()
            loss.backward()
            if clip_grad:
                clip_grad_norm_(model.parameters(), clip_grad)
            optimizer.step()
    if not rates:
        raise ValueError(
            "lr_finder: the loss of the first batch, before any step, is not finite; expected a finite number"
        )
    return RangeTest(rates, losses, smoothed)


def _check(start_lr: float, end_lr: float, num_iter: int, smoothing: float, diverge_threshold: float) -> None:
    if not 0 < start_lr < end_lr < math.inf:
        raise ValueError(f"lr_finder: start_lr={start_lr}, end_lr={end_lr}; expected 0 < start_lr < end_lr")
    if not isinstance(num_iter, (int, np.integer)) or isinstance(num_iter, bool) or num_iter < 10:
        raise ValueError(f"lr_finder: num_iter={num_iter!r}; expected an int of at least 10")
    if not 0 <= smoothing < 1:
        raise ValueError(f"lr_finder: smoothing={smoothing}; expected a number from 0 to below 1")
    if not diverge_threshold > 1:
        raise ValueError(f"lr_finder: diverge_threshold={diverge_threshold}; expected a number above 1")


def _shares(optimizer: Optimizer) -> list[float]:
    """Return each group's rate divided by the largest rate, or 1 for every group if all rates are 0."""
    rates = [float(group["lr"]) for group in optimizer.param_groups]
    return [rate / max(rates) if max(rates) else 1.0 for rate in rates]


def _endless_batches(loader: Iterable[Any]) -> Iterator[Any]:
    """Yield the batches again and again; an iterator cannot start again, so its batches are yielded only once."""
    for times in itertools.count():
        batch = None
        for batch in loader:
            yield batch
        if batch is None:
            if not times:
                raise ValueError("lr_finder: the loader gave no batch; expected at least one")
            return


@contextmanager
def _restored_afterwards(model: Module, optimizer: Optimizer) -> Iterator[None]:
    """Let the block train the model; restore model and optimizer afterwards, even after an exception."""
    modes = [(module, module.training) for module in model.modules()]
    tensors = {id(x): x for x in [*model.parameters(), *model.buffers()]}
    tensors |= {id(p): p for group in optimizer.param_groups for p in group["params"]}
    values = [(x, x.detach().clone(), x.grad) for x in tensors.values()]
    for x in tensors.values():
        x.grad = None  # steps then write to new gradients
    state = copy.deepcopy(optimizer.state_dict())
    settings = [{name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups]
    try:
        with generators.kept():
            yield
    finally:
        for module, training in modes:
            module.training = training
        with no_grad():
            for x, value, gradient in values:
                x.copy_(value)
                x.grad = gradient
        optimizer.load_state_dict(state)
        for group, setting in zip(optimizer.param_groups, settings, strict=True):
            group.update(setting)  # the same objects: a rate may be a Tensor that the caller changes later
