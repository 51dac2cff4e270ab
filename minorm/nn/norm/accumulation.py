"""accumulate_stats: all batches in a block update the running statistics once, like a single batch.

Gradient accumulation adds up the gradients of k micro-batches and then takes one step. Without accumulate_stats, the
running statistics would take k steps instead of one, and the running variance would ignore the differences between the
means of the micro-batches. accumulate_stats first merges the moments of all inputs (Chan, Golub and LeVeque 1979): with
n = n_a + n_b, h = n_b / n and t = mean_b - mean_a,

    mean = mean_a + t * h        var = var_a * (1 - h) + var_b * h + t^2 * h * (1 - h)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from minorm import devices
from minorm.nn.module import Module
from minorm.normalization.running import RunningStats, redirected
from minorm.support.argument_errors import checked
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor

Array = Any


class Moments:
    """Merges the parts that `add` gets, and holds the mean, population variance and count of all parts together.

    The mean is stored as the first part's mean plus an offset, which is small even if the data is far from 0.
    `count` is one number, or one number for each channel.
    """

    def __init__(self, per_sample: bool) -> None:
        self.per_sample = per_sample  # a bool: averages over samples; var leaves out how far their means differ
        self.weight: Any = 0  # the number of elements, or of samples with per_sample
        self.count: Any = 0  # the number of elements behind each variance

    @property
    def mean(self) -> Array:
        """The mean of all parts."""
        return self.first + self.offset

    @property
    def rest(self) -> Array:
        """The rounding error of `mean`."""
        return (self.first - self.mean) + self.offset

    def add(self, mean: Array, var: Array, count: Any, samples: int | None, rest: Any) -> None:
        """Merge the moments of one part with the moments so far, in float64. The part's mean is mean + rest."""
        weight = count if samples is None else samples
        if type(self.weight) is int and not self.weight:
            self.first, self.offset, self.var = mean, np.zeros_like(mean) + rest, var
        total = self.weight + weight
        h = weight / np.maximum(total, 1)
        t = ((mean - self.first) + rest) - self.offset
        apart = 0 if self.per_sample else t * t * (h * (1 - h))
        self.offset, self.var = self.offset + t * h, self.var + (var - self.var) * h + apart
        self.count = self.count + (count - self.count) * h if self.per_sample else total
        self.weight = total


class Entry:
    """Holds the running statistics of one layer as Tensors, the options of their update, and the merged moments."""

    def __init__(self, tensors: list[Tensor | None], running: RunningStats, per_sample: bool) -> None:
        self.mean, self.var, self.batches = tensors
        self.running = running
        self.momentum, self.unbiased = running.momentum, running.unbiased
        self.skipped, self.update_nonfinite = running.skipped, running.update_nonfinite
        self.moments = Moments(per_sample)

    def set(self) -> None:
        """Write the merged moments into the running statistics, in place."""
        assert self.mean is not None
        assert self.var is not None
        found = self.moments
        if isinstance(found.weight, int) and found.weight == 0:
            return  # no part was finite
        with devices.on_device_of(self.mean.array):
            for array, new in ((self.mean.array, found.mean), (self.var.array, found.var)):
                array[...] = np.where(found.weight > 0, new, array)
        self.mean.version.count += 1
        self.var.version.count += 1

    def step(self) -> None:
        """Update the running statistics once, with the merged moments, as for a single batch."""
        assert self.mean is not None
        assert self.var is not None
        batches = None if self.batches is None else self.batches.array
        running = RunningStats(
            self.mean.array, self.var.array, self.momentum, self.unbiased, batches, self.skipped, self.update_nonfinite
        )
        found = self.moments
        samples = found.weight if found.per_sample else None
        with devices.on_device_of(running.mean):
            if not isinstance(found.weight, int):  # a mask gives each channel its count, or the count is on a GPU
                running.update_counted(found.mean, found.var, found.count, samples, found.rest)
            else:
                running.update(found.mean, found.var, found.count, samples, found.rest)
        for tensor in (self.mean, self.var, self.batches) if running.changed else ():
            if tensor is not None:
                tensor.version.count += 1


