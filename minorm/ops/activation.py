"""Activations, element by element, and softmax along one axis.

The formulas are in kernels/reference/elementwise.py, with each gradient directly below its function. If the gradient
can be computed from the output, a Function keeps its output, since the next operation keeps this array anyway.
Otherwise the Function keeps its input.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from minorm.devices import dtypes
from minorm.graph.expressions import passing, scaled
from minorm.graph.graph import Function
from minorm.kernels.order import in_order, in_order_along
from minorm.kernels.select import backend
from minorm.ops.elementwise import Where
from minorm.ops.operands import full_type
from minorm.ops.special import Erf


class Relu(Function):
    """max(x, 0); the slope at 0 is 0."""

    fresh = (0,)

    def forward(self, x):
        self.y = backend(x).elementwise.relu(x)
        return self.y

    def backward(self, dy):
        return backend(dy).elementwise.relu_grad(dy, self.y)

    def gradient(self, dy):
        return scaled(self, dy)


class Relu6(Function):
    """min(max(x, 0), 6); the slope at 0 and at 6 is 0."""

    def forward(self, x):
        self.y = backend(x).elementwise.relu6(x)
        return self.y

    def backward(self, dy):
        return backend(dy).elementwise.relu6_grad(dy, self.y)

    def gradient(self, dy):
        return scaled(self, dy)


class LeakyRelu(Function):
    """x where x > 0, else slope * x."""

    def forward(self, x, *, slope):
        self.x, self.slope = x, slope
        return backend(x).elementwise.leaky_relu(x, slope)

    def backward(self, dy):
        return backend(dy).elementwise.leaky_relu_grad(dy, self.x, self.slope)

    def gradient(self, dy):
        return scaled(self, dy)


class Elu(Function):
    """x where x > 0, else alpha * (exp(x) - 1)."""

    def forward(self, x, *, alpha):
        self.x, self.alpha = x, alpha
        return backend(x).elementwise.elu(x, alpha)

    def backward(self, dy):
        return backend(dy).elementwise.elu_grad(dy, self.x, self.alpha)

    def gradient(self, dy):
        below = self.x <= 0
        x = passing(self.input(0, self.x, dy), below)
        return Where.apply(dy.from_array(below), dy * (x.exp() * self.alpha), dy)


class Gelu(Function):
    """x * Phi(x), where Phi is the normal distribution function, exact ("none") or approximated ("tanh")."""

    def forward(self, x, *, approximate):
        self.x, self.approximate = x, approximate
        return backend(x).elementwise.gelu(x, approximate)

    def backward(self, dy):
        return backend(dy).elementwise.gelu_grad(dy, self.x, self.approximate)

    def gradient(self, dy):
        x = self.input(0, self.x, dy)
        if self.approximate == "tanh":
            x = x.clip(-20.0, 20.0)  # outside, the slope is at its limit, and x^3 may overflow
            c, cubic = math.sqrt(2 / math.pi), 0.044715
            t = ((x + x * x * x * cubic) * c).tanh()
            normal, slope = (t + 1) * 0.5, (1 - t * t) * (x * x * (3 * cubic) + 1) * (0.5 * c)
        else:
            normal = (Erf.apply(x * math.sqrt(0.5)) + 1) * 0.5
            slope = (x * x * -0.5).exp() * (1 / math.sqrt(2 * math.pi))
        return dy * (normal + x * slope)


class Silu(Function):
    """x * sigmoid(x)."""

    def forward(self, x):
        self.x = x
        return backend(x).elementwise.silu(x)

    def backward(self, dy):
        return backend(dy).elementwise.silu_grad(dy, self.x)

    def gradient(self, dy):
        x = self.input(0, self.x, dy)
        s = Sigmoid.apply(x)
        return dy * (s * (1 + x * (1 - s)))


class Sigmoid(Function):
    """1 / (1 + exp(-x))."""

    def forward(self, x):
        self.y = backend(x).elementwise.sigmoid(x)
        return self.y

    def backward(self, dy):
        return backend(dy).elementwise.sigmoid_grad(dy, self.y)

    def gradient(self, dy):
        y = self.output(self.y, dy)
        return dy * (y * (1 - y))


class Tanh(Function):
    """tanh(x)."""

    def forward(self, x):
        self.y = backend(x).elementwise.tanh(x)
        return self.y

    def backward(self, dy):
        return backend(dy).elementwise.tanh_grad(dy, self.y)

    def gradient(self, dy):
        y = self.output(self.y, dy)
        return dy * (1 - y * y)


class Hardswish(Function):
    """x * min(max(x + 3, 0), 6) / 6."""

    def forward(self, x):
        self.x = x
        return backend(x).elementwise.hardswish(x)

    def backward(self, dy):
        return backend(dy).elementwise.hardswish_grad(dy, self.x)

    def gradient(self, dy):
        x = self.input(0, self.x, dy)
        return passing(Where.apply(dy.from_array(self.x < 3), dy * (x / 3 + 0.5), dy), ~(self.x <= -3))


class Hardsigmoid(Function):
    """min(max(x + 3, 0), 6) / 6; the slope is 1/6 strictly between -3 and 3, else 0."""

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

    def gradient(self, dy):
        return scaled(self, dy)


def log1p_exp(x):
    """log(1 + exp(x)) for x <= 0"""
    maps = backend(x).elementwise
    return maps.log1p(maps.exp(x))


class Softplus(Function):
    """log(1 + exp(beta * x)) / beta. Where beta * x > threshold, the result is x itself."""

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

    def gradient(self, dy):
        x = self.input(0, self.x, dy) * self.beta
        return Where.apply(dy.from_array(x.array > self.threshold), dy, dy * Sigmoid.apply(x))


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

    def gradient(self, dy):
        y = self.output(self.y, dy)
        return (y * (dy - (dy * y).sum(self.axis, keepdim=True))).to(self.dtype)


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

    def gradient(self, dy):
        y = self.output(self.y, dy)
        return (dy - y.exp() * dy.sum(self.axis, keepdim=True)).to(self.dtype)
