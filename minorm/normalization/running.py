"""The running statistics for evaluation. RunningStats holds these arrays, and only `update` changes the arrays.

    running = running * momentum + batch * (1 - momentum)

This is ONNX's formula (Keras, Flax and Paddle use it too): momentum is the share of the old value that is kept.
PyTorch's momentum=0.1 is 0.9 here. `momentum=None` gives all batches the same weight:
momentum = batches / (batches + 1). The variance is the population variance (divide by N); `unbiased=True` divides by
N - 1 instead, as PyTorch does.

A NaN or infinite mean or variance would stay in the running value of its channel for ever. Therefore such a batch is
skipped for all channels, and counted as skipped. A batch is also skipped if a running value would overflow its type.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np

import minorm_ext
from minorm.kernels.order import is_in_rows
from minorm.support.decorating import Block


class _Mode(threading.local):
    updating = True  # False inside no_stats_update
    take: Callable[..., bool] | None = None  # inside `redirected`: it gets the moments of a batch first
    owns: Callable[[Any], bool] | None = None  # inside `redirected`: says whether `take` wants them


_mode = _Mode()


class no_stats_update(minorm_ext.Switch, Block):  # type: ignore[misc]  # noqa: N801  used as a function is
    """Leave running statistics unchanged inside the block, for example to compute a forward pass a second time.

    no_stats_update also works as a decorator. Only the thread that runs the block is affected.
    """

    def __init__(self) -> None:
        super().__init__(_mode, {"updating": False})

    def _recreate_cm(self) -> no_stats_update:
        return no_stats_update()  # several threads may run the decorated function at the same time


def is_updating() -> bool:
    """Return False inside `no_stats_update`."""
    return _mode.updating


def redirected(take: Callable[..., bool], owns: Callable[[Any], bool]) -> Any:
    """Call `take` in place of every update inside the block, as take(running, mean, var, count, samples, rest).

    If `take` returns False, the `take` of the outer block is called. If there is no outer block, the statistics are
    updated. owns(array) returns True if `take` handles the updates of this running mean. Only the thread that runs the
    block is affected.
    """

    def inside() -> dict[str, Any]:
        outer_take, outer_owns = _mode.take, _mode.owns
        if outer_take is None or outer_owns is None:
            return {"take": take, "owns": owns}
        return {
            "take": lambda *update: take(*update) or outer_take(*update),
            "owns": lambda array: owns(array) or outer_owns(array),
        }

    return minorm_ext.Switch(_mode, inside)


class RunningStats:
    """The running mean and variance as arrays, changed in place by `update` or by a kernel that computes the same.

    `batches` is an integer array of one element that counts the batches; it may be None unless momentum is None.
    `skipped` is an array of one element that counts the skipped batches, or None. With update_nonfinite=True no batch
    is skipped. `changed` is True after the first write. On a GPU the host does not wait to learn whether a batch is
    finite.
    """

    __slots__ = ("batches", "changed", "mean", "momentum", "skipped", "unbiased", "update_nonfinite", "var")

    def __init__(
        self,
        mean: Any,
        var: Any,
        momentum: float | None = 0.9,
        unbiased: bool = False,
        batches: Any = None,
        skipped: Any = None,
        update_nonfinite: bool = False,
    ) -> None:
        if momentum is None and batches is None:
            raise ValueError(
                "RunningStats: momentum=None averages over all batches and needs the number of batches; pass batches"
            )
        self.mean = mean
        self.var = var
        self.momentum = momentum
        self.unbiased = unbiased
        self.batches = batches
        self.skipped = skipped
        self.update_nonfinite = update_nonfinite
        self.changed = False

    @property
    def is_part(self) -> bool:
        """True if this batch is part of a larger batch, whose moments a block of `redirected` collects."""
        return _mode.owns is not None and _mode.owns(self.mean)

    def update(self, mean: Any, var: Any, count: int, samples: int | None = None, rest: Any = 0.0) -> None:
        """Update the running statistics with the mean and population variance of a batch, each taken over `count`
        elements.

        `samples` is the number of samples, if mean and var are averages over samples with separate statistics. `rest`
        is the rounding error of the mean in float64, which is passed to the `take` of `redirected`; this method does
        not use `rest`. An empty batch changes nothing. After an error nothing has changed, since all values are
        computed before the first value is written. The values are computed in float64 and rounded once.
        """
        if count == 0 or not _mode.updating:
            return
        finite = self._finite(mean, var)
        if _mode.take is not None and _mode.take(self, *_part(finite, mean, var, count, samples, rest)):
            self._skip(finite)
            return
        if finite is _NO:
            self._skip(finite)
            return
        keep, share, share_var = self.rates(count)
        self._write(self.mean * keep + mean * share, self.var * keep + var * share_var, mean, True, finite)

    def update_counted(self, mean: Any, var: Any, count: Any, samples: Any = None, rest: Any = 0.0) -> None:
        """Update the running statistics with statistics under a mask.

        `count` has the shape of mean and var, and holds the number of elements over which each mean and variance was
        taken. See `update` for samples and rest. If mean and var have a leading axis for several samples, they are
        averaged over the samples that have elements. A channel without elements keeps its running value. A batch
        without elements is not counted.
        """
        if not _mode.updating:
            return
        own, seen = mean.ndim > self.mean.ndim, count > 0
        finite = self._finite(mean, var, seen)
        if _mode.take is not None:
            if own and self.unbiased:
                raise NotImplementedError(
                    "RunningStats.update_counted: statistics of each sample with unbiased_running_var=True cannot be "
                    "merged if a mask leaves different numbers of elements in the samples"
                )
            parts = self._parts(mean, var, count, samples, rest, own)
            takes = [_mode.take(self, *_part(finite, *part)) for part in parts]
            if all(takes):
                self._skip(finite)
                return
        if finite is _NO:
            self._skip(finite)
            return
        if self.unbiased:
            var = var * (count / np.maximum(count - 1, 1))
        if own:
            samples = np.maximum(seen.sum(0), 1)
            mean, var, seen = (mean * seen).sum(0) / samples, (var * seen).sum(0) / samples, seen.any(0)
        keep, share, _ = self.rates(1)
        new_mean = np.where(seen, self.mean * keep + mean * share, self.mean)
        new_var = np.where(seen, self.var * keep + var * share, self.var)
        self._write(new_mean, new_var, mean, seen.any(), finite)

    @staticmethod
    def _parts(mean: Any, var: Any, count: Any, samples: Any, rest: Any, own: bool) -> Any:
        """Return a list of tuples, the arguments for each call of `take`. If `own` is True, there is one tuple for each
        sample, since the samples have separate statistics.
        """
        if not own:
            return [(mean, var, count, samples, rest)]
        return [(m, v, n, (n > 0).astype(np.int64), 0.0) for m, v, n in zip(mean, var, count, strict=True)]

    def _finite(self, mean: Any, var: Any, seen: Any = None) -> Any:
        """Return whether a batch with these statistics may update the running statistics: _YES or _NO on the CPU, and a
        boolean array on a GPU.

        `seen` is True for statistics that have elements. If `seen` is None, all statistics have elements.
        """
        if self.update_nonfinite:
            return _YES
        finite = np.isfinite(mean) & np.isfinite(var)
        return _answer((finite if seen is None else finite | ~seen).all())

    def _fits(self, new: Any, old: Any) -> Any:
        """Return True if all new values are finite, so that their type can hold them. A new value is ignored where the
        old value is not finite.
        """
        new, old = (array.astype(np.float64, copy=False) for array in (new, old))
        return (np.isfinite(new) | ~np.isfinite(old)).all()

    def _skip(self, finite: Any, batches: Any = True) -> None:
        """Add 1 to the number of skipped batches, unless `finite` is true."""
        if self.skipped is not None and finite is not _YES:
            self.skipped += 1 if finite is _NO else ~finite & batches

    def _write(self, new_mean: Any, new_var: Any, mean: Any, batches: Any, finite: Any) -> None:
        """Check the new values, store them and count the batch. A batch that is not finite is counted as skipped
        instead.
        """
        if type(self.mean) is np.ndarray and not self._writable():
            raise ValueError(self._read_only())
        with _rounding(self.update_nonfinite):
            new_mean = new_mean.astype(self.mean.dtype, copy=False)
            new_var = new_var.astype(self.var.dtype, copy=False)
        if new_mean.shape != self.mean.shape or new_var.shape != self.var.shape:
            raise ValueError(
                f"RunningStats.update: the batch has statistics of shape {mean.shape}, "
                f"the running mean is {self.mean.shape} and the running variance {self.var.shape}; expected one shape"
            )
        if not self.update_nonfinite:
            finite = _answer(self._fits(new_mean, self.mean) & self._fits(new_var, self.var) & finite)
            self._skip(finite, batches)
            if finite is _NO:
                return
            if finite is not _YES:
                new_mean, new_var = (np.where(finite, *pair) for pair in ((new_mean, self.mean), (new_var, self.var)))
                batches = finite & batches
        self.mean[...] = new_mean
        self.var[...] = new_var
        if self.batches is not None:
            self.batches += batches
        self.changed = True

    def rates(self, count: int) -> tuple[Any, Any, Any]:
        """Return the factors of the old values, of the batch's mean and of the batch's variance. The factors are NumPy
        float64 numbers, so that products are computed in float64.
        """
        if self.momentum is None:
            seen = self.batches.reshape(-1)[0].astype(np.float64)  # not a Python number, so the host need not wait
            keep = seen / (seen + 1)
        else:
            keep = np.float64(self.momentum)
        share = 1.0 - keep
        return keep, share, share * (count / max(count - 1, 1)) if self.unbiased else share

    def _writable(self) -> bool:
        batches = self.batches
        return self.mean.flags.writeable and self.var.flags.writeable and (batches is None or batches.flags.writeable)

    def _read_only(self) -> str:
        arrays = {"running_mean": self.mean, "running_var": self.var, "num_batches_tracked": self.batches}
        name = next(name for name, array in arrays.items() if array is not None and not array.flags.writeable)
        return (
            f"RunningStats.update: {name} is read-only, and training changes it in place; "
            "expected a writable array, such as a copy"
        )

    def is_kernel_ready(self, rows: int) -> bool:
        """Return True if the `forward` of a backend can update these arrays. kernels/protocol.py lists the
        conditions.
        """
        mean, var, batches = self.mean, self.var, self.batches
        is_plain = _is_plain if type(mean) is np.ndarray else is_in_rows  # CuPy's are always aligned and writable
        return (
            _mode.updating
            and _mode.take is None
            and self.momentum is not None
            and mean.dtype == var.dtype
            and mean.size == var.size == rows
            and is_plain(mean)
            and is_plain(var)
            and (batches is None or (batches.dtype.char in "lq" and is_plain(batches)))  # int64
        )


_YES, _NO = True, False


def _answer(finite: Any) -> Any:
    """Return `finite`, which says whether a batch is finite, as _YES or _NO. An array on a GPU is returned unchanged,
    so that the host need not wait.
    """
    return bool(finite) if isinstance(finite, (bool, np.bool, np.ndarray)) else finite


def _part(finite: Any, mean: Any, var: Any, count: Any, samples: Any, rest: Any) -> tuple[Any, ...]:
    """Return the arguments with which `take` is called for a batch. For a skipped batch, the arguments describe a batch
    without elements.
    """
    if finite is _YES:
        return mean, var, count, samples, rest
    if finite is _NO:
        return np.zeros_like(mean), np.zeros_like(var), count * 0, samples if samples is None else samples * 0, 0.0
    told = (value if value is None else np.where(finite, value, 0) for value in (mean, var, count, samples, rest))
    return tuple(told)


def _rounding(nonfinite: bool) -> Any:
    """Silence overflow warnings for a batch that will be skipped. If NumPy is set to raise an error on overflow, the
    error is still raised.
    """
    quiet = not nonfinite and np.geterr()["over"] == "warn"
    return np.errstate(over="ignore") if quiet else nullcontext()


_is_plain = operator.attrgetter("flags.carray")  # NumPy's: contiguous, aligned and writable
