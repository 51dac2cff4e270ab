"""Activations: one function applied to every element; and softmax, along one axis.

The formulas, each gradient directly below its function, stand in kernels/reference/elementwise.py. What a gradient
needs is kept: the output where the formula allows it (the next operation keeps it anyway), otherwise the input.
"""

from __future__ import annotations

import functools

import numpy as np

from minorm.devices import dtypes
from minorm.graph.graph import Function
from minorm.kernels.order import in_order, in_order_along
from minorm.kernels.select import backend
from minorm.ops.operands import full_type


class Relu(Function):
    """max(x, 0); slope 0 at 0."""

    fresh = (0,)

    def forward(self, x):
        self.y = backend(x).elementwise.relu(x)
        return self.y

    def backward(self, dy):
        return backend(dy).elementwise.relu_grad(dy, self.y)


class Relu6(Function):
    """min(max(x, 0), 6); slope 0 at 0 and at 6."""

    def forward(self, x):
        self.y = backend(x).elementwise.relu6(x)
        return self.y

    def backward(self, dy):
        return backend(dy).elementwise.relu6_grad(dy, self.y)


class LeakyRelu(Function):
    """x where x > 0, else slope * x."""

    def forward(self, x, *, slope):
        self.x, self.slope = x, slope
        return backend(x).elementwise.leaky_relu(x, slope)

    def backward(self, dy):
        return backend(dy).elementwise.leaky_relu_grad(dy, self.x, self.slope)


class Elu(Function):
    """x where x > 0, else alpha * (exp(x) - 1)."""

    def forward(self, x, *, alpha):
        self.x, self.alpha = x, alpha
        return backend(x).elementwise.elu(x, alpha)

    def backward(self, dy):
        return backend(dy).elementwise.elu_grad(dy, self.x, self.alpha)


class Gelu(Function):
    """x * Phi(x), Phi the normal distribution function, exact ("none") or by its approximation ("tanh")."""

    def forward(self, x, *, approximate):
        self.x, self.approximate = x, approximate
        return backend(x).elementwise.gelu(x, approximate)

    def backward(self, dy):
        return backend(dy).elementwise.gelu_grad(dy, self.x, self.approximate)


class Silu(Function):
    """x * sigmoid(x)."""

    def forward(self, x):
        self.x = x
        return backend(x).elementwise.silu(x)

    def backward(self, dy):
        return backend(dy).elementwise.silu_grad(dy, self.x)


class Sigmoid(Function):
    """1 / (1 + exp(-x))."""

    def forward(self, x):
        self.y = backend(x).elementwise.sigmoid(x)
        return self.y

    def backward(self, dy):
        return backend(dy).elementwise.sigmoid_grad(dy, self.y)


class Tanh(Function):
    """tanh(x)."""

    def forward(self, x):
        self.y = backend(x).elementwise.tanh(x)
        return self.y

    def backward(self, dy):
        return backend(dy).elementwise.tanh_grad(dy, self.y)


class Hardswish(Function):
    """x * min(max(x + 3, 0), 6) / 6."""

    def forward(self, x):
        self.x = x
        return backend(x).elementwise.hardswish(x)

    def backward(self, dy):
        return backend(dy).elementwise.hardswish_grad(dy, self.x)


class Hardsigmoid(Function):
    """min(max(x + 3, 0), 6) / 6; slope 1/6 strictly between -3 and 3, else 0."""

    def forward(self, x):
        self.x = x
        return in_order(self.bent, x)

    @staticmethod
    def bent(x):
        wide = x.astype(dtypes.compute_type(x.dtype), copy=False)
        return ((wide + 3).clip(0, 6) / 6).astype(x.dtype, copy=False)

    def backward(self, dy):
        return in_order(self.passed, dy, self.x)

    @staticmethod
    def passed(dy, x):
        inside = abs(x) < 3
        wide = dy.astype(dtypes.compute_type(dy.dtype), copy=False)
        return (wide * inside / 6).astype(dy.dtype, copy=False)


def log1p_exp(x):
    """log(1 + exp(x)) for x <= 0"""
    maps = backend(x).elementwise
    return maps.log1p(maps.exp(x))


class Softplus(Function):
    """log(1 + exp(beta * x)) / beta, and x itself where beta * x > threshold."""

    def forward(self, x, *, beta, threshold):
        self.x, self.beta, self.threshold = x, beta, threshold
        return in_order(self.smoothed, x)

    def smoothed(self, x):
        wide = x.astype(dtypes.compute_type(x.dtype), copy=False)
        scaled = wide * self.beta
        smooth = (log1p_exp(-abs(scaled)) + scaled.clip(0, None)) / self.beta
        return np.where(scaled > self.threshold, wide, smooth).astype(x.dtype, copy=False)

    def backward(self, dy):
        return in_order(self.sloped, dy, self.x)

    def sloped(self, dy, x):
        compute = dtypes.compute_type(dy.dtype)
        scaled = x.astype(compute, copy=False) * self.beta
        slope = np.where(scaled > self.threshold, compute.type(1), backend(dy).elementwise.sigmoid(scaled))
        return (dy.astype(compute, copy=False) * slope).astype(dy.dtype, copy=False)


class Softmax(Function):
    """exp(x - max) / sum exp(x - max) along `axis`."""

    def forward(self, x, *, axis):
        self.axis, self.dtype = axis, x.dtype
        softmax = functools.partial(backend(x).elementwise.softmax, dtype=full_type(x))
        self.y = in_order_along(axis, softmax, x)
        return self.y

    def backward(self, dy):
        gradient = functools.partial(backend(dy).elementwise.softmax_grad, dtype=self.dtype)
        return in_order_along(self.axis, gradient, dy, self.y)


class LogSoftmax(Function):
    """(x - max) - log sum exp(x - max) along `axis`."""

    def forward(self, x, *, axis):
        self.axis, self.dtype = axis, x.dtype
        softmax = functools.partial(backend(x).elementwise.log_softmax, dtype=full_type(x))
        self.y = in_order_along(axis, softmax, x)
        return self.y

    def backward(self, dy):
        gradient = functools.partial(backend(dy).elementwise.log_softmax_grad, dtype=self.dtype)
        return in_order_along(self.axis, gradient, dy, self.y)
