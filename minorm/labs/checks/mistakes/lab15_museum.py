"""Typical mistakes in lab 15: the class Right has the right functions, and each subclass has one mistake."""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.labs.judge.recognizing import Recognizer


class Right:
    """The four repaired functions, with a method for each step that can be wrong."""

    def batch_norm(
        self, x: Any, s: Any, b: Any, running_mean: Any, running_var: Any, momentum: float = 0.9, eps: float = 1e-5
    ) -> Any:
        """Normalize with the batch's statistics; return y and the new running statistics."""
        wide, axes = self._wide(x), self._axes(x)
        mean, var = wide.mean(axis=axes), wide.var(axis=axes)
        running_mean, running_var = np.asarray(running_mean), np.asarray(running_var)
        new_mean = self._step(self._wide(running_mean), mean, momentum)
        new_var = self._step(self._wide(running_var), self._var_for_running(var, x), momentum)
        inside = self._statistics_for_y(mean, var, new_mean, new_var)
        y = self._scaled(wide, *inside, s, b, eps)
        y, new_mean, new_var = self._one_value(x, y, new_mean, new_var, running_mean, running_var)
        return y.astype(x.dtype), new_mean.astype(running_mean.dtype), new_var.astype(running_var.dtype)

    def group_norm(self, x: Any, s: Any, b: Any, num_groups: int, eps: float = 1e-5) -> Any:
        """Normalize groups, with a scale for each channel or for each group."""
        groups = self._groups(x, num_groups)
        mean = groups.mean(axis=2, keepdims=True)
        xhat = ((groups - mean) / np.sqrt(self._group_var(groups, mean) + eps)).reshape(x.shape)
        s, b = (self._spread(v, x.shape[1]).reshape(-1, *[1] * (x.ndim - 2)) for v in (s, b))
        return (xhat * s + b).astype(x.dtype)

    def layer_norm(self, x: Any, s: Any, b: Any, axis: int = -1, eps: float = 1e-5) -> Any:
        """Normalize over the axes from `axis` to the last."""
        wide, axes = self._layer_wide(x), self._layer_axes(x, axis)
        c = wide - wide.mean(axis=axes, keepdims=True)
        s, b = self._layer_parameters(s, b)
        return (c / np.sqrt((c * c).mean(axis=axes, keepdims=True) + eps) * s + b).astype(x.dtype)

    def lp_norm(self, x: Any, p: int = 2, axis: int = -1) -> Any:
        """Return x / norm, and 0 where the norm is 0."""
        wide, axis = self._lp_wide(x), self._lp_axis(axis)
        norm = self._root(self._powers(wide, p).sum(axis=axis, keepdims=True), p)
        return (wide / self._guarded(norm)).astype(x.dtype)

    def _wide(self, x: Any) -> Any:
        return x.astype(np.float64)

    def _axes(self, x: Any) -> tuple[int, ...]:
        return (0, *range(2, x.ndim))

    def _step(self, old: Any, new: Any, momentum: float) -> Any:
        return old * momentum + new * (1 - momentum)

    def _var_for_running(self, var: Any, x: Any) -> Any:
        return var

    def _statistics_for_y(self, mean: Any, var: Any, new_mean: Any, new_var: Any) -> tuple[Any, Any]:
        return mean, var

    def _one_value(self, x: Any, y: Any, new_mean: Any, new_var: Any, mean: Any, var: Any) -> tuple[Any, Any, Any]:
        return y, new_mean, new_var

    def _scaled(self, x: Any, mean: Any, var: Any, s: Any, b: Any, eps: float) -> Any:
        mean, var, s, b = (np.reshape(v, (-1, *[1] * (x.ndim - 2))) for v in (mean, var, s, b))
        return (x - mean) / np.sqrt(var + eps) * s + b

    def _groups(self, x: Any, num_groups: int) -> Any:
        return self._wide(x).reshape(len(x), num_groups, -1)

    def _group_var(self, groups: Any, mean: Any) -> Any:
        return ((groups - mean) ** 2).mean(axis=2, keepdims=True)

    def _spread(self, v: Any, channels: int) -> Any:
        return np.repeat(v, channels // len(v))

    def _layer_wide(self, x: Any) -> Any:
        return x.astype(np.float64)

    def _layer_axes(self, x: Any, axis: int) -> tuple[int, ...]:
        return tuple(range(axis % x.ndim, x.ndim))

    def _layer_parameters(self, s: Any, b: Any) -> tuple[Any, Any]:
        return s, b

    def _lp_wide(self, x: Any) -> Any:
        return x.astype(np.float64)

    def _lp_axis(self, axis: int) -> int:
        return axis

    def _powers(self, x: Any, p: int) -> Any:
        return np.abs(x) ** p

    def _root(self, total: Any, p: int) -> Any:
        return total ** (1 / p)

    def _guarded(self, norm: Any) -> Any:
        return np.where(norm == 0, 1, norm)


class Blended(Right):
    """y uses the new running statistics; in training it has to use the batch's statistics"""

    def _statistics_for_y(self, mean: Any, var: Any, new_mean: Any, new_var: Any) -> tuple[Any, Any]:
        return new_mean, new_var


class MomentumReversed(Right):
    """momentum is taken as the share of the new statistics; it has to be the share of the old statistics"""

    def _step(self, old: Any, new: Any, momentum: float) -> Any:
        return old * (1 - momentum) + new * momentum


class GatheredUnbiased(Right):
    """the running variance divides by m - 1, as in PyTorch; here it has to divide by m"""

    def _var_for_running(self, var: Any, x: Any) -> Any:
        m = x.size // x.shape[1]
        return var * m / max(m - 1, 1)


class OneValueLeft(Right):
    """if a channel has a single value, x is returned unchanged; y has to be b, because this value is the mean"""

    def _one_value(self, x: Any, y: Any, new_mean: Any, new_var: Any, mean: Any, var: Any) -> tuple[Any, Any, Any]:
        return (x, mean, var) if x.size == x.shape[1] else (y, new_mean, new_var)


class PositionsForgotten(Right):
    """the statistics are taken over the batch only and then averaged; they have to include the positions"""

    def batch_norm(
        self, x: Any, s: Any, b: Any, running_mean: Any, running_var: Any, momentum: float = 0.9, eps: float = 1e-5
    ) -> Any:
        wide = self._wide(x)
        mean = wide.mean(axis=0).reshape(x.shape[1], -1).mean(axis=1)
        var = wide.var(axis=0).reshape(x.shape[1], -1).mean(axis=1)
        new_mean = self._step(self._wide(running_mean), mean, momentum)
        new_var = self._step(self._wide(running_var), var, momentum)
        y = self._scaled(wide, mean, var, s, b, eps)
        return y.astype(x.dtype), new_mean.astype(running_mean.dtype), new_var.astype(running_var.dtype)


class EpsOutside(Right):
    """eps is added to the standard deviation; it has to be under the root"""

    def _scaled(self, x: Any, mean: Any, var: Any, s: Any, b: Any, eps: float) -> Any:
        mean, var, s, b = (np.reshape(v, (-1, *[1] * (x.ndim - 2))) for v in (mean, var, s, b))
        return (x - mean) / (np.sqrt(var) + eps) * s + b


class ScaleTiled(Right):
    """scales of groups are tiled over the channels; each scale has to be repeated for the channels of its group"""

    def _spread(self, v: Any, channels: int) -> Any:
        return np.tile(v, channels // len(v))


class ScaleOfChannels(Right):
    """there is always one scale for each channel; in version 18 there has to be one for each group"""

    def _spread(self, v: Any, channels: int) -> Any:
        if len(v) != channels:
            raise ValueError(f"operands could not be broadcast together: {len(v)} scales, {channels} channels")
        return v


class VarianceBySquares(Right):
    """the variance is E[x^2] - E[x]^2 in float32, which cancels if the mean is large"""

    def _groups(self, x: Any, num_groups: int) -> Any:
        return x.astype(np.promote_types(x.dtype, np.float32)).reshape(len(x), num_groups, -1)

    def _group_var(self, groups: Any, mean: Any) -> Any:
        return (groups * groups).mean(axis=2, keepdims=True) - mean * mean


class ChannelsGroupedInTurn(Right):
    """channel c goes to group c modulo num_groups; a group has to consist of neighbouring channels"""

    def group_norm(self, x: Any, s: Any, b: Any, num_groups: int, eps: float = 1e-5) -> Any:
        wide = np.moveaxis(self._wide(x).reshape(len(x), -1, num_groups, *x.shape[2:]), 2, 1)
        flat = wide.reshape(len(x), num_groups, -1)
        mean = flat.mean(axis=2, keepdims=True)
        xhat = ((flat - mean) / np.sqrt(self._group_var(flat, mean) + eps)).reshape(wide.shape)
        s, b = (self._spread(v, x.shape[1]).reshape(-1, *[1] * (x.ndim - 2)) for v in (s, b))
        return (np.moveaxis(xhat, 1, 2).reshape(x.shape) * s + b).astype(x.dtype)


class LastAxisAlone(Right):
    """only the last axis is normalized; all axes from `axis` to the last have to be normalized"""

    def _layer_axes(self, x: Any, axis: int) -> tuple[int, ...]:
        return (-1,)


class OneAxis(Right):
    """only `axis` is normalized; all axes from `axis` to the last have to be normalized"""

    def _layer_axes(self, x: Any, axis: int) -> tuple[int, ...]:
        return (axis,)


class FirstRow(Right):
    """the first row of scale and bias is used for all rows"""

    def _layer_parameters(self, s: Any, b: Any) -> tuple[Any, Any]:
        return s.reshape(-1, s.shape[-1])[0], b.reshape(-1, b.shape[-1])[0]


class SquaresOverflow(Right):
    """squares are computed in float32, where the square of 1e20 is infinite"""

    def _layer_wide(self, x: Any) -> Any:
        return x.astype(np.promote_types(x.dtype, np.float32))


class In16Bits(Right):
    """the norm is computed in float16, where the square of 300 is infinite"""

    def _lp_wide(self, x: Any) -> Any:
        return x


class WithoutAbs(Right):
    """with p = 1, x is added up; a norm adds up |x|"""

    def _powers(self, x: Any, p: int) -> Any:
        return x**p


class ZeroOverZero(Right):
    """0 / 0 is computed if the norm is 0; y has to be 0 in this case"""

    def _guarded(self, norm: Any) -> Any:
        return norm


class RootForgotten(Right):
    """x is divided by the sum of squares; it has to be divided by the root of this sum"""

    def _root(self, total: Any, p: int) -> Any:
        return total


class AlwaysLast(Right):
    """`axis` is ignored, and the norm is always taken along the last axis"""

    def _lp_axis(self, axis: int) -> int:
        return -1


RECOGNIZER = Recognizer.of(Right, vars())
