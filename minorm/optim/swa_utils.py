"""Averages of weights. AveragedModel computes the averages, update_bn measures the running statistics of an averaged
model, and SWALR lowers the rate.

    averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999))       # the default is the plain mean
    for ...: optimizer.step(); averaged.update_parameters(model)
    update_bn(loader, averaged)

Sources: Polyak and Juditsky 1992; Izmailov et al. 2018, arXiv:1803.05407.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.graph.grad_mode import no_grad
from minorm.nn.module import Module
from minorm.nn.norm.base import RunningNorm
from minorm.nn.utils.running_statistics import norms_of
from minorm.optim.argument_texts import SCHEDULE
from minorm.optim.optimizer import Optimizer
from minorm.optim.schedule import LRScheduler
from minorm.support.documented import documented
from minorm.tensor.memory_formats import lies_like
from minorm.tensor.tensor import Tensor

Average = Callable[[Tensor, Tensor, Any], Tensor]


@documented(
    {},
    model="the model whose weights are averaged; it is copied",
    device="the device of the copy; None is the device of the model",
    avg_fn="a function f(average, weights, n) that returns the new average, after n earlier updates; None is the "
    "plain mean",
    multi_avg_fn="a function like avg_fn for lists of Tensors, which changes the averages in place; not together with "
    "avg_fn",
    use_buffers="True averages the buffers too, except those of frozen layers; False copies the latest buffers",
)
class AveragedModel(Module):
    """Holds a copy of a model, `module`. The copy's weights are the average of the weights given to
    `update_parameters`.

    A call returns the result of the averaged model. Raises ValueError if both avg_fn and multi_avg_fn are given.

    Example:
        >>> model = nn.Linear(1, 1, bias=False)
        >>> averaged = mn.optim.swa_utils.AveragedModel(model)
        >>> for weight in (1.0, 3.0):
        ...     _ = nn.init.constant_(model.weight, weight)
        ...     averaged.update_parameters(model)
        >>> averaged.module.weight.item()
        2.0

    Polyak and Juditsky 1992; Izmailov et al. 2018, arXiv:1803.05407.
    """

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: Average | None = None,
        multi_avg_fn: Callable[[list[Tensor], list[Tensor], Any], None] | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise ValueError("AveragedModel: got both avg_fn and multi_avg_fn; expected one of them")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module.to(device)
        self.register_buffer("n_averaged", Tensor(np.zeros((), np.int64)).to(device=device))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the averaged model's result."""
        return self.module(*args, **kwargs)

    @documented(
        {},
        model="the model whose weights are added to the average; in the first call, the average becomes a "
        "copy of these weights",
    )
    def update_parameters(self, model: Module) -> None:
        """Set average = avg_fn(average, weights, n), where `weights` are the weights of `model`."""
        for ours, theirs in zip(self.module.parameters(), model.parameters(), strict=True):
            if ours.device == theirs.device and ours.shape == theirs.shape:
                ours.set_array(lies_like(ours.array, theirs.array))  # a convolution may have turned its weights since
        fixed = {name for name, part in model.named_modules() if part.frozen}
        averages, latest = (self._averaged(m, fixed) for m in (self.module, model))
        count = int(self.n_averaged.item())
        with no_grad():
            if count == 0:
                _copy(averages, latest)
            elif self.multi_avg_fn is not None:
                self.multi_avg_fn(averages, latest, count)
            else:
                mean = self.avg_fn or (lambda average, value, n: average + (value - average) / (n + 1))
                _copy(averages, [mean(a, b.to(a.device), count) for a, b in zip(averages, latest, strict=True)])
            _copy(*(self._taken_over(m, fixed) for m in (self.module, model)))
        self.n_averaged.fill_(count + 1)

    def _averaged(self, model: Module, fixed: set[str]) -> list[Tensor]:
        """Return the tensors to average: the parameters and, if use_buffers is True, the buffers.

        The buffers of frozen layers are left out, since rounding would change them.
        """
        tensors = [p.detach() for p in model.parameters()]
        return tensors + [b for owner, b in _buffers(model) if owner not in fixed] if self.use_buffers else tensors

    def _taken_over(self, model: Module, fixed: set[str]) -> list[Tensor]:
        """Return the buffers that are copied from the model instead of averaged."""
        return [b for owner, b in _buffers(model) if owner in fixed or not self.use_buffers]


@documented({}, decay="the share of the old average that is kept, 0 to 1")
def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """Return a function that computes average = decay * average + (1 - decay) * weights.

    Raises ValueError for a decay outside 0 to 1.

    Example:
        >>> mn.optim.swa_utils.get_ema_avg_fn(decay=0.9)(mn.tensor([1.0]), mn.tensor([2.0]), 5)
        tensor([1.1])
    """
    _check_decay(decay)
    return lambda average, value, n: average * decay + value * (1 - decay)  # noqa: ARG005


@documented({}, decay="the share of the old average that is kept, 0 to 1")
def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable[[list[Tensor], list[Tensor], Any], None]:
    """Return a function for lists of Tensors: average = decay * average + (1 - decay) * weights, in place.

    Example:
        >>> averages = [mn.tensor([1.0])]
        >>> mn.optim.swa_utils.get_ema_multi_avg_fn(decay=0.9)(averages, [mn.tensor([2.0])], 5)
        >>> averages
        [tensor([1.1])]
    """
    average = get_ema_avg_fn(decay)

    def update(averages: list[Tensor], latest: list[Tensor], n: Any) -> None:
        _copy(averages, [average(a, b.to(a.device), n) for a, b in zip(averages, latest, strict=True)])

    return update


