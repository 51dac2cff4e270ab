"""Arithmetic, element by element, on operands that broadcast against each other.

The gradient of a broadcast operand is the sum of the full gradient over the axes that were broadcast. `gradient_of`
computes that sum block by block, so that a 100 MB gradient is reduced to a bias without a 100 MB product.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minorm import devices
from minorm.devices import dtypes
from minorm.graph.expressions import passing, scaled, summed_to
from minorm.graph.graph import Function
from minorm.kernels.order import in_order
from minorm.kernels.select import backend

BLOCK = 1 << 18  # elements of a temporary array: 1 MB of float32 fits into the second-level cache


def sum_to(array: Any, shape: tuple[int, ...]) -> Any:
    """Sum `array` over the axes along which an operand of `shape` was broadcast to it."""
    return array if array.shape == shape else backend(array).elementwise.sum_to(array, shape)


def gradient_of(shape: tuple[int, ...], rule: Callable[..., Any], *arrays: Any) -> Any:
    """Return `rule(*arrays)`, summed to `shape`. If the result is large, it is computed and summed in blocks along its
    longest axis, in a fixed order.
    """
    if type(arrays[0]) is not np.ndarray:
        kernels = backend(arrays[0]).elementwise
        if rule in (kernels.mul, kernels.div):  # these keep the order of memory
            return sum_to(rule(*arrays), shape)
        # CuPy's where() gives float32 for bfloat16
        return sum_to(in_order(rule, *arrays).astype(arrays[0].dtype, copy=False), shape)
    full = np.broadcast_shapes(*[a.shape for a in arrays])
    if full == shape or np.prod(full, dtype=np.int64) <= BLOCK:
        return sum_to(rule(*arrays), shape)
    axis = int(np.argmax(full))
    length = full[axis]
    step = max(1, BLOCK * length // int(np.prod(full, dtype=np.int64)))
    arrays = tuple(np.broadcast_to(a, full) for a in arrays)
    kept = axis - (len(full) - len(shape))  # the position of that axis in `shape`, negative if it has none
    summed = kept < 0 or shape[kept] != length
    accumulate = dtypes.compute_type(arrays[0].dtype)
    total: Any = np.zeros(shape, accumulate)
    for start in range(0, length, step):
        block = (slice(None),) * axis + (slice(start, start + step),)
        part = rule(*[a[block] for a in arrays])
        if summed:
            total += sum_to(part, shape)
        else:
            target = (slice(None),) * kept + (slice(start, start + step),)
            total[target] = sum_to(part, (*shape[:kept], part.shape[axis], *shape[kept + 1 :]))
    return total.astype(arrays[0].dtype, copy=False)


class Add(Function):
    """a + b"""

    def forward(self, a: Any, b: Any) -> Any:
        self.shapes = a.shape, b.shape
        return backend(a).elementwise.add(a, b)

    def backward(self, dy: Any) -> Any:
        a, b = self.shapes
        return sum_to(dy, a) if self.needs[0] else None, sum_to(dy, b) if self.needs[1] else None

    def gradient(self, dy: Any) -> Any:
        a, b = self.shapes
        return summed_to(dy, a) if self.needs[0] else None, summed_to(dy, b) if self.needs[1] else None


class Sub(Function):
    """a - b"""

    def forward(self, a: Any, b: Any) -> Any:
        self.shapes = a.shape, b.shape
        return backend(a).elementwise.sub(a, b)

    def backward(self, dy: Any) -> Any:
        a, b = self.shapes
        negative = backend(dy).elementwise.neg
        return sum_to(dy, a) if self.needs[0] else None, negative(sum_to(dy, b)) if self.needs[1] else None

    def gradient(self, dy: Any) -> Any:
        a, b = self.shapes
        return summed_to(dy, a) if self.needs[0] else None, -summed_to(dy, b) if self.needs[1] else None


class Deviation(Sub):
    """a - b, where b is the mean of a. Axes over which the mean was taken have length 1 in b.

    The gradient dy sums to 0 over these axes, so no gradient flows through the mean, and backward leaves this part out.
    The second derivative includes it.
    """

    def gradient(self, dy: Any) -> Any:
        axes = tuple([i for i, n in enumerate(self.shapes[1]) if n == 1])
        return dy - dy.mean(axes, keepdim=True), None


class Mul(Function):
    """a * b"""

    def forward(self, a: Any, b: Any) -> Any:
        self.shapes = a.shape, b.shape
        self.a = a if self.needs[1] else None  # only the gradient of the other factor needs it
        self.b = b if self.needs[0] else None
        return backend(a).elementwise.mul(a, b)

    def backward(self, dy: Any) -> Any:
        multiply = backend(dy).elementwise.mul
        a, b = self.shapes
        return (
            gradient_of(a, multiply, dy, self.b) if self.needs[0] else None,
            gradient_of(b, multiply, dy, self.a) if self.needs[1] else None,
        )

    def gradient(self, dy: Any) -> Any:
        a, b = self.shapes
        return (
            summed_to(dy * self.input(1, self.b, dy), a) if self.needs[0] else None,
            summed_to(dy * self.input(0, self.a, dy), b) if self.needs[1] else None,
        )


class Div(Function):
    """a / b"""

    def forward(self, a: Any, b: Any) -> Any:
        self.shape, self.b = a.shape, b
        self.a = a if self.needs[1] else None  # only the gradient of b needs it
        return backend(a).elementwise.div(a, b)

    def backward(self, dy: Any) -> Any:
        a, b = self.a, self.b
        return (
            gradient_of(self.shape, backend(dy).elementwise.div, dy, b) if self.needs[0] else None,
            gradient_of(b.shape, lambda g, a, b: -g * (a / b) / b, dy, a, b) if self.needs[1] else None,
        )

    def gradient(self, dy: Any) -> Any:
        b = self.input(1, self.b, dy)
        return (
            summed_to(dy / b, self.shape) if self.needs[0] else None,
            summed_to(-dy * (self.input(0, self.a, dy) / b) / b, b.shape) if self.needs[1] else None,
        )


def power(a: Any, b: Any) -> Any:
    """Return a ** b. If b is the single number 1/2 or -1/2, the square root is used, as in PyTorch. Then the result for
    -inf is NaN, not infinity or 0.
    """
    if b.ndim == 0 and type(b) is np.ndarray and b in (0.5, -0.5):
        return in_order(np.sqrt, a) if b > 0 else in_order(lambda a: 1 / np.sqrt(a), a)
    return backend(a).elementwise.power(a, b)


class Pow(Function):
    """a ** b. The gradient for a is 0 where b = 0, and the gradient for b is 0 where a = 0 <= b."""

    def forward(self, a: Any, b: Any) -> Any:
        self.a, self.b = a, b
        return power(a, b)

    def backward(self, dy: Any) -> Any:
        a, b = self.a, self.b
        one = a.dtype.type(1)

        def for_base(g: Any, a: Any, b: Any) -> Any:
            return g * np.where(b == 0, 0 * one, b * power(a, np.where(b == 0, one, b - one)))

        def for_exponent(g: Any, a: Any, b: Any) -> Any:
            maps = backend(a).elementwise
            with np.errstate(divide="ignore", invalid="ignore"):
                return np.where((a == 0) & (b >= 0), 0 * one, g * maps.power(a, b) * maps.log(a))

        return (
            gradient_of(a.shape, for_base, dy, a, b) if self.needs[0] else None,
            gradient_of(b.shape, for_exponent, dy, a, b) if self.needs[1] else None,
        )

    def gradient(self, dy: Any) -> Any:
        a, b = self.input(0, self.a, dy), self.input(1, self.b, dy)
        da = db = None
        if self.needs[0]:
            nothing = self.b == 0
            slope = b * a ** (b - 1).masked_fill(dy.from_array(nothing), 1.0)
            da = summed_to(passing(dy * slope, ~nothing), a.shape)
        if self.needs[1]:
            base = a.masked_fill(dy.from_array((self.a == 0) & (self.b >= 0)), 1.0)  # the logarithm of 1 is 0
            db = summed_to(dy * base**b * base.log(), b.shape)
        return da, db


class Maximum(Function):
    """max(a, b), or NaN if a or b is NaN. If two elements are equal, each gets half the gradient. If one element is
    NaN, both elements get the whole gradient.
    """

    ufunc: Any = np.maximum
    loses: Any = np.less

    def forward(self, a: Any, b: Any) -> Any:
        self.a, self.b = a, b
        return in_order(self.ufunc, a, b)

    def chosen(self, g: Any, this: Any, other: Any) -> Any:
        share = np.where(this == other, 0.5, ~self.loses(this, other))
        return (g * share).astype(g.dtype, copy=False)

    def backward(self, dy: Any) -> Any:
        a, b = self.a, self.b
        return (
            gradient_of(a.shape, self.chosen, dy, a, b) if self.needs[0] else None,
            gradient_of(b.shape, self.chosen, dy, b, a) if self.needs[1] else None,
        )

    def gradient(self, dy: Any) -> Any:
        a, b, one = self.a, self.b, dy.dtype.type(1)
        return (
            summed_to(dy * dy.from_array(self.chosen(one, a, b)), a.shape) if self.needs[0] else None,
            summed_to(dy * dy.from_array(self.chosen(one, b, a)), b.shape) if self.needs[1] else None,
        )


class Minimum(Maximum):
    """min(a, b), or NaN if a or b is NaN. The gradient follows the rule of Maximum."""

    ufunc = np.minimum
    loses = np.greater


class Where(Function):
    """a where the condition is True, else b. The condition is the first input, and it gets no gradient."""

    def forward(self, condition: Any, a: Any, b: Any) -> Any:
        self.condition, self.shapes = condition, (a.shape, b.shape)
        return in_order(np.where, condition, a, b).astype(a.dtype, copy=False)

    def backward(self, dy: Any) -> Any:
        zero = dy.dtype.type(0)
        a, b = self.shapes
        return (
            None,
            gradient_of(a, lambda g, c: np.where(c, g, zero), dy, self.condition) if self.needs[1] else None,
            gradient_of(b, lambda g, c: np.where(c, zero, g), dy, self.condition) if self.needs[2] else None,
        )

    def gradient(self, dy: Any) -> Any:
        a, b = self.shapes
        return (
            None,
            summed_to(passing(dy, self.condition), a) if self.needs[1] else None,
            summed_to(passing(dy, ~self.condition), b) if self.needs[2] else None,
        )


class Clip(Function):
    """min(max(x, low), high), where a bound of None is absent. The gradient passes where low <= x <= high."""

    def forward(self, x: Any, *, low: float | None, high: float | None) -> Any:
        self.x, self.low, self.high = x, low, high
        return in_order(self.clipped, x)

    def clipped(self, x: Any) -> Any:
        low, high = self.low, self.high
        wide = x.astype(dtypes.compute_type(x.dtype), copy=False)  # np.clip widens bfloat16, CuPy's clip refuses it
        bound = wide.dtype.type
        clipped = np.clip(wide, None if low is None else bound(low), None if high is None else bound(high))
        return clipped.astype(x.dtype, copy=False)

    def backward(self, dy: Any) -> Any:
        return in_order(self.passed, dy, self.x)

    def gradient(self, dy: Any) -> Any:
        return scaled(self, dy)

    def passed(self, dy: Any, x: Any) -> Any:
        bound, inside = x.dtype.type, np.ones_like(x, bool)
        if self.low is not None:
            inside &= x >= bound(self.low)
        if self.high is not None:
            inside &= x <= bound(self.high)
        return dy * inside.astype(dy.dtype)


class Neg(Function):
    """-x"""

    def forward(self, x: Any) -> Any:
        return backend(x).elementwise.neg(x)

    def backward(self, dy: Any) -> Any:
        return backend(dy).elementwise.neg(dy)

    def gradient(self, dy: Any) -> Any:
        return -dy


def sign(x: Any) -> Any:
    """Return 1 where x > 0, -1 where x < 0, and 0 where x is 0 or NaN. NumPy's sign of NaN is NaN instead."""
    return (x > 0).astype(x.dtype) - (x < 0).astype(x.dtype)


