"""Typical mistakes in lab 18: the class Right has the right functions, and each subclass has one mistake."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from minorm.labs.judge.recognizing import Recognizer

Axis = int | None


class Right:
    """The right functions of the lab, with a method for each step that can be wrong."""

    def fold(self, W: Any, c: Any, mean: Any, var: Any, eps: float, s: Any, b: Any) -> tuple[Any, Any]:
        """Return a W and a (c - mean) + b."""
        a = self._slope(s, var, eps)
        bias = self._folded_bias(a, np.zeros_like(mean) if c is None else c, mean, b)
        return self._folded_weights(W, a).astype(W.dtype), bias.astype(W.dtype)

    def folded_linear(self, x: Any, W: Any, c: Any, mean: Any, var: Any, eps: float, s: Any, b: Any) -> Any:
        """Return the output of the folded layer."""
        weight, bias = self.fold(W, c, *self._statistics(x @ W.T + c, mean, var), eps, s, b)
        return x @ weight.T + bias

    def rounding_bound(
        self, x: Any, W: Any, c: Any, mean: Any, var: Any, eps: float, s: Any, b: Any, u: float = 2.0**-24
    ) -> Any:
        """Compute 2 gamma(n + 7) (|a| (|x| |W| + |c| + |mean|) + |b|)."""
        k = self._roundings(x.shape[1])
        a = np.abs(s) / np.sqrt(var + eps)
        return self._ways() * k * u / (1 - k * u) * (a * self._terms(x, W, c, mean) + np.abs(b))

    def training_line(self, x: Any, W: Any, c: Any, mean: Any, var: Any, eps: float, s: Any, b: Any) -> Any:
        """Return slope and offset."""
        z = x @ W.T + c
        slope = self._line_slope(self._batch_var(z), var, eps)
        return slope, b + s * (z.mean(axis=0) - mean) / np.sqrt(var + eps) - self._carried(slope, b)

    def scale_and_zero(self, low: float, high: float) -> tuple[float, int]:
        """Return scale and zero point."""
        low, high = self._with_zero(low, high)
        scale = (high - low) / self._steps() or 1.0
        return scale, int(np.clip(self._zero(low, scale), -128, 127))

    def quantize(self, x: Any, scale: Any, zero: int = 0, least: int = -128) -> Any:
        """Return q, the integers for x."""
        return self._clipped(self._round(x / scale) + zero, least)

    def dequantize(self, q: Any, scale: Any, zero: int = 0) -> Any:
        """Compute (q - zero) scale."""
        return self._back(q.astype(np.float64), scale, zero)

    def weight_scales(self, W: Any, axis: Axis = 0) -> Any:
        """Compute max |W| / 127."""
        axis = self._axis(axis, W)
        others = None if axis is None else tuple(i for i in range(W.ndim) if i != axis % W.ndim)
        largest = self._largest(W, others, axis is not None)
        return np.where(largest == 0, 1.0, largest / self._most())

    def quantization_bound(self, x: Any, W: Any, x_scale: float, W_scale: Any) -> Any:
        """Return |x| times half a step of the weights, plus |W^| times half a step of x, summed."""
        return self._of_weights(x, W_scale) + self._of_x(W, x_scale, W_scale)

    def gain(self, W: Any) -> Any:
        """Compute max of s^2 / mean of s^2."""
        return self.weight_scales(W, None) ** 2 / np.mean(self.weight_scales(W, 0) ** 2)

    def jumps(self, W: Any, slopes: Any, axis: Axis = 0) -> Any:
        """Count the integer weights that change from one batch to the next."""
        integers = []
        for a in slopes:
            folded = self._folded_weights(W, a)
            integers.append(self.quantize(folded, self.weight_scales(folded, axis), 0, -127))
        return np.array([np.count_nonzero(p != q) for p, q in pairwise(integers)])

    def _slope(self, s: Any, var: Any, eps: float) -> Any:
        return s / np.sqrt(var + eps)

    def _folded_bias(self, a: Any, c: Any, mean: Any, b: Any) -> Any:
        return (c - mean) * a + b

    def _folded_weights(self, W: Any, a: Any) -> Any:
        return W * np.reshape(a, (-1, *[1] * (W.ndim - 1)))

    def _statistics(self, z: Any, mean: Any, var: Any) -> tuple[Any, Any]:
        return mean, var

    def _roundings(self, n: int) -> int:
        return n + 7

    def _ways(self) -> int:
        return 2

    def _terms(self, x: Any, W: Any, c: Any, mean: Any) -> Any:
        return np.abs(x) @ np.abs(W).T + np.abs(c) + np.abs(mean)

    def _batch_var(self, z: Any) -> Any:
        return z.var(axis=0)

    def _line_slope(self, batch: Any, running: Any, eps: float) -> Any:
        return np.sqrt((batch + eps) / (running + eps))

    def _carried(self, slope: Any, b: Any) -> Any:
        return slope * b

    def _with_zero(self, low: float, high: float) -> tuple[float, float]:
        return min(low, 0.0), max(high, 0.0)

    def _steps(self) -> int:
        return 255

    def _zero(self, low: float, scale: float) -> float:
        return float(-128 - np.rint(low / scale))

    def _round(self, x: Any) -> Any:
        return np.rint(x)

    def _clipped(self, q: Any, least: int) -> Any:
        return np.clip(q, least, 127).astype(np.int8)

    def _back(self, q: Any, scale: Any, zero: int) -> Any:
        return (q - zero) * scale

    def _axis(self, axis: Axis, W: Any) -> Axis:
        return axis

    def _largest(self, W: Any, others: Any, keep: bool) -> Any:
        return np.abs(W).max(axis=others, keepdims=keep)

    def _most(self) -> int:
        return 127

    def _of_weights(self, x: Any, W_scale: Any) -> Any:
        return np.abs(x).sum(axis=1, keepdims=True) * W_scale / 2

    def _of_x(self, W: Any, x_scale: float, W_scale: Any) -> Any:
        return x_scale / 2 * (np.abs(W) + W_scale[:, None] / 2).sum(axis=1)


class BiasNotScaled(Right):
    """the layer's bias c is not multiplied by a; it has to be, because BatchNorm scales all of W x + c"""

    def _folded_bias(self, a: Any, c: Any, mean: Any, b: Any) -> Any:
        return c - mean * a + b


