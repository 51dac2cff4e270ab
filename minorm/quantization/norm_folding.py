"""Folds a BatchNorm into the convolution before it.

BatchNorm after a convolution only multiplies each channel by a number and adds a number. If a is
weight / sqrt(var + eps):

    a * (conv(x, W) + c - mean) + bias  ==  conv(x, a W) + (a (c - mean) + bias)

A device computes the right side: one convolution with folded weights. In training, mean and var are the batch's, so `a`
changes from batch to batch; from the freeze on, mean and var are the running statistics (Krishnamoorthi 2018,
arXiv:1806.08342).

The weights have one scale s for each output channel. Then rounding and folding commute, because |a| only multiplies s:

    round(a W / (|a| s)) == sign(a) round(W / s)

So the integers are those of W itself, whatever the statistics are. A change of the batch's variance never moves a
weight from one integer to the next. Training needs no second convolution to compute the batch's statistics.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor

ARGUMENTS = {
    "conv_w": "the weight of the convolution or linear layer, output channels first",
    "conv_b": "the bias of the convolution or linear layer; None is 0",
    "bn_rm": "the normalization's running mean",
    "bn_rv": "the normalization's running variance",
    "bn_eps": "the number that is added to the variance",
    "bn_w": "the normalization's weight; None is 1",
    "bn_b": "the normalization's bias; None is 0",
}


def slope_and_offset(
    mean: Tensor, var: Tensor, eps: float, weight: Tensor | None, bias: Tensor | None, before: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return a and b so that a * y + b is the normalization of y + before."""
    a = 1 / (var + eps).sqrt()
    a = a if weight is None else a * weight
    offset = -mean if before is None else before - mean
    b = a * offset
    return a, b if bias is None else b + bias


@documented(ARGUMENTS)
def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Return the weight and the bias of one layer that replaces a convolution and its BatchNorm.

    The weight is a * conv_w and the bias is a * (conv_b - bn_rm) + bn_b, with a = bn_w / sqrt(bn_rv + bn_eps). Both
    results have gradients.

    Raise ValueError if W and the normalization have different numbers of channels.

    Example:
        >>> conv, norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4).eval()
        >>> weight, bias = mn.quantization.fuse_conv_bn_weights(
        ...     conv.weight, conv.bias, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias
        ... )
        >>> x = mn.randn(1, 3, 5, 5)
        >>> bool((F.conv2d(x, weight, bias) - norm(conv(x))).abs().max() < 1e-5)
        True
    """
    if bn_rm.shape != conv_w.shape[:1]:
        raise ValueError(
            f"fuse_conv_bn_weights: bn_rm has shape {bn_rm.shape}; expected ({conv_w.shape[0]},), one number for each "
            f"output channel; conv_w.shape is {conv_w.shape}"
        )
    a, b = slope_and_offset(bn_rm, bn_rv, bn_eps, bn_w, bn_b, conv_b)
    return conv_w * a.reshape(-1, *(1,) * (conv_w.ndim - 1)), b


def along_channels(y: Any, channels_last: bool) -> tuple[int, ...]:
    """Return the shape in which a vector with one number for each channel broadcasts to y."""
    return (-1,) if channels_last or y.ndim < 2 else (-1, *(1,) * (y.ndim - 2))


def least_bias_step(bias: Any) -> Any:
    """Return the smallest steps (float32) in which int32 can hold each bias plus a sum of products.

    A filter of zeros, or a filter that BatchNorm multiplies by nearly 0, has a tiny scale. In steps of this scale,
    int32 could not hold the bias of the filter.
    """
    return np.maximum(np.abs(bias) / np.float32(2**30), np.float32(1e-30))