class Abs(Function):
    """|x|; the slope at 0 and at NaN is 0."""

    def forward(self, x: Any) -> Any:
        self.x = x
        return in_order(abs, x)

    def backward(self, dy: Any) -> Any:
        return in_order(lambda dy, x: dy * sign(x), dy, self.x)

    def gradient(self, dy: Any) -> Any:
        return scaled(self, dy)


class Exp(Function):
    """e^x"""

    def forward(self, x: Any) -> Any:
        self.y = backend(x).elementwise.exp(x)
        return self.y

    def backward(self, dy: Any) -> Any:
        return backend(dy).elementwise.mul(dy, self.y)

    def gradient(self, dy: Any) -> Any:
        return dy * self.output(self.y, dy)


class Log(Function):
    """Natural logarithm."""

    def forward(self, x: Any) -> Any:
        self.x = x
        return backend(x).elementwise.log(x)

    def backward(self, dy: Any) -> Any:
        return backend(dy).elementwise.div(dy, self.x)

    def gradient(self, dy: Any) -> Any:
        return dy / self.input(0, self.x, dy)


class Sqrt(Function):
    """Square root."""

    def forward(self, x: Any) -> Any:
        self.y = in_order(np.sqrt, x)
        return self.y

    def backward(self, dy: Any) -> Any:
        return in_order(lambda dy, y: dy / (y + y), dy, self.y)

    def gradient(self, dy: Any) -> Any:
        y = self.output(self.y, dy)
        return dy / (y + y)


