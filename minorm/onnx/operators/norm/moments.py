"""Compute mean and variance of a Tensor with Tensor arithmetic, for nodes with these outputs; x is centred twice.

The mean is rounded to x's type. If x is near 1e6, the error of the mean in float32 is 0.03, and the square of this
error would be a part of the variance. The mean of the centred x is this error, so we subtract it.
"""

from __future__ import annotations

from minorm.tensor.tensor import Tensor


def moments(x: Tensor, axes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Compute mean and population variance over axes; these axes stay with length 1."""
    mean = x.mean(axes, keepdim=True)
    centred = x - mean
    rest = centred.mean(axes, keepdim=True)
    centred = centred - rest
    return mean + rest, (centred * centred).mean(axes, keepdim=True)
