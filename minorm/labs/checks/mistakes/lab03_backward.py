"""Typical mistakes in lab 3: the class Right has the right functions, and each subclass has one mistake."""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.kernels.reference.norm import four, kept, like, parameter_sums, parameters
from minorm.labs.checks.variants.lab03_backward import V, translated
from minorm.labs.judge.recognizing import Recognizer

Axes = tuple[int, ...]


class Right:
    """The right functions of the lab. Those of tasks 3.1 and 3.4 have a method for each step that can be wrong."""

    def graph(self, x: Any, g: Any, axes: Axes, eps: float = 1e-5) -> Any:
        """Return dx for g, the gradient of xhat. The graph is walked step by step from its end to its beginning."""
        m = self._m(x, axes)
        c = x - x.mean(axis=axes, keepdims=True)
        rstd = self._rstd(c, axes, eps)
        dc = self._through_product(g, rstd)
        dvar = self._through_root(self._drstd(g, c, axes), rstd)
        dc = self._joined(dc, self._through_square(c, dvar, m))
        return self._through_mean(dc, axes, m)

    def _m(self, x: Any, axes: Axes) -> Any:
        return np.prod([x.shape[axis] for axis in axes])

    def _rstd(self, c: Any, axes: Axes, eps: float) -> Any:
        return ((c * c).mean(axis=axes, keepdims=True) + eps) ** -0.5

    def _through_product(self, g: Any, rstd: Any) -> Any:
        return g * rstd

    def _drstd(self, g: Any, c: Any, axes: Axes) -> Any:
        return (g * c).sum(axis=axes, keepdims=True)

    def _through_root(self, drstd: Any, rstd: Any) -> Any:
        return -0.5 * rstd**3 * drstd

    def _through_square(self, c: Any, dvar: Any, m: Any) -> Any:
        return 2 * c * dvar / m

    def _joined(self, first: Any, second: Any) -> Any:
        return first + second

    def _through_mean(self, dc: Any, axes: Axes, m: Any) -> Any:
        return dc - dc.sum(axis=axes, keepdims=True) / m

    def three_terms(self, g: Any, xhat: Any, rstd: Any, axes: Axes) -> Any:
        """Compute rstd * (g - mean(g) - xhat * mean(g * xhat))."""
        mean_g = g.mean(axis=axes, keepdims=True)
        mean_gx = (g * xhat).mean(axis=axes, keepdims=True)
        return self._formula(rstd, g, mean_g, xhat, mean_gx)

    def _formula(self, rstd: Any, g: Any, mean_g: Any, xhat: Any, mean_gx: Any) -> Any:
        return rstd * (g - mean_g - xhat * mean_gx)

    def parameter_gradients(self, dy: Any, xhat: Any, axes: Axes) -> Any:
        """Return ds and db."""
        return (dy * xhat).sum(axis=axes), dy.sum(axis=axes)

    def backward(self, nest: Any, dy: Any, x: Any, stats: Any, s: Any, equation: Any, needs: Any = (True, True)) -> Any:
        """Return dx, ds and db as a backend does, with x and dy as views of a nest's four loop axes."""
        x4, dy4 = four(nest, x), four(nest, dy)
        rstd = kept(nest, stats.rstd)
        xhat = self._xhat(nest, x4, stats, rstd)
        slope = kept(nest, equation.slope(stats.var) * np.ones(nest.rows))
        g = self._g(nest, dy4, s)
        mean_g = g.mean(axis=(2, 3), keepdims=True) if self._is_centered(equation) else 0
        mean_gx = self._sloped((g * xhat).mean(axis=(2, 3), keepdims=True), slope)
        dx = like(nest, self._formula(rstd, g, mean_g, xhat, mean_gx), x)
        ds, db = self._sums(nest, dy4, g, xhat, x4)
        return dx, ds.astype(x.dtype), db.astype(x.dtype)

    def _xhat(self, nest: Any, x4: Any, stats: Any, rstd: Any) -> Any:
        return ((x4 - kept(nest, stats.k)) - kept(nest, stats.d)) * rstd

    def _g(self, nest: Any, dy4: Any, s: Any) -> Any:
        return dy4 if s is None else dy4 * parameters(nest, s)

    def _is_centered(self, equation: Any) -> bool:
        return bool(equation.centered)

    def _sloped(self, mean_gx: Any, slope: Any) -> Any:
        return slope * mean_gx

    def _sums(self, nest: Any, dy4: Any, g: Any, xhat: Any, x4: Any) -> Any:
        return parameter_sums(nest, dy4 * xhat), parameter_sums(nest, dy4)


# Task 3.1


class MeanIsConstant(Right):
    """the gradient through the mean is missing; dx has to be dc plus the gradient through the mean"""

    def _through_mean(self, dc: Any, axes: Axes, m: Any) -> Any:
        return dc