class Root(Sqrt):
    """The square root of a sum of squares. The slope at 0 is 0, since a vector of zeros has no direction."""

    def backward(self, dy: Any) -> Any:
        return in_order(self.sloped, dy, self.y)

    def gradient(self, dy: Any) -> Any:
        zero = self.y == 0
        y = self.output(self.y, dy).masked_fill(dy.from_array(zero), 1.0)
        return passing(dy * 0.5 / y, ~zero)

    @staticmethod
    def sloped(dy: Any, y: Any) -> Any:
        number = y.dtype.type
        slope = np.where(y == 0, number(0), number(0.5) / np.where(y == 0, number(1), y))
        return (dy * slope).astype(dy.dtype, copy=False)


class Sin(Function):
    """sin x, x in radians."""

    def forward(self, x: Any) -> Any:
        self.x = x
        return in_order(np.sin, x)

    def backward(self, dy: Any) -> Any:
        return in_order(lambda dy, x: dy * np.cos(x), dy, self.x)

    def gradient(self, dy: Any) -> Any:
        return dy * self.input(0, self.x, dy).cos()


class Cos(Function):
    """cos x, x in radians."""

    def forward(self, x: Any) -> Any:
        self.x = x
        return in_order(np.cos, x)

    def backward(self, dy: Any) -> Any:
        return in_order(lambda dy, x: -dy * np.sin(x), dy, self.x)

    def gradient(self, dy: Any) -> Any:
        return -dy * self.input(0, self.x, dy).sin()


