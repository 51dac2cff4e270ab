"""Losses: a number for each example, and then the mean or the sum of these numbers, or no reduction.

16-bit inputs are computed in float32, and the result is rounded once, after the reduction. Sums are computed in
float64. Integer targets are inputs without a gradient. The functions in minorm/functional have checked all arguments.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from minorm.devices import constant_of, dtypes
from minorm.graph.expressions import LinearMap, passing
from minorm.graph.graph import Function
from minorm.kernels.select import as_array, backend, contiguous, cpu
from minorm.ops.activation import LogSoftmax, Sigmoid, Softmax, Softplus, log1p_exp
from minorm.ops.elementwise import Where, sign
from minorm.ops.operands import full_type


def wide(x):
    """Convert x to the type of the computation."""
    return x.astype(np.float32) if x.dtype in dtypes.HALVES else x


def reduced(losses, reduction, count, dtype):
    """Return the losses, their sum, or their sum / count. If the count is 0, sum / count is NaN, as in PyTorch."""
    if reduction == "none":
        return losses.astype(dtype, copy=False)
    total = losses.sum(dtype=np.float64)
    if reduction == "mean":
        total = over(total, count)
    return total.astype(dtype)


def over(total, count):
    """Return total / count. 0 / 0 gives NaN without a warning. On a GPU, count may be an array, so the host does not
    have to wait for its value.
    """
    if backend(total) is not cpu:
        return total / (count.astype(total.dtype) if hasattr(count, "dtype") else total.dtype.type(count))
    if count:
        return total / total.dtype.type(count)
    with np.errstate(invalid="ignore", divide="ignore"):
        return total / total.dtype.type(0)


def share(dy, reduction, count):
    """Return the gradient of each loss, from the gradient `dy` of the reduced loss, in the compute type.

    If no loss counts, the mean is NaN, but its gradient is 0, so that no parameter becomes NaN.
    """
    if reduction != "mean":
        return wide(dy)
    if backend(dy) is cpu or not hasattr(count, "dtype"):
        return over(wide(dy), count) if count else np.zeros_like(wide(dy))
    return np.where(count == 0, wide(dy).dtype.type(0), over(wide(dy), count))


def shared(dy, reduction, count):
    """Do the same as `share` for a Tensor."""
    if reduction != "mean":
        return dy
    parts: Any = functools.partial(share, reduction="mean", count=count)
    return LinearMap.apply(dy, there=parts, back=parts)


# Classes


class CrossEntropy(Function):
    """loss = log sum exp(x) - (1 - s) * x[target] - s * mean(x) along axis 1, where s is label_smoothing.

    x is (N, C, d1, ...), and target (N, d1, ...) holds classes. Where target == ignore_index, the loss is 0 and is not
    counted in the mean.
    """

    def forward(self, x, target, *, reduction, ignore_index, label_smoothing):
        self.x, self.count, maths = x, None, backend(x).elementwise
        self.options = {"ignore_index": ignore_index, "label_smoothing": label_smoothing}
        # a copy, since the caller may overwrite the array
        self.classes = backend(target).copying.cast(target.reshape(-1), dtypes.int64)
        losses, self.lse = maths.cross_entropy(class_rows(x), self.classes, **self.options)
        dtype, mean = full_type(x), reduction == "mean"
        if reduction == "none":
            return losses.reshape(target.shape).astype(dtype, copy=False)
        total, count = maths.reduce_losses(losses, self.classes, ignore_index, mean, dtype)
        self.count = count if mean else None
        return total

    def backward(self, dy):
        x, maths = self.x, backend(self.x).elementwise
        dx = maths.cross_entropy_grad(dy, class_rows(x), self.classes, self.lse, **self.options, count=self.count)
        return class_axis(dx, x.shape), None

    def gradient(self, dy):
        dy = dy.to(dtypes.compute_type(self.x.dtype))
        axis = min(1, self.x.ndim - 1)
        mean = self.count is not None
        dlosses = shared(dy, "mean", self.count) if mean else dy.unsqueeze(axis) if dy.ndim else dy
        classes = self.classes.reshape([n for i, n in enumerate(self.x.shape) if i != axis])
        counted = np.expand_dims(classes != self.options["ignore_index"], axis)
        x = passing(self.input(0, self.x, dy).to(dlosses.dtype), counted)
        p = Softmax.apply(x, axis=axis) - dy.from_array(self.expected(classes, axis, dlosses.dtype))
        return passing(dlosses * p, counted).to(self.x.dtype), None

    def expected(self, classes, axis, dtype):
        """Return the target probability of each class."""
        smoothing, places = self.options["label_smoothing"], np.arange(self.x.shape[axis])
        shape = [-1 if i == axis else 1 for i in range(self.x.ndim)]
        hits = np.expand_dims(classes, axis) == constant_of(places, self.x).reshape(shape)
        return (hits * (1 - smoothing) + smoothing / max(1, len(places))).astype(dtype)


def class_rows(x):
    """Return x (N, C, d1, ...) as (N * d1 * ..., C). A vector (C) becomes one row."""
    if x.ndim <= 2:
        return contiguous(x.reshape(-1, x.shape[-1]) if x.ndim == 1 else x)
    return contiguous(np.moveaxis(x, 1, -1)).reshape(x.size // max(1, x.shape[1]), x.shape[1])


def class_axis(rows, shape):
    """Reverse `class_rows`: return the rows in the original `shape`."""
    if rows.shape == shape:
        return rows  # a view of it would be copied before it becomes a leaf's gradient
    if len(shape) == 1:
        return rows.reshape(shape)
    return np.moveaxis(rows.reshape(shape[0], *shape[2:], shape[1]), -1, 1)


class SoftCrossEntropy(Function):
    """loss = - sum over axis 1 of q * log softmax(x), where q has a weight for each class of each example.

    A term 0 * -inf counts as 0. The mean divides by `count`. Where `counted` is False, an example has loss 0 and no
    gradient, whatever its logits are.
    """

    def forward(self, x, q, *, reduction, count, counted=None):
        self.x, self.q, self.reduction, self.count, self.counted = x, q, reduction, count, counted
        self.axis = min(1, x.ndim - 1)
        terms = weighted(wide(q), backend(x).elementwise.log_softmax(wide(x), self.axis))
        if counted is not None:
            terms = np.where(counted, terms, terms.dtype.type(0))
        return reduced(-terms.sum(axis=self.axis), reduction, count, x.dtype)

    def backward(self, dy):
        x, q, axis = self.x, self.q, self.axis
        dlosses = share(dy, self.reduction, self.count)
        if self.reduction == "none":
            dlosses = np.expand_dims(dlosses, axis)
        dx = dq = None
        logp = backend(x).elementwise.log_softmax(wide(x), axis)
        if self.needs[0]:
            total = wide(q).sum(axis=axis, keepdims=True)
            dx = dlosses * (backend(x).elementwise.exp(logp) * total - wide(q))
            if self.counted is not None:
                dx = np.where(self.counted, dx, dx.dtype.type(0))
            dx = dx.astype(x.dtype, copy=False)
        if self.needs[1]:
            dq = (-dlosses * logp).astype(q.dtype, copy=False)
        return dx, dq

    def gradient(self, dy):
        axis, wide_type = self.axis, dtypes.compute_type(self.x.dtype)
        x, q = self.input(0, self.x, dy).to(wide_type), self.input(1, self.q, dy).to(wide_type)
        dlosses = shared(dy.to(wide_type), self.reduction, self.count)
        if self.reduction == "none":
            dlosses = dlosses.unsqueeze(axis)
        counted = self.counted
        logp = LogSoftmax.apply(x if counted is None else passing(x, counted), axis=axis)
        dx = dq = None
        if self.needs[0]:
            dx = dlosses * (logp.exp() * q.sum(axis, keepdim=True) - q)
            dx = (dx if counted is None else passing(dx, counted)).to(self.x.dtype)
        if self.needs[1]:
            dq = (-dlosses * logp).to(self.q.dtype)
        return dx, dq


def weighted(q, values):
    """Return q * values, where 0 * inf is 0. So a masked class (-inf) with weight 0 adds no loss. NaN stays NaN."""
    return q * np.where((q == 0) & np.isinf(values), q, values)


class NLL(Function):
    """loss = -weight[target] * x[target] along axis 1. The mean divides by the sum of weight[target].

    x (N, C, d1, ...) holds log-probabilities, target is (N, d1, ...), and weight is None or (C). Ignored targets have
    weight 0. On a GPU, a target that is not a class has weight NaN.
    """

    def forward(self, x, target, weight, *, reduction, ignore_index):
        self.shape, self.dtype, self.reduction = x.shape, x.dtype, reduction
        self.axis = min(1, x.ndim - 1)
        target = target.copy()  # a copy, since the caller may change it between two reads
        counted = target != ignore_index
        wrong = None if backend(x) is cpu else counted & ((target < 0) | (target >= x.shape[self.axis]))
        if wrong is not None:  # on a GPU the labels are unchecked
            target = np.where(wrong, 0, target)
        self.index = np.expand_dims(np.where(counted, target, 0).astype(np.int64), self.axis)
        weights = np.where(counted, 1 if weight is None else wide(weight)[self.index.squeeze(self.axis)], 0)
        if wrong is not None:
            weights = np.where(wrong, np.nan, weights)
        self.weights = weights.astype(dtypes.compute_type(x.dtype), copy=False)
        self.count = self.weights.sum(dtype=np.float64)
        chosen = np.take_along_axis(wide(x), self.index, self.axis).squeeze(self.axis)
        self.counted = counted
        losses = np.where(counted, -weighted(self.weights, chosen), self.weights.dtype.type(0))
        return reduced(losses, reduction, self.count, x.dtype)

    def backward(self, dy):
        dx = np.zeros_like(dy, self.dtype, shape=self.shape)
        dlosses = np.where(self.counted, -self.weights * share(dy, self.reduction, self.count), 0)
        np.put_along_axis(dx, self.index, np.expand_dims(dlosses, self.axis).astype(self.dtype), self.axis)
        return dx, None, None

    def gradient(self, dy):
        return LinearMap.apply(dy, of=self, there=lambda dy: self.backward(dy)[0], back=self.gathered), None, None

    def gathered(self, dx):
        """Apply the transpose of the linear map `backward`: take the element of dx that belongs to each loss, and
        reduce these elements as the losses were reduced.
        """
        seen = np.take_along_axis(wide(dx), self.index, self.axis).squeeze(self.axis)
        terms = np.where(self.counted, -self.weights * seen, 0)
        if self.reduction == "none":
            return terms.astype(dx.dtype, copy=False)
        return as_array(share(terms.sum(dtype=np.float64), self.reduction, self.count).astype(dx.dtype))


# Numbers


class Difference(Function):
    """Base class of losses of x - target. The target's gradient is minus the gradient of x."""

    loss: Any  # a function of the difference d
    slope: Any  # its derivative
    slope_of_tensor: Any  # the derivative for a Tensor d

    def forward(self, x, target, *, reduction, **options):
        self.x, self.target, self.reduction, self.options = x, target, reduction, options
        return reduced(self.loss(wide(x) - wide(target), **options), reduction, x.size, x.dtype)

    def backward(self, dy):
        slope = self.slope(wide(self.x) - wide(self.target), **self.options)
        dx = (share(dy, self.reduction, self.x.size) * slope).astype(dy.dtype, copy=False)
        return dx if self.needs[0] else None, -dx if self.needs[1] else None

    def gradient(self, dy):
        x, target = self.input(0, self.x, dy), self.input(1, self.target, dy)
        if x.dtype in dtypes.HALVES:
            x, target = x.to(np.float32), target.to(np.float32)
        slope = self.slope_of_tensor(x - target, **self.options)
        dx = (shared(dy.to(x.dtype), self.reduction, self.x.size) * slope).to(dy.dtype)
        return dx if self.needs[0] else None, -dx if self.needs[1] else None


