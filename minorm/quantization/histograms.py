"""Observers that count the numbers of x in a histogram, so that they can cut off outliers.

With MinMaxObserver, one outlier makes the scale so large that all other numbers lose their precision.
PercentileObserver cuts off the outlier. MSEObserver weighs the error of cutting off against the error of rounding.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from minorm.devices import dtypes
from minorm.functional.arguments import number
from minorm.quantization.observers import EPS, OPTIONS, ObserverBase, qparams
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor


class _Histogram(ObserverBase):
    """Counts the numbers of x in BINS equal parts of the widest range so far."""

    BINS: ClassVar[int] = 2048

    def __init__(
        self,
        dtype: Any = dtypes.uint8,
        symmetric: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        eps: float = EPS,
    ) -> None:
        super().__init__(dtype, symmetric, quant_min, quant_max, eps)
        self.register_buffer("histogram", Tensor(np.zeros(self.BINS, np.float64)))

    def observe(self, array: Any) -> None:
        """Count one batch; if it widens the range, first move the earlier counts to the bins of the wider range."""
        if type(array) is not np.ndarray:
            array = array.get()
        self._need_finite(array)
        low, high = min(float(array.min()), 0.0), max(float(array.max()), 0.0)
        counts = self.histogram.cpu().array
        if self.has_seen:
            before = float(self.min_val.array), float(self.max_val.array)
            low, high = min(low, before[0]), max(high, before[1])
            if (low, high) != before:
                counts = np.histogram(_centres(*before, self.BINS), self.BINS, (low, high), weights=counts)[0]
        high = max(high, low + EPS)
        counts = counts + np.histogram(array, self.BINS, (low, high))[0]
        self._set(np.array(low), np.array(high))
        self.histogram.set_array(counts.astype(np.float64))

    def reset_min_max_vals(self) -> None:
        """Forget all batches."""
        super().reset_min_max_vals()
        self.histogram.set_array(np.zeros(self.BINS))


def _centres(low: float, high: float, bins: int) -> Any:
    return low + (np.arange(bins) + 0.5) * (high - low) / bins


@documented(OPTIONS, percentile="the percentage of numbers that lie between the ends")
class PercentileObserver(_Histogram):
    """Finds two ends between which `percentile` percent of the numbers are; half of the rest is cut off at each end.

    Example:
        >>> observer = mn.quantization.PercentileObserver(percentile=99.0)
        >>> x = observer(mn.cat([mn.linspace(0, 1, 1000), mn.tensor([100.0])]))
        >>> observer.calculate_qparams()[0].item() < 2 / 255
        True
    """

    def __init__(
        self,
        percentile: float = 99.99,
        dtype: Any = dtypes.uint8,
        symmetric: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        eps: float = EPS,
    ) -> None:
        super().__init__(dtype, symmetric, quant_min, quant_max, eps)
        number("PercentileObserver", "percentile", percentile)
        if not 50 < percentile <= 100:
            raise ValueError(f"PercentileObserver: percentile={percentile}; expected above 50, at most 100")
        self.percentile = percentile

    def ends(self) -> tuple[Any, Any]:
        """Return the two ends between which `percentile` percent of the numbers are."""
        low, high = float(self.min_val.array), float(self.max_val.array)
        counts = self.histogram.cpu().array
        cut = (1 - self.percentile / 100) / 2 * counts.sum()
        edges = low + np.arange(self.BINS + 1) * (high - low) / self.BINS
        below = np.concatenate([[0], counts.cumsum()])
        first = int(np.searchsorted(below, cut, "right")) - 1
        last = int(np.searchsorted(below, counts.sum() - cut, "left"))
        return np.float32(edges[first]), np.float32(edges[min(last, self.BINS)])


@documented(OPTIONS)
class MSEObserver(_Histogram):
    """Finds the two ends that minimize the sum over bins of count * (x - fake_quantize(x))^2.

    The ends begin at the least and the largest number, and move to 0 together in 100 steps; the observer takes the best
    step.

    Example:
        >>> observer = mn.quantization.MSEObserver()
        >>> x = observer(mn.randn(1000))
        >>> observer.calculate_qparams()[0].shape
        ()
    """

    STEPS: ClassVar[int] = 100

    def ends(self) -> tuple[Any, Any]:
        """Return the two ends for which the sum of squared rounding errors is least."""
        low, high = float(self.min_val.array), float(self.max_val.array)
        counts, x = self.histogram.cpu().array, _centres(low, high, self.BINS)
        kept = counts > 0
        counts, x = counts[kept], x[kept]

        def error(share: float) -> float:
            ends = np.float32(low * share), np.float32(high * share)
            scale, zero = qparams(*ends, self.quant_min, self.quant_max, self.symmetric, self.dtype, self.eps)
            s, z = float(scale.array), int(zero.array)
            q = np.clip(np.rint(x / s) + z, self.quant_min, self.quant_max)
            return float((counts * ((q - z) * s - x) ** 2).sum())

        best = min((step / self.STEPS for step in range(self.STEPS, 0, -1)), key=error)
        return np.float32(low * best), np.float32(high * best)