class MeanIsAdded(Right):
    """the gradient through the mean has the wrong sign; c is x minus the mean"""

    def _through_mean(self, dc: Any, axes: Axes, m: Any) -> Any:
        return dc + dc.sum(axis=axes, keepdims=True) / m


class MeanNotDivided(Right):
    """the gradient through the mean is not divided by m"""

    def _through_mean(self, dc: Any, axes: Axes, m: Any) -> Any:
        return dc - dc.sum(axis=axes, keepdims=True)


class MeanAlone(Right):
    """only the gradient through the mean is returned, but x also goes into c directly"""

    def _through_mean(self, dc: Any, axes: Axes, m: Any) -> Any:
        return -dc.sum(axis=axes, keepdims=True) / m + 0 * dc


class VarianceIsConstant(Right):
    """the gradient through the variance, or its factor 2 c, is missing; var is the mean of c * c"""

    def _joined(self, first: Any, second: Any) -> Any:
        return first


class ProductIsConstant(Right):
    """the gradient of c through the variance replaces the gradient through c * rstd; the two have to be added"""

    def _joined(self, first: Any, second: Any) -> Any:
        return second


class VarianceSubtracted(Right):
    """the gradient through the variance has the wrong sign; the slope of v**-0.5 is -0.5 * v**-1.5"""

    def _joined(self, first: Any, second: Any) -> Any:
        return first - second


class SquareNotDivided(Right):
    """the gradient of the mean of c * c is not divided by m"""

    def _through_square(self, c: Any, dvar: Any, m: Any) -> Any:
        return 2 * c * dvar


class SquareWithoutTwo(Right):
    """the factor 2 is missing; the gradient of c * c is 2 c"""

    def _through_square(self, c: Any, dvar: Any, m: Any) -> Any:
        return c * dvar / m


class RootWithoutHalf(Right):
    """the factor 1/2 is missing; the slope of v**-0.5 is -0.5 * v**-1.5"""

    def _through_root(self, drstd: Any, rstd: Any) -> Any:
        return -(rstd**3) * drstd


class RootOfFirstPower(Right):
    """rstd is not raised to the third power; the slope of v**-0.5 is -0.5 * v**-1.5, and rstd is v**-0.5"""

    def _through_root(self, drstd: Any, rstd: Any) -> Any:
        return -0.5 * rstd * drstd


class RootOfSecondPower(Right):
    """rstd is squared; the slope of v**-0.5 is -0.5 * v**-1.5, which needs rstd**3"""

    def _through_root(self, drstd: Any, rstd: Any) -> Any:
        return -0.5 * rstd**2 * drstd


class RootNotRaised(Right):
    """the slope of the root lacks rstd; it has to be -0.5 * rstd**3"""

    def _through_root(self, drstd: Any, rstd: Any) -> Any:
        return -0.5 * drstd + 0 * rstd


class RstdNotSummed(Right):
    """the gradient of rstd is not summed over the axes, but all elements of a row use the same rstd"""

    def _drstd(self, g: Any, c: Any, axes: Axes) -> Any:
        return g * c


class RstdAveraged(Right):
    """the gradient of rstd is a mean over the axes; gradients of several uses have to be added"""

    def _drstd(self, g: Any, c: Any, axes: Axes) -> Any:
        return (g * c).mean(axis=axes, keepdims=True)


class RstdWithoutC(Right):
    """the gradient of rstd is the sum of g; the factor c is missing"""

    def _drstd(self, g: Any, c: Any, axes: Axes) -> Any:
        return g.sum(axis=axes, keepdims=True)


class ProductWithoutRstd(Right):
    """the gradient of c is g; the factor rstd is missing"""

    def _through_product(self, g: Any, rstd: Any) -> Any:
        return g


class WrongM(Right):
    """m is the number of all elements; it has to be the number of elements in a row"""

    def _m(self, x: Any, axes: Axes) -> Any:
        return x.size


class EpsForgotten(Right):
    """eps is left out of rstd"""

    def _rstd(self, c: Any, axes: Axes, eps: float) -> Any:
        return (c * c).mean(axis=axes, keepdims=True) ** -0.5


# Task 3.2, and the same formula in 3.4


class WithoutMeanOfG(Right):
    """the term mean(g) is missing"""

    def _formula(self, rstd: Any, g: Any, mean_g: Any, xhat: Any, mean_gx: Any) -> Any:
        return rstd * (g - xhat * mean_gx)


class WithoutMeanOfProduct(Right):
    """the term xhat * mean(g * xhat) is missing, or it is 0 because mean(g) * mean(xhat) is used"""

    def _formula(self, rstd: Any, g: Any, mean_g: Any, xhat: Any, mean_gx: Any) -> Any:
        return rstd * (g - mean_g)