class Cast(Function):
    """Casts to another element type; the gradient is cast back."""

    def forward(self, x: Any, *, dtype: Any) -> Any:
        self.dtype = x.dtype
        return backend(x).copying.cast(x, dtype)

    def backward(self, dy: Any) -> Any:
        return backend(dy).copying.cast(dy, self.dtype)

    def gradient(self, dy: Any) -> Any:
        return dy.to(self.dtype)


class Move(Function):
    """Moves to another device; the gradient is moved back."""

    def forward(self, x: Any, *, device: str) -> Any:
        self.device = devices.device_of(x)
        return devices.to_device(x, device)

    def backward(self, dy: Any) -> Any:
        return devices.to_device(dy, self.device)

    def gradient(self, dy: Any) -> Any:
        return Move.apply(dy, device=self.device)


class Copy(Function):
    """Copies the values to new memory, in the same memory order ("K") or in row-major order ("C")."""

    def forward(self, x: Any, *, order: str) -> Any:
        return backend(x).copying.copy(x, order)

    def backward(self, dy: Any) -> Any:
        return dy

    def gradient(self, dy: Any) -> Any:
        return dy


class Compare(Function):
    """Compares a and b by the NumPy ufunc named `relation`. The result has bools and is not differentiable."""

    differentiable = False

    def forward(self, a: Any, b: Any, *, relation: str) -> Any:
        return in_order(getattr(np, relation), a, b)