class SquaredError(Difference):
    """d^2, where d = x - target."""

    @staticmethod
    def loss(d):
        return d * d

    @staticmethod
    def slope(d):
        return d + d

    slope_of_tensor = slope


class AbsoluteError(Difference):
    """|d|, where d = x - target; the slope at 0 is 0."""

    @staticmethod
    def loss(d):
        return abs(d)

    @staticmethod
    def slope(d):
        return sign(d)

    @staticmethod
    def slope_of_tensor(d):
        return d.from_array(sign(d.array))


class SmoothAbsoluteError(Difference):
    """d^2 / (2 beta) where |d| < beta, else |d| - beta / 2."""

    @staticmethod
    def loss(d, beta):
        size = abs(d)
        return np.where(size < beta, d * d / (2 * beta or 1), size - beta / 2)

    @staticmethod
    def slope(d, beta):
        return np.where(abs(d) < beta, d / (beta or 1), np.sign(d)) if beta else sign(d)

    @staticmethod
    def slope_of_tensor(d, beta):
        signs = d.from_array(sign(d.array))
        return Where.apply(d.from_array(abs(d.array) < beta), d / beta, signs) if beta else signs


class BinaryCrossEntropy(Function):
    """loss = weight * ((1 - y) * x + (1 + (pos_weight - 1) * y) * log(1 + exp(-x))), for logits x and targets y.

    With p = sigmoid(x) this is -weight * (pos_weight * y * log p + (1 - y) * log(1 - p)), written so that nothing
    overflows or cancels: log(1 + exp(-x)) = log1p(exp(-|x|)) + max(-x, 0).
    """

    def forward(self, x, target, weight, pos_weight, *, reduction):
        self.x, self.target, self.weight, self.pos_weight, self.reduction = x, target, weight, pos_weight, reduction
        z, y = wide(x), wide(target)
        losses = (1 - y) * z + self.positive(y) * softplus_of_minus(z)
        return reduced(self.weigh(losses), reduction, x.size, x.dtype)

    def backward(self, dy):
        z, y = wide(self.x), wide(self.target)
        dlosses = share(dy, self.reduction, self.x.size)
        dx = dtarget = None
        if self.needs[0]:
            slope = (1 - y) - self.positive(y) * backend(z).elementwise.sigmoid(-z)
            dx = self.weigh(dlosses * slope).astype(dy.dtype, copy=False)
        if self.needs[1]:
            slope = -z  # equal to softplus(-z) - softplus(z), if the first has no weight
            if self.pos_weight is not None:
                slope = wide(self.pos_weight) * softplus_of_minus(z) - softplus_of_minus(-z)
            dtarget = self.weigh(dlosses * slope).astype(dy.dtype, copy=False)
        return dx, dtarget, None, None

    def gradient(self, dy):
        z, y = self.input(0, self.x, dy), self.input(1, self.target, dy)
        if z.dtype in dtypes.HALVES:
            z, y = z.to(np.float32), y.to(np.float32)
        dlosses = shared(dy.to(z.dtype), self.reduction, self.x.size)
        if self.weight is not None:
            dlosses = dlosses * dy.from_array(wide(self.weight))
        positive = None if self.pos_weight is None else dy.from_array(wide(self.pos_weight))
        dx = dtarget = None
        if self.needs[0]:
            p = Sigmoid.apply(-z)
            dx = (dlosses * ((1 - y) - (p if positive is None else (1 + (positive - 1) * y) * p))).to(dy.dtype)
        if self.needs[1]:
            slope = -z
            if positive is not None:
                above, below = (Softplus.apply(a, beta=1.0, threshold=math.inf) for a in (-z, z))
                slope = positive * above - below
            dtarget = (dlosses * slope).to(dy.dtype)
        return dx, dtarget, None, None

    def positive(self, y):
        return 1 if self.pos_weight is None else 1 + (wide(self.pos_weight) - 1) * y

    def weigh(self, losses):
        return losses if self.weight is None else losses * wide(self.weight)