class WithoutRstd(Right):
    """the factor rstd is missing"""

    def _formula(self, rstd: Any, g: Any, mean_g: Any, xhat: Any, mean_gx: Any) -> Any:
        return g - mean_g - xhat * mean_gx


class WithoutXhat(Right):
    """the factor xhat is missing in front of mean(g * xhat)"""

    def _formula(self, rstd: Any, g: Any, mean_g: Any, xhat: Any, mean_gx: Any) -> Any:
        return rstd * (g - mean_g - mean_gx)


class OnlyG(Right):
    """mean and variance are treated as constants, so only rstd * g is left"""

    def _formula(self, rstd: Any, g: Any, mean_g: Any, xhat: Any, mean_gx: Any) -> Any:
        return rstd * g


class ProductAdded(Right):
    """the term xhat * mean(g * xhat) is added instead of subtracted"""

    def _formula(self, rstd: Any, g: Any, mean_g: Any, xhat: Any, mean_gx: Any) -> Any:
        return rstd * (g - mean_g + xhat * mean_gx)


class MeanOfGAdded(Right):
    """the term mean(g) is added instead of subtracted"""

    def _formula(self, rstd: Any, g: Any, mean_g: Any, xhat: Any, mean_gx: Any) -> Any:
        return rstd * (g + mean_g - xhat * mean_gx)


class RstdSquared(Right):
    """dx has the factor rstd twice"""

    def _formula(self, rstd: Any, g: Any, mean_g: Any, xhat: Any, mean_gx: Any) -> Any:
        return rstd**2 * (g - mean_g - xhat * mean_gx)


class DividedByRstd(Right):
    """the bracket is divided by rstd; it has to be multiplied, because rstd is already 1 / std"""

    def _formula(self, rstd: Any, g: Any, mean_g: Any, xhat: Any, mean_gx: Any) -> Any:
        return (g - mean_g - xhat * mean_gx) / rstd


class RstdOfGAlone(Right):
    """parentheses are missing, so rstd multiplies only g"""

    def _formula(self, rstd: Any, g: Any, mean_g: Any, xhat: Any, mean_gx: Any) -> Any:
        return rstd * g - mean_g - xhat * mean_gx


class WrongSign(Right):
    """the sign of dx is wrong"""

    def _formula(self, rstd: Any, g: Any, mean_g: Any, xhat: Any, mean_gx: Any) -> Any:
        return -rstd * (g - mean_g - xhat * mean_gx)


class SumOfG(Right):
    """g is summed, but its mean is needed"""

    def three_terms(self, g: Any, xhat: Any, rstd: Any, axes: Axes) -> Any:
        mean_gx = (g * xhat).mean(axis=axes, keepdims=True)
        return rstd * (g - g.sum(axis=axes, keepdims=True) - xhat * mean_gx)


class SumOfProduct(Right):
    """g * xhat is summed, but its mean is needed"""

    def three_terms(self, g: Any, xhat: Any, rstd: Any, axes: Axes) -> Any:
        mean_g = g.mean(axis=axes, keepdims=True)
        return rstd * (g - mean_g - xhat * (g * xhat).sum(axis=axes, keepdims=True))


class BothSums(Right):
    """g and g * xhat are summed, but their means are needed"""

    def three_terms(self, g: Any, xhat: Any, rstd: Any, axes: Axes) -> Any:
        sum_g, sum_gx = g.sum(axis=axes, keepdims=True), (g * xhat).sum(axis=axes, keepdims=True)
        return rstd * (g - sum_g - xhat * sum_gx)


class AllAxes(Right):
    """`axes` is ignored, and the means are taken over the whole array"""

    def three_terms(self, g: Any, xhat: Any, rstd: Any, axes: Axes) -> Any:
        return super().three_terms(g, xhat, rstd, tuple(range(g.ndim)))


class AxesDropped(Right):
    """keepdims=True is missing in the means, so that they are subtracted along wrong axes or NumPy raises an error"""

    def three_terms(self, g: Any, xhat: Any, rstd: Any, axes: Axes) -> Any:
        return rstd * (g - g.mean(axis=axes) - xhat * (g * xhat).mean(axis=axes))


# Task 3.3


class ParametersAveraged(Right):
    """ds and db are means; they have to be sums, because all elements of a channel use the same parameter"""

    def parameter_gradients(self, dy: Any, xhat: Any, axes: Axes) -> Any:
        return (dy * xhat).mean(axis=axes), dy.mean(axis=axes)


