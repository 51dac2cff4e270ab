"""BatchRenorm: a BatchNorm for small batches. With wide clamps for r and d, training computes almost the same as
evaluation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import minorm.functional as F
from minorm.functional.norm.texts import LAYER
from minorm.nn.norm.batch import _Variant
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor

Schedule = float | Callable[[int], float]
LEAST = {"rmax": 1, "dmax": 0}


def default_rmax(step: int) -> float:
    """Return the rmax of Ioffe 2017, which is 1 until step 5,000, and then rises linearly to 3 at step 40,000."""
    return 1 + 2 * min(max((step - 5_000) / 35_000, 0), 1)


def default_dmax(step: int) -> float:
    """Return the dmax of Ioffe 2017, which is 0 until step 5,000, and then rises linearly to 5 at step 25,000."""
    return 5 * min(max((step - 5_000) / 20_000, 0), 1)


_CLAMP = (
    "the bound of {}, at least {}: a number, or a function of the step number, which is 0 at the first call. With a "
    "function the host waits for the GPU in each step, to read num_batches_tracked"
)
_ARGUMENTS = LAYER | {
    "track_running_stats": "True, since r and d need running statistics",
    "rmax": _CLAMP.format("r", 1),
    "dmax": _CLAMP.format("d", 0),
}


class _BatchRenorm(_Variant):
    """r and d are computed from the old running statistics:

        r = clip(std / running_std, 1 / rmax, rmax)      d = clip((mean - running_mean) / running_std, -dmax, dmax)

    r and d correct the statistics of the batch towards the running statistics, which evaluation uses. No gradient flows
    through r and d. The default clamps are the paper's. Until step 5,000 the clamps are rmax = 1 and dmax = 0, which
    gives BatchNorm. Then rmax rises linearly to 3 at step 40,000, and dmax rises to 5 at step 25,000. Evaluation,
    parameters and state_dict are the same as in BatchNorm. The layer takes no mask. y has x's shape and type. See
    `F.batch_renorm`.

    Example:
        >>> layer = nn.{name}(3, rmax=3.0, dmax=5.0)
        >>> layer(mn.randn({shape})).shape
        ({shape})

    Written to ONNX as BatchNormalization (opset 15) in evaluation; training has no ONNX form. Ioffe 2017,
    arXiv:1702.03275.
    """

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
        update_nonfinite: bool = False,
        compute_dtype: Any = None,
        backend: Any = None,
        rmax: Schedule = default_rmax,
        dmax: Schedule = default_dmax,
    ) -> None:
        self._check_tracking(track_running_stats)
        self._check_clamps(rmax=rmax, dmax=dmax)
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias,
            unbiased_running_var=unbiased_running_var, update_nonfinite=update_nonfinite,
            compute_dtype=compute_dtype, backend=backend,
        )  # fmt: skip
        self.rmax, self.dmax = rmax, dmax

    def __setattr__(self, name: str, value: Any) -> None:
        if name in LEAST:
            self._check_clamps(**{name: value})
        super().__setattr__(name, value)

    def _check_tracking(self, track: Any) -> None:
        """Raise ValueError unless track is True, since r and d need running statistics."""
        if not track:
            raise ValueError(
                f"{type(self).__name__}: track_running_stats is {track}; expected True: r and d need running statistics"
            )

    def _check_clamps(self, **clamps: Schedule) -> None:
        name = type(self).__name__
        for clamp, schedule in clamps.items():
            if not callable(schedule) and (isinstance(schedule, bool) or not hasattr(schedule, "__float__")):
                raise TypeError(f"{name}: {clamp} is {schedule!r}; expected a number, or a function of the step")
            if not callable(schedule) and not schedule >= LEAST[clamp]:
                raise ValueError(
                    f"{name}: {clamp}={schedule}; expected at least {LEAST[clamp]}, or a function of the step"
                )

    def normalize(
        self, x: Tensor, mean: Any, var: Any, weight: Any, bias: Any, training: bool, *args: Any, **options: Any
    ) -> Tensor:
        """Call F.batch_renorm. In training, pass the clamps of this step."""
        clamps = self.clamps() if training else ()
        return F.batch_renorm(x, mean, var, weight, bias, training, *args, *clamps, **self._without(options))

    def clamps(self) -> tuple[float, float]:
        """Return rmax and dmax of the next step. num_batches_tracked is the number of steps so far."""
        if not callable(self.rmax) and not callable(self.dmax):
            return self.rmax, self.dmax
        assert self.num_batches_tracked is not None
        step = int(self.num_batches_tracked.item())
        rmax, dmax = (found(step) if callable(found) else found for found in (self.rmax, self.dmax))
        return rmax, dmax

    def extra_repr(self) -> str:
        """Return the options as text for `repr`. If rmax or dmax is a function of the step, the text has the function's
        name.
        """
        rmax, dmax = (getattr(found, "__name__", found) for found in (self.rmax, self.dmax))
        return f"{super().extra_repr()}, rmax={rmax}, dmax={dmax}"


@documented(_ARGUMENTS, base=_BatchRenorm, shape="8, 3, 5")
class BatchRenorm1d(_BatchRenorm):
    """y = ((x - mean) / std * r + d) * weight + bias for x (N, C) or (N, C, L), with mean and std of each channel."""

    ranks, form = (2, 3), "(N, C) or (N, C, L)"


@documented(_ARGUMENTS, base=_BatchRenorm, shape="8, 3, 5, 5")
class BatchRenorm2d(_BatchRenorm):
    """y = ((x - mean) / std * r + d) * weight + bias for x (N, C, H, W), with mean and std of each channel."""

    ranks, form = (4,), "(N, C, H, W)"


@documented(_ARGUMENTS, base=_BatchRenorm, shape="8, 3, 5, 5, 5")
class BatchRenorm3d(_BatchRenorm):
    """y = ((x - mean) / std * r + d) * weight + bias for x (N, C, D, H, W), with mean and std of each channel."""

    ranks, form = (5,), "(N, C, D, H, W)"