class BiasForgotten(Right):
    """the layer's bias c is left out of the folded bias"""

    def _folded_bias(self, a: Any, c: Any, mean: Any, b: Any) -> Any:
        return -mean * a + b


class MeanAdded(Right):
    """running_mean has the wrong sign in the folded bias; it has to be subtracted"""

    def _folded_bias(self, a: Any, c: Any, mean: Any, b: Any) -> Any:
        return (c + mean) * a + b


class NormBiasScaled(Right):
    """BatchNorm's own bias b is multiplied by a as well; it has to be added at the end"""

    def _folded_bias(self, a: Any, c: Any, mean: Any, b: Any) -> Any:
        return (c - mean + b) * a


class EpsLeftOut(Right):
    """eps is left out; a is s / sqrt(var + eps)"""

    def _slope(self, s: Any, var: Any, eps: float) -> Any:
        return s / np.sqrt(var)


class EpsOutside(Right):
    """eps is added to the standard deviation; it has to be under the root"""

    def _slope(self, s: Any, var: Any, eps: float) -> Any:
        return s / (np.sqrt(var) + eps)


class VarianceNotRooted(Right):
    """the weights are divided by the variance; they have to be divided by its root"""

    def _slope(self, s: Any, var: Any, eps: float) -> Any:
        return s / (var + eps)


class ScaleOfNormForgotten(Right):
    """BatchNorm's scale s is left out of a"""

    def _slope(self, s: Any, var: Any, eps: float) -> Any:
        return 1 / np.sqrt(var + eps)


class InputsScaled(Right):
    """W is multiplied by a along its last axis, the inputs; it has to be along the first axis, the output channels"""

    def _folded_weights(self, W: Any, a: Any) -> Any:
        return W * a


class BatchStatisticsFolded(Right):
    """the layer is folded with the batch's statistics; it has to be folded with the running statistics"""

    def _statistics(self, z: Any, mean: Any, var: Any) -> tuple[Any, Any]:
        return z.mean(axis=0), z.var(axis=0)


class RoundingsOfNormForgotten(Right):
    """only the n roundings of the sum are counted; with those of the BatchNorm there are n + 7"""

    def _roundings(self, n: int) -> int:
        return n


class OneWay(Right):
    """the bound covers only one of the two computations; double it, as their errors may have opposite signs"""

    def _ways(self) -> int:
        return 1


class TermsCancel(Right):
    """the bound takes |sum x W|; take absolute values before the sum, because cancelling terms leave their errors"""

    def _terms(self, x: Any, W: Any, c: Any, mean: Any) -> Any:
        return np.abs(x @ W.T) + np.abs(c) + np.abs(mean)


class SlopeUpsideDown(Right):
    """the slope is upside down; it has to be the batch's deviation divided by the running deviation"""

    def _line_slope(self, batch: Any, running: Any, eps: float) -> Any:
        return np.sqrt((running + eps) / (batch + eps))


class BatchUnbiased(Right):
    """the batch's variance divides by N - 1; in the normalization it has to divide by N"""

    def _batch_var(self, z: Any) -> Any:
        return z.var(axis=0, ddof=1)


class OffsetKeepsBias(Right):
    """slope * b is not subtracted from the offset; y_training already includes b"""

    def _carried(self, slope: Any, b: Any) -> Any:
        return b