class BiasAveraged(Right):
    """db is a mean; it has to be the sum of dy"""

    def parameter_gradients(self, dy: Any, xhat: Any, axes: Axes) -> Any:
        return (dy * xhat).sum(axis=axes), dy.mean(axis=axes)


class ScaleAveraged(Right):
    """ds is a mean; it has to be the sum of dy * xhat"""

    def parameter_gradients(self, dy: Any, xhat: Any, axes: Axes) -> Any:
        return (dy * xhat).mean(axis=axes), dy.sum(axis=axes)


class ParametersKept(Right):
    """ds and db keep the summed axes (keepdims=True); they have to have the shape of the parameters"""

    def parameter_gradients(self, dy: Any, xhat: Any, axes: Axes) -> Any:
        return (dy * xhat).sum(axis=axes, keepdims=True), dy.sum(axis=axes, keepdims=True)


class ScaleKept(Right):
    """ds keeps the summed axes (keepdims=True); it has to have the shape of s"""

    def parameter_gradients(self, dy: Any, xhat: Any, axes: Axes) -> Any:
        return (dy * xhat).sum(axis=axes, keepdims=True), dy.sum(axis=axes)


class ParametersSwapped(Right):
    """ds and db are returned in the wrong order"""

    def parameter_gradients(self, dy: Any, xhat: Any, axes: Axes) -> Any:
        return super().parameter_gradients(dy, xhat, axes)[::-1]


class ScaleWithoutXhat(Right):
    """ds is the sum of dy; the factor xhat is missing"""

    def parameter_gradients(self, dy: Any, xhat: Any, axes: Axes) -> Any:
        return dy.sum(axis=axes), dy.sum(axis=axes)


class OtherAxes(Right):
    """the sums are taken over the axes that should be kept"""

    def parameter_gradients(self, dy: Any, xhat: Any, axes: Axes) -> Any:
        return super().parameter_gradients(dy, xhat, tuple(i for i in range(dy.ndim) if i not in axes))


class ChannelsAlways(Right):
    """`axes` is ignored, and the sums always run over all axes except axis 1, which is right for BatchNorm only"""

    def parameter_gradients(self, dy: Any, xhat: Any, axes: Axes) -> Any:
        return super().parameter_gradients(dy, xhat, (0, *range(2, dy.ndim)))


# Task 3.4


class ScaleIgnored(Right):
    """g is dy; it has to be dy * s, the gradient of xhat"""

    def _g(self, nest: Any, dy4: Any, s: Any) -> Any:
        return dy4


class ScaleExpected(Right):
    """None is not handled for s; some layers have no scale"""

    def _g(self, nest: Any, dy4: Any, s: Any) -> Any:
        return dy4 * parameters(nest, s)


class AlwaysCentered(Right):
    """the term mean(g) is subtracted although equation.centered is False; RMSNorm subtracts no mean"""

    def _is_centered(self, equation: Any) -> bool:
        return True


class SlopeIgnored(Right):
    """the factor equation.slope is missing; with eps outside the root, the variance's term needs it"""

    def _sloped(self, mean_gx: Any, slope: Any) -> Any:
        return mean_gx


class ShiftDropped(Right):
    """the shift d is left out of xhat; the mean is k + d"""

    def _xhat(self, nest: Any, x4: Any, stats: Any, rstd: Any) -> Any:
        return (x4 - kept(nest, stats.k)) * rstd


class NothingSubtracted(Right):
    """xhat is x * rstd; the mean, k + d, has to be subtracted"""

    def _xhat(self, nest: Any, x4: Any, stats: Any, rstd: Any) -> Any:
        return x4 * rstd


class MeanDropped(Right):
    """only d is subtracted in xhat; the mean is k + d"""

    def _xhat(self, nest: Any, x4: Any, stats: Any, rstd: Any) -> Any:
        return (x4 - kept(nest, stats.d)) * rstd


class ScaleSummedFromG(Right):
    """ds and db are sums of g, which already has the factor s; they have to be sums of dy"""

    def _sums(self, nest: Any, dy4: Any, g: Any, xhat: Any, x4: Any) -> Any:
        return parameter_sums(nest, g * xhat), parameter_sums(nest, g)


class ScaleFromX(Right):
    """ds is the sum of dy * x; it has to be the sum of dy * xhat"""

    def _sums(self, nest: Any, dy4: Any, g: Any, xhat: Any, x4: Any) -> Any:
        return parameter_sums(nest, dy4 * x4), parameter_sums(nest, dy4)


class SumsSwapped(Right):
    """ds and db are returned in the wrong order"""

    def _sums(self, nest: Any, dy4: Any, g: Any, xhat: Any, x4: Any) -> Any:
        return parameter_sums(nest, dy4), parameter_sums(nest, dy4 * xhat)


RECOGNIZER = Recognizer.of(Right, vars(), V, translated)
