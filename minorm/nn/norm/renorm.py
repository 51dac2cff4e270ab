"""BatchRenorm: BatchNorm for small batches, whose training and evaluation come closer as the clamps open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import minorm.functional as F
from minorm.nn.norm.batch import _Variant
from minorm.tensor import Tensor

Schedule = float | Callable[[int], float]


def default_rmax(step: int) -> float:
    """The paper's: 1 until step 5,000, then linearly to 3 at step 40,000."""
    return 1 + 2 * min(max((step - 5_000) / 35_000, 0), 1)


def default_dmax(step: int) -> float:
    """The paper's: 0 until step 5,000, then linearly to 5 at step 25,000."""
    return 5 * min(max((step - 5_000) / 20_000, 0), 1)


class _BatchRenorm(_Variant):
    def __init__(
        self,
        num_features: int | tuple[int, ...],
        eps: float = 1e-5,
        momentum: float | None = 0.9,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
        unbiased_running_var: bool = False,
        compute_dtype: Any = None,
        backend: Any = None,
        rmax: Schedule = default_rmax,
        dmax: Schedule = default_dmax,
    ) -> None:
        name = type(self).__name__
        if not track_running_stats:
            raise ValueError(f"{name}: track_running_stats is False; expected True: r and d are of running statistics")
        for clamp, schedule, least in (("rmax", rmax, 1), ("dmax", dmax, 0)):
            if not callable(schedule) and (isinstance(schedule, bool) or not hasattr(schedule, "__float__")):
                raise TypeError(f"{name}: {clamp} is {schedule!r}; expected a number, or a function of the step")
            if not callable(schedule) and not schedule >= least:
                raise ValueError(f"{name}: {clamp}={schedule}; expected at least {least}, or a function of the step")
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias,
            unbiased_running_var=unbiased_running_var, compute_dtype=compute_dtype, backend=backend,
        )  # fmt: skip
        self.rmax, self.dmax = rmax, dmax

    def normalize(
        self, x: Tensor, mean: Any, var: Any, weight: Any, bias: Any, training: bool, *args: Any, **options: Any
    ) -> Tensor:
        """F.batch_renorm, with the clamps of this step in training."""
        clamps = self.clamps() if training else ()
        return F.batch_renorm(x, mean, var, weight, bias, training, *args, *clamps, **self._without(options))

    def clamps(self) -> tuple[float, float]:
        """rmax and dmax of the next step: num_batches_tracked is how many there were."""
        if not callable(self.rmax) and not callable(self.dmax):
            return self.rmax, self.dmax
        assert self.num_batches_tracked is not None
        step = int(self.num_batches_tracked.item())
        rmax, dmax = (found(step) if callable(found) else found for found in (self.rmax, self.dmax))
        return rmax, dmax

    def extra_repr(self) -> str:
        """The options; a schedule by its name."""
        rmax, dmax = (getattr(found, "__name__", found) for found in (self.rmax, self.dmax))
        return f"{super().extra_repr()}, rmax={rmax}, dmax={dmax}"


class BatchRenorm1d(_BatchRenorm):
    """y = ((x - mean) / std * r + d) * weight + bias over x (N, C) or (N, C, L), mean and std of each channel.

    r = std / running_std and d = (mean - running_mean) / running_std, clipped to [1 / rmax, rmax] and [-dmax, dmax],
    make of the batch's statistics those that evaluation will use; no gradient flows through them. rmax and dmax are
    numbers, or functions of the step, 0 at the first call; the defaults are the paper's: 1 and 0, which is BatchNorm,
    until step 5,000, then linearly to 3 at 40,000 and to 5 at 25,000. A function is asked with num_batches_tracked, for
    which a GPU must be waited for. Evaluation, parameters, state_dict and the other arguments are BatchNorm1d's. See
    `F.batch_renorm`.
    """

    ranks, form = (2, 3), "(N, C) or (N, C, L)"


class BatchRenorm2d(_BatchRenorm):
    """The same over x (N, C, H, W)."""

    ranks, form = (4,), "(N, C, H, W)"


class BatchRenorm3d(_BatchRenorm):
    """The same over x (N, C, D, H, W)."""

    ranks, form = (5,), "(N, C, D, H, W)"