class ZeroOutOfRange(Right):
    """the range may exclude 0, but then no integer stands for 0, which padding and ReLU produce"""

    def _with_zero(self, low: float, high: float) -> tuple[float, float]:
        return low, high


class RangeOf256(Right):
    """the range is divided by 256; it has to be divided by 255, the number of steps between -128 and 127"""

    def _steps(self) -> int:
        return 256


class ZeroRoundedDown(Right):
    """the zero point is cut off or rounded down; it has to be rounded to the nearest integer"""

    def _zero(self, low: float, scale: float) -> float:
        return float(-128 - np.ceil(low / scale))


class ZeroRoundedUp(Right):
    """the zero point is rounded up; it has to be rounded to the nearest integer"""

    def _zero(self, low: float, scale: float) -> float:
        return float(-128 - np.floor(low / scale))


class ZeroOfBytes(Right):
    """the zero point is that of uint8, whose integers begin at 0; int8 begins at -128"""

    def _zero(self, low: float, scale: float) -> float:
        return float(-np.rint(low / scale))


class ZeroWrongSign(Right):
    """low / scale is added to the zero point; it has to be subtracted, so that low becomes -128"""

    def _zero(self, low: float, scale: float) -> float:
        return float(-128 + np.rint(low / scale))


class HalvesUp(Right):
    """halves are rounded up, as floor(x + 0.5) does; ties have to go to the even integer"""

    def _round(self, x: Any) -> Any:
        return np.floor(x + 0.5)


class CutOff(Right):
    """numbers are cut off towards 0; they have to be rounded to the nearest integer"""

    def _round(self, x: Any) -> Any:
        return np.trunc(x)


class WrapsAround(Right):
    """q is not clipped, so 128 becomes -128 in int8"""

    def _clipped(self, q: Any, least: int) -> Any:
        return q.astype(np.int64).astype(np.int8)


class LeastIgnored(Right):
    """`least` is ignored, and q is clipped to -128"""

    def _clipped(self, q: Any, least: int) -> Any:
        return np.clip(q, -128, 127).astype(np.int8)


class ZeroAddedBack(Right):
    """zero is subtracted after the multiplication; it has to be (q - zero) * scale"""

    def _back(self, q: Any, scale: Any, zero: int) -> Any:
        return q * scale - zero


class WrongAxis(Right):
    """the largest weight is taken over the channels; it has to be taken within each channel"""

    def _axis(self, axis: Axis, W: Any) -> Axis:
        return axis if axis is None else (1 if axis % W.ndim == 0 else 0)


class SignsIgnored(Right):
    """the largest weight is taken with its sign; a negative weight can be larger, so take max |W|"""

    def _largest(self, W: Any, others: Any, keep: bool) -> Any:
        return W.max(axis=others, keepdims=keep)


class ScaleOf128(Right):
    """the largest weight is divided by 128; it has to be divided by 127, the largest integer"""

    def _most(self) -> int:
        return 128


class InputsAreExact(Right):
    """the error of x is left out of the bound, but x is rounded as well"""

    def _of_x(self, W: Any, x_scale: float, W_scale: Any) -> Any:
        return np.zeros(len(W))


class WeightsAreExact(Right):
    """the error of the weights is left out of the bound"""

    def _of_weights(self, x: Any, W_scale: Any) -> Any:
        return np.zeros((len(x), 1))


class BoundCancels(Right):
    """the bound takes |sum x|; it has to take sum |x|, because the errors of the weights have different signs"""

    def _of_weights(self, x: Any, W_scale: Any) -> Any:
        return np.abs(x.sum(axis=1, keepdims=True)) * W_scale / 2


class GainOfSteps(Right):
    """the gain compares steps; it has to compare their squares, which the mean square error depends on"""

    def gain(self, W: Any) -> Any:
        return self.weight_scales(W, None) / np.mean(self.weight_scales(W, 0))


class GainUpsideDown(Right):
    """the gain is upside down; the error with one scale for all has to be the numerator"""

    def gain(self, W: Any) -> Any:
        return 1 / super().gain(W)


class JumpsSummed(Right):
    """the jumps of all batches are added up; the answer needs one number for each pair of neighbours"""

    def jumps(self, W: Any, slopes: Any, axis: Axis = 0) -> Any:
        return super().jumps(W, slopes, axis).sum()


class ScaleOfFirstBatch(Right):
    """the scale of the first batch is kept; the folded weights of each batch have to have their own scale"""

    def jumps(self, W: Any, slopes: Any, axis: Axis = 0) -> Any:
        scale = self.weight_scales(self._folded_weights(W, slopes[0]), axis)
        integers = [self.quantize(self._folded_weights(W, a), scale, 0, -127) for a in slopes]
        return np.array([np.count_nonzero(p != q) for p, q in pairwise(integers)])


RECOGNIZER = Recognizer.of(Right, vars())
