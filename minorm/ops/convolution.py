"""Convolution and its transpose. Both use the same three kernels: forward, backward for the input, and backward for the
weights.

    y  = W * x          forward(x, W)
    dx = W^T * dy       grad_input(dy, W)
    dW = dy * x         grad_weight(dy, x)
    dx, dW, db          backward(dy, x, W), which does the work that the gradients share only once

The three kernels are linear in each argument, so the transposed convolution needs no new kernel. Its forward pass calls
grad_input. The gradient of its input comes from forward, and the gradient of its weights from grad_weight with the two
arguments exchanged. The transposed convolution needs a convolution that maps y's size to x's size; `_back_to` finds the
padding of this convolution.
"""

from __future__ import annotations

from typing import Any

from minorm.graph.graph import Function
from minorm.kernels.reference.conv import output_shape
from minorm.kernels.select import backend
from minorm.ops.elementwise import Cast

Ints = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]


class Convolution(Function):
    """The convolution of x (N, groups * I, *spatial) with w (groups * O, I, *kernel), plus b (groups * O) or None.

    padding has a (low, high) pair for each axis.
    """

    accumulates = True

    def forward(self, x: Any, w: Any, b: Any, *, stride: Ints, padding: Pairs, dilation: Ints, groups: int) -> Any:
        conv = backend(x).conv
        x = conv.laid_out(x, x.dtype)
        self.x, self.w, self.how = x, w, (stride, padding, dilation, groups)
        return conv.forward(x, w, b, *self.how)

    def backward(self, dy: Any) -> Any:
        return backend(dy).conv.backward(dy, self.x, self.w, *self.how, self.needs, self.total)

    def gradient(self, dy: Any) -> Any:
        x, w = self.input(0, self.x, dy), self.input(1, self.w, dy)
        dx = dw = db = None
        if self.needs[0]:
            dx = ConvolutionTranspose.apply(dy, w, None, size=x.shape[2:], **_named(self.how))
        if self.needs[1]:
            dw = ConvolutionWeight.apply(dy, x, shape=w.shape, **_named(self.how))
        if self.needs[2]:
            db = _over_channels(dy)
        return dx, dw, db


class ConvolutionTranspose(Function):
    """The transposed convolution of x (N, groups * O, *spatial) with w (groups * O, I, *kernel), plus b (groups * I).

    b may be None, and the result is (N, groups * I, *size). `size` must be given, since a convolution with a stride
    above 1 maps several sizes to the same size of x. If the dilation is above the stride, even more sizes are possible.
    """

    def forward(
        self, x: Any, w: Any, b: Any, *, size: Ints, stride: Ints, padding: Pairs, dilation: Ints, groups: int
    ) -> Any:
        padding = _back_to(x.shape[2:], size, w.shape[2:], stride, padding, dilation)
        conv = backend(x).conv
        x = conv.laid_out(x, x.dtype)
        self.x, self.w, self.how = x, w, (stride, padding, dilation, groups)
        return conv.grad_input(x, w, (x.shape[0], w.shape[1] * groups, *size), *self.how, b)

    def backward(self, dy: Any) -> Any:
        x, w, conv = self.x, self.w, backend(dy).conv
        dy = conv.laid_out(dy, dy.dtype)
        dx = dw = db = None
        if self.needs[1]:  # first, as in kernels/reference/conv.py
            dw, _ = conv.grad_weight(x, dy, w.shape, *self.how, False, w)
        if self.needs[2]:
            db = conv.grad_bias(dy)
        if self.needs[0]:
            dx = conv.forward(dy, w, None, *self.how)
        return dx, dw, db

    def gradient(self, dy: Any) -> Any:
        x, w = self.input(0, self.x, dy), self.input(1, self.w, dy)
        how = _named(self.how)
        dx = dw = db = None
        if self.needs[0]:
            dx = Convolution.apply(dy, w, None, **how)
        if self.needs[1]:
            dw = ConvolutionWeight.apply(x, dy, shape=w.shape, **how)
        if self.needs[2]:
            db = _over_channels(dy)
        return dx, dw, db


class ConvolutionWeight(Function):
    """dW = dy * x, the gradient of a convolution's weights. It is linear in dy and linear in x."""

    def forward(
        self, dy: Any, x: Any, *, shape: Ints, stride: Ints, padding: Pairs, dilation: Ints, groups: int
    ) -> Any:
        conv = backend(x).conv
        dy, x = conv.laid_out(dy, dy.dtype), conv.laid_out(x, x.dtype)
        self.dy, self.x, self.how = dy, x, (stride, padding, dilation, groups)
        return conv.grad_weight(dy, x, shape, *self.how, False)[0]

    def backward(self, dw: Any) -> Any:
        conv = backend(dw).conv
        return (
            conv.forward(self.x, dw, None, *self.how) if self.needs[0] else None,
            conv.grad_input(self.dy, dw, self.x.shape, *self.how) if self.needs[1] else None,
        )

    def gradient(self, dw: Any) -> Any:
        dy, x, how = self.input(0, self.dy, dw), self.input(1, self.x, dw), _named(self.how)
        return (
            Convolution.apply(x, dw, None, **how) if self.needs[0] else None,
            ConvolutionTranspose.apply(dy, dw, None, size=x.shape[2:], **how) if self.needs[1] else None,
        )


def _named(how: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(("stride", "padding", "dilation", "groups"), how, strict=True))


def _over_channels(dy: Any) -> Any:
    """Return the gradient of a bias, which is the sum of dy for each channel."""
    return dy.sum((0, *range(2, dy.ndim)))


class CastLaidOut(Cast):
    """Casts images or weights to the type of a convolution, in the memory order that the convolution reads."""

    def forward(self, x: Any, *, dtype: Any) -> Any:
        self.dtype, self.rows = x.dtype, x.flags.c_contiguous
        return backend(x).conv.laid_out(x, dtype)

    def backward(self, dy: Any) -> Any:
        return backend(dy).copying.cast(dy, self.dtype, "C" if self.rows else "K")


def _back_to(x_size: Ints, y_size: Ints, kernel: Ints, stride: Ints, padding: Pairs, dilation: Ints) -> Pairs:
    """Return the padding with which a convolution maps y_size to x_size.

    If output_padding is a stride or more, y is so long that the convolution would have more results than x has
    elements. The extra results would read elements of y that depend on no element of x. So the padding at the end is
    reduced by one stride for each extra result. A negative padding cuts off elements of y.
    """
    results = output_shape(y_size, kernel, stride, padding, dilation)
    return tuple(
        (low, high - (there - wanted) * s)
        for (low, high), there, wanted, s in zip(padding, results, x_size, stride, strict=True)
    )
