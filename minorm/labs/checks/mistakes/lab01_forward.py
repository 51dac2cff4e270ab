"""Typical mistakes in lab 1: the class Right has the right functions, and each subclass has one mistake."""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.kernels.protocol import Statistics
from minorm.kernels.reference.norm import four, like, parameters
from minorm.labs.checks.variants.lab01_forward import V, rstd, translated
from minorm.labs.judge.recognizing import Recognizer

Axes = tuple[int, ...]


class Right:
    """The right functions of the lab. Each uses the earlier functions, so a mistake also changes the later tasks."""

    def moments(self, x: Any, axes: Axes, centered: bool = True) -> Any:
        """Return mean and var over the axes, with the axes kept at length 1."""
        mean = x.mean(axis=axes, keepdims=True) if centered else np.zeros_like(x.mean(axis=axes, keepdims=True))
        return mean, self._var(x, mean, axes)

    def _var(self, x: Any, mean: Any, axes: Axes) -> Any:
        return ((x - mean) ** 2).mean(axis=axes, keepdims=True)

    def normalize(self, x: Any, axes: Axes, eps: float = 1e-5, centered: bool = True) -> Any:
        """Return xhat."""
        mean, var = self.moments(x, axes, centered)
        return (x - mean) * self._rstd(var, eps)

    def _rstd(self, var: Any, eps: float) -> Any:
        return rstd(var, eps)

    def affine(self, xhat: Any, s: Any, b: Any, axis: int) -> Any:
        """Return xhat * s + b."""
        y = xhat if s is None else xhat * self._along(s, xhat, axis)
        return y if b is None else y + self._along(b, xhat, axis)

    def _along(self, parameter: Any, xhat: Any, axis: int) -> Any:
        return parameter.reshape(parameter.shape + (1,) * (xhat.ndim - axis - parameter.ndim))

    def batch_norm(self, x: Any, s: Any = None, b: Any = None, eps: float = 1e-5) -> Any:
        """Normalize each channel."""
        return self.affine(self.normalize(x, self._batch_axes(x.ndim), eps), s, b, 1)

    def _batch_axes(self, ndim: int) -> Axes:
        return (0, *range(2, ndim))

    def instance_norm(self, x: Any, s: Any = None, b: Any = None, eps: float = 1e-5) -> Any:
        """Normalize each channel of each sample."""
        return self.affine(self.normalize(x, self._instance_axes(x.ndim), eps), s, b, 1)

    def _instance_axes(self, ndim: int) -> Axes:
        return tuple(range(2, ndim))

    def group_norm(self, x: Any, num_groups: int, s: Any = None, b: Any = None, eps: float = 1e-5) -> Any:
        """Normalize each group of channels of each sample."""
        split = x.reshape(x.shape[0], num_groups, x.shape[1] // num_groups, *x.shape[2:])
        return self.affine(self.normalize(split, tuple(range(2, split.ndim)), eps).reshape(x.shape), s, b, 1)

    def layer_norm(self, x: Any, normalized_shape: Axes, s: Any = None, b: Any = None, eps: float = 1e-5) -> Any:
        """Normalize over the trailing axes."""
        first = self._first(x, normalized_shape)
        return self.affine(self.normalize(x, tuple(range(first, x.ndim)), eps), s, b, first)

    def _first(self, x: Any, normalized_shape: Axes) -> int:
        return x.ndim - len(normalized_shape)

    def rms_norm(self, x: Any, normalized_shape: Axes, s: Any = None, eps: float = 1e-5) -> Any:
        """Divide x by its root mean square."""
        first = self._first(x, normalized_shape)
        return self.affine(self.normalize(x, tuple(range(first, x.ndim)), eps, False), s, None, first)

    def forward(self, nest: Any, x: Any, s: Any, b: Any, equation: Any) -> Any:
        """Return y and the statistics, as a backend does."""
        x4 = four(nest, x)
        mean, var = self.moments(x4, (2, 3), equation.centered)
        rstd = self._backend_rstd(equation, var)
        y4 = (x4 - mean) * rstd
        y4 = y4 if s is None else y4 * parameters(nest, s)
        y4 = y4 if b is None else y4 + parameters(nest, b)
        mean, var, rstd = (statistic.ravel() for statistic in (mean, var, rstd))
        return like(nest, y4, x), self._statistics(mean, var, rstd)

    def _backend_rstd(self, equation: Any, var: Any) -> Any:
        return equation.rstd(var)

    def _statistics(self, mean: Any, var: Any, rstd: Any) -> Any:
        return Statistics.of(mean, 0 * mean, var, rstd)


# Task 1.1


class DivisorOneLess(Right):
    """the variance is divided by m - 1 instead of m, as with ddof=1"""

    def _var(self, x: Any, mean: Any, axes: Axes) -> Any:
        m = x.size / mean.size
        return ((x - mean) ** 2).sum(axis=axes, keepdims=True) / (m - 1)


class StandardDeviation(Right):
    """the standard deviation is returned instead of the variance (a root too many, or np.std instead of np.var)"""

    def _var(self, x: Any, mean: Any, axes: Axes) -> Any:
        return np.sqrt(super()._var(x, mean, axes))


class NotDivided(Right):
    """the variance is the sum of the squares and not their mean; the division by m is missing"""

    def _var(self, x: Any, mean: Any, axes: Axes) -> Any:
        return ((x - mean) ** 2).sum(axis=axes, keepdims=True)


class NothingDivided(Right):
    """the division by m is missing in both mean and variance"""

    def moments(self, x: Any, axes: Axes, centered: bool = True) -> Any:
        mean = x.sum(axis=axes, keepdims=True) if centered else 0 * x.sum(axis=axes, keepdims=True)
        return mean, ((x - mean) ** 2).sum(axis=axes, keepdims=True)


class MeanSquare(Right):
    """the mean is not subtracted before squaring, so the variance is the mean of x**2"""

    def _var(self, x: Any, mean: Any, axes: Axes) -> Any:
        return (x**2).mean(axis=axes, keepdims=True)


class AbsoluteDeviation(Right):
    """the variance takes absolute values instead of squares: it is the mean of |x - mean|"""

    def _var(self, x: Any, mean: Any, axes: Axes) -> Any:
        return np.abs(x - mean).mean(axis=axes, keepdims=True)


class DividedByAll(Right):
    """the variance is divided by x.size, the number of all elements, not by m, the number of elements in a row"""

    def _var(self, x: Any, mean: Any, axes: Axes) -> Any:
        return ((x - mean) ** 2).sum(axis=axes, keepdims=True) / x.size


class DividedByFirstAxis(Right):
    """the variance is divided by the length of one reduced axis, not by m, the product of all of them"""

    def _var(self, x: Any, mean: Any, axes: Axes) -> Any:
        return ((x - mean) ** 2).sum(axis=axes, keepdims=True) / x.shape[axes[0]]


class MedianForMean(Right):
    """the median is taken instead of the mean"""

    def moments(self, x: Any, axes: Axes, centered: bool = True) -> Any:
        mean = np.median(x, axis=axes, keepdims=True)
        mean = mean if centered else np.zeros_like(mean)
        return mean, self._var(x, mean, axes)


class AxesDropped(Right):
    """keepdims=True is missing, so the reduced axes are gone instead of having length 1"""

    def moments(self, x: Any, axes: Axes, centered: bool = True) -> Any:
        return tuple(part.squeeze(axis=axes) for part in super().moments(x, axes, centered))


class KeepdimsNowhere(Right):
    """keepdims=True is missing, so the reduced axes are gone instead of having length 1"""

    def moments(self, x: Any, axes: Axes, centered: bool = True) -> Any:
        mean = x.mean(axis=axes) if centered else np.zeros_like(x.mean(axis=axes))
        return mean, ((x - mean) ** 2).mean(axis=axes)


class MeanDropped(Right):
    """keepdims=True is missing in the mean only"""

    def moments(self, x: Any, axes: Axes, centered: bool = True) -> Any:
        mean = x.mean(axis=axes) if centered else np.zeros_like(x.mean(axis=axes))
        return mean, ((x - mean) ** 2).mean(axis=axes, keepdims=True)


class OnlyMeanDropped(Right):
    """keepdims=True is missing in the mean only"""

    def moments(self, x: Any, axes: Axes, centered: bool = True) -> Any:
        mean, var = super().moments(x, axes, centered)
        return mean.squeeze(axis=axes), var


class OnlyVarDropped(Right):
    """keepdims=True is missing in the variance only"""

    def moments(self, x: Any, axes: Axes, centered: bool = True) -> Any:
        mean, var = super().moments(x, axes, centered)
        return mean, var.squeeze(axis=axes)


class AllAxes(Right):
    """`axes` is ignored, and mean and variance are taken over the whole array"""

    def moments(self, x: Any, axes: Axes, centered: bool = True) -> Any:
        return super().moments(x, tuple(range(x.ndim)), centered)


class OtherAxes(Right):
    """the means run over the axes that should be kept; they have to run over `axes`"""

    def moments(self, x: Any, axes: Axes, centered: bool = True) -> Any:
        return super().moments(x, tuple(i for i in range(x.ndim) if i not in axes), centered)


class FirstAxisOnly(Right):
    """only the first of the axes is reduced"""

    def moments(self, x: Any, axes: Axes, centered: bool = True) -> Any:
        return super().moments(x, axes[:1], centered)


class LastAxisOnly(Right):
    """only the last of the axes is reduced"""

    def moments(self, x: Any, axes: Axes, centered: bool = True) -> Any:
        return super().moments(x, axes[-1:], centered)


class AlwaysCentered(Right):
    """centered=False is ignored, and the mean is subtracted anyway"""

    def moments(self, x: Any, axes: Axes, centered: bool = True) -> Any:
        return super().moments(x, axes, True)


class NeverCentered(Right):
    """`centered` is ignored: the mean is always 0 and the variance is always the mean square"""

    def moments(self, x: Any, axes: Axes, centered: bool = True) -> Any:
        return super().moments(x, axes, False)


class CenteredReversed(Right):
    """`centered` is used the wrong way round: the mean is subtracted only with centered=False"""

    def moments(self, x: Any, axes: Axes, centered: bool = True) -> Any:
        return super().moments(x, axes, not centered)


class MeanReturned(Right):
    """with centered=False the mean is returned instead of 0; only the variance is right"""

    def moments(self, x: Any, axes: Axes, centered: bool = True) -> Any:
        return x.mean(axis=axes, keepdims=True), super().moments(x, axes, centered)[1]


class VarianceCentered(Right):
    """with centered=False the mean is 0, but the variance still subtracts the mean"""

    def moments(self, x: Any, axes: Axes, centered: bool = True) -> Any:
        return super().moments(x, axes, centered)[0], super().moments(x, axes)[1]


class Swapped(Right):
    """mean and variance are returned in the wrong order"""

    def moments(self, x: Any, axes: Axes, centered: bool = True) -> Any:
        return super().moments(x, axes, centered)[::-1]

    def normalize(self, x: Any, axes: Axes, eps: float = 1e-5, centered: bool = True) -> Any:
        var, mean = self.moments(x, axes, centered)
        return (x - mean) * self._rstd(var, eps)


# Task 1.2


class EpsOutside(Right):
    """eps is added outside the root: 1 / (sqrt(var) + eps)"""

    def _rstd(self, var: Any, eps: float) -> Any:
        return 1 / (np.sqrt(var) + eps)


class EpsForgotten(Right):
    """eps is left out: 1 / sqrt(var)"""

    def _rstd(self, var: Any, eps: float) -> Any:
        return 1 / np.sqrt(var)


class EpsConstant(Right):
    """the argument eps is ignored and its default is always used"""

    def _rstd(self, var: Any, eps: float) -> Any:
        return rstd(var, V.eps)


class EpsSquared(Right):
    """eps is squared: 1 / sqrt(var + eps**2)"""

    def _rstd(self, var: Any, eps: float) -> Any:
        return 1 / np.sqrt(var + eps**2)


class EpsAddedAfterwards(Right):
    """eps is added to 1 / sqrt(var), not to var"""

    def _rstd(self, var: Any, eps: float) -> Any:
        return 1 / np.sqrt(var) + eps


class EpsSubtracted(Right):
    """eps is subtracted from var instead of added"""

    def _rstd(self, var: Any, eps: float) -> Any:
        return 1 / np.sqrt(var - eps)


class RootForgotten(Right):
    """x - mean is divided by var + eps, and the root is missing"""

    def _rstd(self, var: Any, eps: float) -> Any:
        return 1 / (var + eps)


class Multiplied(Right):
    """x - mean is multiplied by sqrt(var + eps) instead of divided by it"""

    def _rstd(self, var: Any, eps: float) -> Any:
        return np.sqrt(var + eps)


class NotSubtracted(Right):
    """the mean is not subtracted, as in x / sqrt(var + eps)"""

    def normalize(self, x: Any, axes: Axes, eps: float = 1e-5, centered: bool = True) -> Any:
        return x * self._rstd(self.moments(x, axes, centered)[1], eps)


class NotNormalized(Right):
    """the mean is subtracted, but the division by sqrt(var + eps) is missing"""

    def _rstd(self, var: Any, eps: float) -> Any:
        return np.ones_like(var)


class MeanDividedAlone(Right):
    """parentheses are missing, as in x - mean / sqrt(var + eps)"""

    def normalize(self, x: Any, axes: Axes, eps: float = 1e-5, centered: bool = True) -> Any:
        mean, var = self.moments(x, axes, centered)
        return x - mean * self._rstd(var, eps)


class CenteredNotPassedOn(Right):
    """normalize does not pass `centered` on to moments"""

    def normalize(self, x: Any, axes: Axes, eps: float = 1e-5, centered: bool = True) -> Any:
        return super().normalize(x, axes, eps, True)


# Task 1.3


class AlignedAtTheEnd(Right):
    """s and b are not moved to their axis, so NumPy aligns them with the last axes"""

    def _along(self, parameter: Any, xhat: Any, axis: int) -> Any:
        return parameter


class AlignedWithChannels(Right):
    """`axis` is ignored, and s and b are always aligned with axis 1"""

    def _along(self, parameter: Any, xhat: Any, axis: int) -> Any:
        return super()._along(parameter, xhat, 1)


class OneAxisOnly(Right):
    """s and b get too many axes of length 1 if they have several axes: the number is right for one axis only"""

    def _along(self, parameter: Any, xhat: Any, axis: int) -> Any:
        return parameter.reshape(parameter.shape + (1,) * (xhat.ndim - axis - 1))


class BiasForgotten(Right):
    """b is not added"""

    def affine(self, xhat: Any, s: Any, b: Any, axis: int) -> Any:
        return super().affine(xhat, s, None, axis)


class ScaleForgotten(Right):
    """xhat is not multiplied by s"""

    def affine(self, xhat: Any, s: Any, b: Any, axis: int) -> Any:
        return super().affine(xhat, None, b, axis)


class ScaleAndBiasSwapped(Right):
    """s and b are swapped: xhat * b + s"""

    def affine(self, xhat: Any, s: Any, b: Any, axis: int) -> Any:
        return super().affine(xhat, b, s, axis)


class BiasFirst(Right):
    """b is added before the multiplication: (xhat + b) * s"""

    def affine(self, xhat: Any, s: Any, b: Any, axis: int) -> Any:
        return super().affine(super().affine(xhat, None, b, axis), s, None, axis)


class OneForScale(Right):
    """the scale is 1 + s, as some libraries store it"""

    def affine(self, xhat: Any, s: Any, b: Any, axis: int) -> Any:
        return super().affine(xhat, None if s is None else 1 + s, b, axis)


class BothNeeded(Right):
    """b is added only if s is given as well"""

    def affine(self, xhat: Any, s: Any, b: Any, axis: int) -> Any:
        return xhat if s is None else super().affine(xhat, s, b, axis)


class ScaleNeedsBias(Right):
    """s and b are applied only if both are given"""

    def affine(self, xhat: Any, s: Any, b: Any, axis: int) -> Any:
        return xhat if s is None or b is None else super().affine(xhat, s, b, axis)


class NoneUnexpected(Right):
    """None is not handled for s or b; each of them may be None"""

    def affine(self, xhat: Any, s: Any, b: Any, axis: int) -> Any:
        return xhat * self._along(s, xhat, axis) + self._along(b, xhat, axis)


# Task 1.4


class BatchOfImages(Right):
    """batch_norm always reduces (0, 2, 3), which only fits images of four axes"""

    of_plain = True

    def _batch_axes(self, ndim: int) -> Axes:
        return (0, 2, 3)


class BatchAxisOnly(Right):
    """batch_norm reduces the batch axis only; all positions of a channel have to share their statistics"""

    def _batch_axes(self, ndim: int) -> Axes:
        return (0,)


class BatchWithoutSamples(Right):
    """batch_norm reduces the positions only; all samples have to share a channel's statistics"""

    def _batch_axes(self, ndim: int) -> Axes:
        return tuple(range(2, ndim))


class InstanceOfImages(Right):
    """instance_norm always reduces (2, 3), which only fits images of four axes"""

    of_plain = True

    def _instance_axes(self, ndim: int) -> Axes:
        return (2, 3)


class InstanceOverBatch(Right):
    """instance_norm reduces the batch axis as well, which makes it batch_norm"""

    def _instance_axes(self, ndim: int) -> Axes:
        return (0, *range(2, ndim))


class InstanceOverChannels(Right):
    """instance_norm reduces the channels, too; each channel of a sample has to have its own statistics"""

    def _instance_axes(self, ndim: int) -> Axes:
        return tuple(range(1, ndim))


class GroupsInterleaved(Right):
    """each group consists of every num_groups-th channel, not of neighbours as in x.reshape(N, G, C // G, ...)"""

    def group_norm(self, x: Any, num_groups: int, s: Any = None, b: Any = None, eps: float = 1e-5) -> Any:
        split = x.reshape(x.shape[0], x.shape[1] // num_groups, num_groups, *x.shape[2:])
        xhat = self.normalize(split, (1, *range(3, split.ndim)), eps)
        return self.affine(xhat.reshape(x.shape), s, b, 1)


class GroupsForSize(Right):
    """num_groups is taken for the number of channels in a group"""

    def group_norm(self, x: Any, num_groups: int, s: Any = None, b: Any = None, eps: float = 1e-5) -> Any:
        return super().group_norm(x, x.shape[1] // num_groups, s, b, eps)


class GroupsShareBatch(Right):
    """group_norm reduces the batch axis as well"""

    def group_norm(self, x: Any, num_groups: int, s: Any = None, b: Any = None, eps: float = 1e-5) -> Any:
        split = x.reshape(x.shape[0], num_groups, x.shape[1] // num_groups, *x.shape[2:])
        xhat = self.normalize(split, (0, *range(2, split.ndim)), eps)
        return self.affine(xhat.reshape(x.shape), s, b, 1)


class GroupsKeepChannels(Right):
    """group_norm does not reduce the channels of a group, which makes it instance_norm"""

    def group_norm(self, x: Any, num_groups: int, s: Any = None, b: Any = None, eps: float = 1e-5) -> Any:
        return self.instance_norm(x, s, b, eps)


class GroupsOfAll(Right):
    """the split into groups has no effect, and each sample is normalized as one group"""

    def group_norm(self, x: Any, num_groups: int, s: Any = None, b: Any = None, eps: float = 1e-5) -> Any:
        return super().group_norm(x, 1, s, b, eps)


class GroupsNotJoined(Right):
    """group_norm does not go back to the shape of x before scale and bias"""

    def group_norm(self, x: Any, num_groups: int, s: Any = None, b: Any = None, eps: float = 1e-5) -> Any:
        split = x.reshape(x.shape[0], num_groups, x.shape[1] // num_groups, *x.shape[2:])
        return self.affine(self.normalize(split, tuple(range(2, split.ndim)), eps), s, b, 1)


class LastAxisNormalized(Right):
    """layer_norm and rms_norm reduce only the last axis, not all axes of normalized_shape"""

    def layer_norm(self, x: Any, normalized_shape: Axes, s: Any = None, b: Any = None, eps: float = 1e-5) -> Any:
        xhat = self.normalize(x, (x.ndim - 1,), eps)
        return self.affine(xhat, s, b, self._first(x, normalized_shape))

    def rms_norm(self, x: Any, normalized_shape: Axes, s: Any = None, eps: float = 1e-5) -> Any:
        xhat = self.normalize(x, (x.ndim - 1,), eps, False)
        return self.affine(xhat, s, None, self._first(x, normalized_shape))


class AllButBatch(Right):
    """layer_norm and rms_norm reduce all axes but the first, not those of normalized_shape"""

    def layer_norm(self, x: Any, normalized_shape: Axes, s: Any = None, b: Any = None, eps: float = 1e-5) -> Any:
        xhat = self.normalize(x, tuple(range(1, x.ndim)), eps)
        return self.affine(xhat, s, b, self._first(x, normalized_shape))

    def rms_norm(self, x: Any, normalized_shape: Axes, s: Any = None, eps: float = 1e-5) -> Any:
        xhat = self.normalize(x, tuple(range(1, x.ndim)), eps, False)
        return self.affine(xhat, s, None, self._first(x, normalized_shape))


class LayerAlongChannels(Right):
    """layer_norm aligns s and b with axis 1; they belong to the last axes, because their shape is normalized_shape"""

    def layer_norm(self, x: Any, normalized_shape: Axes, s: Any = None, b: Any = None, eps: float = 1e-5) -> Any:
        first = self._first(x, normalized_shape)
        return self.affine(self.normalize(x, tuple(range(first, x.ndim)), eps), s, b, 1)

    def rms_norm(self, x: Any, normalized_shape: Axes, s: Any = None, eps: float = 1e-5) -> Any:
        first = self._first(x, normalized_shape)
        return self.affine(self.normalize(x, tuple(range(first, x.ndim)), eps, False), s, None, 1)


class RootMeanSquareCentered(Right):
    """rms_norm subtracts the mean because centered=False is missing"""

    def rms_norm(self, x: Any, normalized_shape: Axes, s: Any = None, eps: float = 1e-5) -> Any:
        first = self._first(x, normalized_shape)
        return self.affine(self.normalize(x, tuple(range(first, x.ndim)), eps), s, None, first)


class RootMeanSquareOfDeviations(Right):
    """rms_norm divides by the standard deviation; it has to divide by the root mean square of x, not of x - mean"""

    def rms_norm(self, x: Any, normalized_shape: Axes, s: Any = None, eps: float = 1e-5) -> Any:
        first = self._first(x, normalized_shape)
        _, var = self.moments(x, tuple(range(first, x.ndim)))
        return self.affine(x * self._rstd(var, eps), s, None, first)


class EpsNotPassedOn(Right):
    """a norm does not pass its eps on to normalize, which then takes the default"""

    def batch_norm(self, x: Any, s: Any = None, b: Any = None, eps: float = 1e-5) -> Any:
        return super().batch_norm(x, s, b, V.eps)

    def instance_norm(self, x: Any, s: Any = None, b: Any = None, eps: float = 1e-5) -> Any:
        return super().instance_norm(x, s, b, V.eps)

    def group_norm(self, x: Any, num_groups: int, s: Any = None, b: Any = None, eps: float = 1e-5) -> Any:
        return super().group_norm(x, num_groups, s, b, V.eps)

    def layer_norm(self, x: Any, normalized_shape: Axes, s: Any = None, b: Any = None, eps: float = 1e-5) -> Any:
        return super().layer_norm(x, normalized_shape, s, b, V.eps)

    def rms_norm(self, x: Any, normalized_shape: Axes, s: Any = None, eps: float = 1e-5) -> Any:
        return super().rms_norm(x, normalized_shape, s, V.eps)


# Task 1.5


class MeanTwice(Right):
    """k and d are both the mean, so k + d is twice the mean; if k is the mean, d has to be 0"""

    def _statistics(self, mean: Any, var: Any, rstd: Any) -> Any:
        return Statistics.of(mean, mean, var, rstd)


class VarianceForRstd(Right):
    """the last statistic is the variance instead of rstd"""

    def _statistics(self, mean: Any, var: Any, rstd: Any) -> Any:
        return Statistics.of(mean, 0 * mean, var, var)


class ShiftOnly(Right):
    """k and d are both 0, so the statistics say that the mean is 0"""

    def _statistics(self, mean: Any, var: Any, rstd: Any) -> Any:
        return Statistics.of(0 * mean, 0 * mean, var, rstd)


class OwnRstd(Right):
    """rstd is computed with a fixed eps of 1e-5; use equation.rstd, which knows eps"""

    def _backend_rstd(self, equation: Any, var: Any) -> Any:
        return 1 / np.sqrt(var + 1e-5)


class BackendAlwaysCentered(Right):
    """forward ignores equation.centered, so it subtracts the mean for RMSNorm as well"""

    def forward(self, nest: Any, x: Any, s: Any, b: Any, equation: Any) -> Any:
        class Centered:
            centered, rstd = True, equation.rstd

        return super().forward(nest, x, s, b, Centered)


class KeptAxesReduced(Right):
    """forward takes the moments over the axes (0, 1) of `four`; they have to be over the last two axes, the row"""

    def forward(self, nest: Any, x: Any, s: Any, b: Any, equation: Any) -> Any:
        x4 = four(nest, x)
        mean, var = self.moments(x4, (0, 1), equation.centered)
        rstd = equation.rstd(var)
        y4 = (x4 - mean) * rstd
        y4 = y4 if s is None else y4 * parameters(nest, s)
        y4 = y4 if b is None else y4 + parameters(nest, b)
        return like(nest, y4, x), Statistics.of(*(v.ravel() for v in (mean, 0 * mean, var, rstd)))


class NoScaleAndBias(Right):
    """forward does not use s and b"""

    def forward(self, nest: Any, x: Any, s: Any, b: Any, equation: Any) -> Any:
        return super().forward(nest, x, None, None, equation)


class FourAxesReturned(Right):
    """y has the four axes of `four` instead of the shape of x; `like` is missing"""

    def forward(self, nest: Any, x: Any, s: Any, b: Any, equation: Any) -> Any:
        y, statistics = super().forward(nest, x, s, b, equation)
        return four(nest, y), statistics


RECOGNIZER = Recognizer.of(Right, vars(), V, translated)