def softplus_of_minus(z):
    """log(1 + exp(-z))"""
    return log1p_exp(-abs(z)) + np.maximum(-z, z.dtype.type(0))


class LogOfProbabilities(Function):
    """loss = -(y * log p + (1 - y) * log(1 - p)) for probabilities p and targets y. Logarithms are at least -100."""

    def forward(self, p, target):
        self.p, self.target = p, target
        y = wide(target)
        return -(y * self.log(wide(p)) + (1 - y) * self.log(1 - wide(p))).astype(p.dtype, copy=False)

    def backward(self, dy):
        p, y = wide(self.p), wide(self.target)
        dp = wide(dy) * (p - y) / np.maximum((1 - p) * p, p.dtype.type(1e-12)) if self.needs[0] else None
        dtarget = wide(dy) * (self.log(1 - p) - self.log(p)) if self.needs[1] else None
        return tuple(None if g is None else g.astype(dy.dtype, copy=False) for g in (dp, dtarget))

    def gradient(self, dy):
        p, y = self.input(0, self.p, dy), self.input(1, self.target, dy)
        if p.dtype in dtypes.HALVES:
            p, y = p.to(np.float32), y.to(np.float32)
        g, dp, dtarget = dy.to(p.dtype), None, None
        if self.needs[0]:
            dp = (g * (p - y) / ((1 - p) * p).clip(min=1e-12)).to(dy.dtype)
        if self.needs[1]:
            dtarget = (g * (self.bounded(1 - p) - self.bounded(p))).to(dy.dtype)
        return dp, dtarget

    @staticmethod
    def bounded(p):
        """Return max(log p, -100) for a Tensor p. Where the bound applies, the result is constant."""
        low = p.array < math.exp(-100)
        return p.masked_fill(p.from_array(low), 1.0).log().masked_fill(p.from_array(low), -100.0)

    @staticmethod
    def log(p):
        return np.maximum(backend(p).elementwise.log(p), p.dtype.type(-100))
