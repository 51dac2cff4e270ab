"""Compute mean and variance of a Tensor with Tensor arithmetic, for nodes that output them; x is centred twice.

The mean is rounded to x's type. At an offset of 1e6 that is 0.03 off in float32, and its square would stay in the
variance; the mean of the centred x is that error, and is subtracted.
"""

from __future__ import annotations

from minorm.tensor.tensor import Tensor


def moments(x: Tensor, axes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Compute mean and population variance over axes, which stay with length 1."""
    mean = x.mean(axes, keepdim=True)
    centred = x - mean
    rest = centred.mean(axes, keepdim=True)
    centred = centred - rest
    return mean + rest, (centred * centred).mean(axes, keepdim=True)
