"""Mean and variance of a Tensor by its own arithmetic, for nodes that give them out: centred twice.

The mean is rounded to x's type. At an offset of 1e6 that is 0.03 off in float32, and its square would be left in the
variance; the mean of what is centred is that error, and is subtracted.
"""

from __future__ import annotations

from minorm.tensor.tensor import Tensor


def moments(x: Tensor, axes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Mean and population variance over axes, which stay as 1."""
    mean = x.mean(axes, keepdim=True)
    centred = x - mean
    rest = centred.mean(axes, keepdim=True)
    centred = centred - rest
    return mean + rest, (centred * centred).mean(axes, keepdim=True)