def get_swa_avg_fn() -> Average:
    """Return a function that computes the plain mean: average = average + (weights - average) / (n + 1).

    Example:
        >>> mn.optim.swa_utils.get_swa_avg_fn()(mn.tensor([1.0]), mn.tensor([2.0]), 1)
        tensor([1.5])
    """
    return lambda average, value, n: average + (value - average) / (n + 1)


def get_swa_multi_avg_fn() -> Callable[[list[Tensor], list[Tensor], Any], None]:
    """Return a function for lists of Tensors: average = average + (weights - average) / (n + 1), in place.

    Example:
        >>> averages = [mn.tensor([1.0])]
        >>> mn.optim.swa_utils.get_swa_multi_avg_fn()(averages, [mn.tensor([2.0])], 1)
        >>> averages
        [tensor([1.5])]
    """
    average = get_swa_avg_fn()

    def update(averages: list[Tensor], latest: list[Tensor], n: Any) -> None:
        _copy(averages, [average(a, b.to(a.device), n) for a, b in zip(averages, latest, strict=True)])

    return update


@documented(
    {},
    loader="an iterable of batches; a batch is a Tensor, or a tuple or list that begins with a Tensor",
    model="the model whose running statistics are measured",
    device="the device to which each batch is moved first; None moves nothing",
)
def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Measure a model's running statistics again: running = mean over all batches, with equal weights.

    This is necessary because averaged weights give other activations, so the old statistics are wrong.
    Frozen layers keep their statistics.

    Example:
        >>> model = nn.BatchNorm1d(1)
        >>> mn.optim.swa_utils.update_bn([mn.tensor([[1.0], [3.0]]), mn.tensor([[5.0], [7.0]])], model)
        >>> model.running_mean
        tensor([4.])
    """
    norms = [norm for norm in norms_of(model) if isinstance(norm, RunningNorm)]
    if not norms:
        return
    momenta, modes = [norm.momentum for norm in norms], [(m, m.training) for m in model.modules()]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # None means the average over all batches
    model.train()
    try:
        with no_grad():
            for batch in loader:
                x = batch[0] if isinstance(batch, (list, tuple)) else batch
                model(x if device is None else x.to(device))
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
        for module, training in modes:
            module.training = training


@documented(
    SCHEDULE,
    swa_lr="the final rate, or a list of them, one for each group",
    anneal_epochs="how many epochs the change takes, at least 0",
)
class SWALR(LRScheduler):
    """lr moves from the current rate to swa_lr within anneal_epochs, along a cosine or a line. Then lr stays at swa_lr.

        lr = (1 - a) * start + a * swa_lr,   where a rises from 0 to 1 within anneal_epochs

    Raises ValueError for an unknown strategy.

    Example:
        >>> optimizer = mn.optim.SGD([nn.Parameter(mn.zeros(1))], lr=1.0)
        >>> scheduler = mn.optim.swa_utils.SWALR(optimizer, swa_lr=0.5, anneal_epochs=1)
        >>> scheduler.step()
        >>> scheduler.get_last_lr()
        [0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | list[float],
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"SWALR: anneal_strategy={anneal_strategy!r}; expected 'cos' or 'linear'")
        if anneal_epochs < 0:
            raise ValueError(f"SWALR: anneal_epochs={anneal_epochs}; expected at least 0")
        rates = list(swa_lr) if isinstance(swa_lr, (list, tuple)) else [swa_lr] * len(optimizer.param_groups)
        if len(rates) != len(optimizer.param_groups):
            raise ValueError(
                f"SWALR: swa_lr has {len(rates)} values; expected {len(optimizer.param_groups)}, one for each group"
            )
        self.swa_lrs, self.anneal_epochs, self.anneal_strategy = rates, anneal_epochs, anneal_strategy
        super().__init__(optimizer, last_epoch)

    _takes_over = True

    def _rates(self, t: int, initial: list[float]) -> list[float]:
        part = min(1.0, t / max(1, self.anneal_epochs)) if self.anneal_epochs else 1.0
        alpha = part if self.anneal_strategy == "linear" else (1 - math.cos(math.pi * part)) / 2
        return [rate * alpha + first * (1 - alpha) for first, rate in zip(initial, self.swa_lrs, strict=True)]

    def _next(self, t: int, rates: list[float]) -> list[float]:
        return list(self.swa_lrs) if t >= self.anneal_epochs else super()._next(t, rates)


def _buffers(model: Module) -> list[tuple[str, Tensor]]:
    """Return pairs (path of a module, buffer of this module)."""
    return [(name.rpartition(".")[0], buffer.detach()) for name, buffer in model.named_buffers()]


def _check_decay(decay: float) -> None:
    if not 0 <= decay <= 1:
        raise ValueError(f"get_ema_avg_fn: decay={decay}; expected 0 <= decay <= 1")


def _copy(targets: list[Tensor], values: list[Tensor]) -> None:
    for target, value in zip(targets, values, strict=True):
        target.copy_(value if dtypes.is_float(target.dtype) else value.to(target.dtype))
