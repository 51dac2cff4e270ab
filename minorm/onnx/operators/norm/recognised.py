"""Layers that use minorm's kernels for a GroupNorm, LayerNorm or RMSNorm that a file writes as other operators.

If the data do not have the form of the file (a batch of another length, say), the layer computes the file's nodes one
by one.
"""

from __future__ import annotations

import math

import minorm.functional as F
from minorm.onnx.graph.node_layers import NormLayer, Written
from minorm.onnx.operators.shape.shape import reshaped
from minorm.ops.operands import axis_of
from minorm.tensor.tensor import Tensor


class GroupNorm(NormLayer):
    """y = (x - mean) / sqrt(var + eps) * weight + bias for x (N, C, *); each group of a sample has one mean and var."""

    def __init__(self, eps: float, how: Written) -> None:
        super().__init__(eps, how)
        self.num_groups = how.groups[1]

    def forward(self, x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
        """x (N, C, *) -> y of the same shape"""
        if self._is_usual(x):
            scale, shift = (None if p is None else p.reshape(-1) for p in (weight, bias))
            return F.group_norm(x, self.num_groups, scale, shift, self.eps)
        groups, back = reshaped(x, self.how.groups), x.shape if self.how.shape is None else self.how.shape
        if self.how.per_group:
            return reshaped(F.group_norm(groups, self.num_groups, weight, bias, self.eps), back)
        return _affine(reshaped(F.group_norm(groups, self.num_groups, eps=self.eps), back), weight, bias, self.how)

    def _is_usual(self, x: Tensor) -> bool:
        """Return True if the nodes split exactly the channels of x into groups, and restore x's axes."""
        batch, groups, *rest = self.how.groups
        if x.ndim < 2 or 0 in x.shape or x.shape[1] % groups or batch not in (0, x.shape[0]):
            return False
        size = math.prod(x.shape[1:]) // groups
        if size % math.prod(abs(n) for n in rest) or (-1 not in rest and math.prod(rest) != size):
            return False
        shape = x.shape if self.how.shape is None else self.how.shape
        if len(shape) != x.ndim or any(n not in (0, -1, m) for n, m in zip(shape, x.shape, strict=True)):
            return False
        channels = (x.shape[1], *(1,) * (x.ndim - 2))
        given = [p for p in (self.how.weight, self.how.bias) if p is not None]
        return self.how.per_group or all(p in (channels, (1, *channels)) for p in given)

    def extra_repr(self) -> str:
        """Show the options."""
        return f"num_groups={self.num_groups}, eps={self.eps}"


class _OverLastAxes(NormLayer):
    """A norm over some axes of x; usually, these are the last axes, and `axes` checks this."""

    @property
    def normalized_shape(self) -> tuple[int, ...] | None:
        """Return the lengths of the normalized axes if the shape of the weight gives them; else None."""
        return self.how.weight

    def axes(self, x: Tensor) -> tuple[list[int], bool]:
        """Return the axes, and True if they are the last axes of x."""
        found = sorted(axis_of(type(self).__name__, axis, x) for axis in self.how.axes)
        return found, found == list(range(x.ndim - len(found), x.ndim))

    def extra_repr(self) -> str:
        """Show the options."""
        over = f"axes={self.how.axes}" if self.normalized_shape is None else f"{self.normalized_shape}"
        return f"{over}, eps={self.eps}"


class LayerNorm(_OverLastAxes):
    """y = (x - mean) / sqrt(var + eps) * weight + bias; mean and var are computed over the last axes."""

    def forward(self, x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
        """x (..., *normalized_shape) -> y of the same shape"""
        axes, last = self.axes(x)
        tail = x.shape[-len(axes) :]
        if not last:
            return _affine(F.normalization(x, axes=axes, eps=self.eps), weight, bias, self.how)
        if all(p in (None, tail) for p in (self.how.weight, self.how.bias)):
            return F.layer_norm(x, tail, *_shaped(weight, bias, self.how), self.eps)
        return _affine(F.layer_norm(x, tail, eps=self.eps), weight, bias, self.how)


class RMSNorm(_OverLastAxes):
    """y = x / sqrt(mean(x^2) + eps) * weight; the mean is computed over the last axes."""

    def forward(self, x: Tensor, weight: Tensor | None = None) -> Tensor:
        """x (..., *normalized_shape) -> y of the same shape"""
        axes, last = self.axes(x)
        tail = x.shape[-len(axes) :]
        if not last:
            root = ((x * x).mean(tuple(axes), keepdim=True) + self.eps).sqrt()
            return _affine(x / root, weight, None, self.how)
        if self.how.weight in (None, tail):
            return F.rms_norm(x, tail, _shaped(weight, None, self.how)[0], self.eps)
        return _affine(F.rms_norm(x, tail, eps=self.eps), weight, None, self.how)


def _shaped(weight: Tensor | None, bias: Tensor | None, how: Written) -> tuple[Tensor | None, Tensor | None]:
    """Return weight and bias in the shapes that the nodes read."""
    return (
        None if weight is None or how.weight is None else weight.reshape(how.weight),
        None if bias is None or how.bias is None else bias.reshape(how.bias),
    )


def _affine(y: Tensor, weight: Tensor | None, bias: Tensor | None, how: Written) -> Tensor:
    weight, bias = _shaped(weight, bias, how)
    if weight is not None:
        y = y * weight
    return y if bias is None else y + bias