class Collected:
    """Collects the moments of every layer of a model, in the order of first use. An instance is passed to `redirected`,
    which calls the instance in place of each update of running statistics.
    """

    def __init__(self, model: Module) -> None:
        self.model, self.buffers = model, list(model.buffers())
        self.entries: dict[int, Entry] = {}

    def __call__(
        self, running: RunningStats, mean: Array, var: Array, count: Any, samples: int | None, rest: Any
    ) -> bool:
        """If `running` belongs to the model, merge the moments and return True; otherwise return False."""
        if self._tensor(running.mean) is None:  # a lazy layer may have made its buffers in the meantime
            self.buffers = list(self.model.buffers())
        tensors = [self._tensor(array) for array in (running.mean, running.var, running.batches)]
        if tensors[0] is None or tensors[1] is None:
            return False
        entry = self.entries.get(id(tensors[0]))
        if entry is None:
            entry = self.entries[id(tensors[0])] = Entry(tensors, running, samples is not None)
        entry.moments.add(mean, var, count, samples, rest)
        return True

    def owns(self, array: Array) -> bool:
        """Return True if the running mean `array` belongs to the model."""
        if self._tensor(array) is None:
            self.buffers = list(self.model.buffers())
        return self._tensor(array) is not None

    def expect_variance(self, operation: str) -> None:
        """Raise ValueError if all inputs of a layer together have only one value per channel."""
        for entry in self.entries.values():
            found = entry.moments
            alone = not found.per_sample and isinstance(found.count, int) and found.count == 1
            if alone and not entry.running.is_part:
                name = next(name for name, buffer in self.model.named_buffers() if buffer is entry.mean)
                raise ValueError(
                    f"{operation}: all batches together have one value per channel for {name}, and one value has no "
                    "variance; expected more than one value per channel: use more samples, or evaluation mode"
                )

    def _tensor(self, array: Array) -> Tensor | None:
        return next((tensor for tensor in self.buffers if tensor.array is array), None)


@documented({}, model="the Module whose statistics change at the end of the block")
@contextmanager
@checked
def accumulate_stats(model: Module) -> Iterator[None]:
    """running = running * momentum + merged * (1 - momentum), once, at the end of the block.

    `merged` stands for the moments of all inputs that a layer gets in the block, computed as if the inputs were one
    batch. Running statistics and num_batches_tracked get the same values as from this batch, up to 1e-6 in float32 and
    1e-12 in float64. This holds for every layer with running statistics, also with momentum=None, with
    unbiased_running_var=True, and for InstanceNorm. If the model calls a layer twice, both inputs are merged. Calls in
    evaluation, in frozen layers and under `no_stats_update` contribute nothing. If the block raises an error, the
    statistics are unchanged. A block inside a block passes its moments to the outer block. Each thread, and so each
    rank of a distributed run, has separate blocks.

    A micro-batch may have only one value per channel, such as a single sample (1, C). The output is then the bias. At
    the end of the block, ValueError is raised if all micro-batches together have only one value per channel.

    Outputs and gradients do not change: each layer still normalizes each micro-batch with that micro-batch's
    statistics. To normalize by the whole batch, use `SyncBatchNorm` on several ranks of one process; see
    docs/distributed.md. Raises TypeError unless model is a Module.

    Example:
        >>> model = nn.BatchNorm1d(3)
        >>> with nn.accumulate_stats(model):
        ...     for x in mn.randn(4, 8, 3):  # 4 micro-batches
        ...         model(x).sum().backward()
        >>> model.num_batches_tracked.item()  # one batch of 32, not 4 batches of 8
        1
    """
    if not isinstance(model, Module):
        raise TypeError(f"accumulate_stats: model is a {type(model).__name__}; expected an nn.Module")
    found = Collected(model)
    with redirected(found, found.owns):
        yield
    found.expect_variance("accumulate_stats")
    for entry in found.entries.values():
        entry.step()
