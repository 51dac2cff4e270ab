"""Activations with corners: lines, thresholds and gaps. Every one keeps the shape and the float type of its input.

`inplace` is there so that a definition written for PyTorch runs; the result is always a new tensor.
"""

from __future__ import annotations

import numpy as np

from minorm import random, trace
from minorm.functional.activation import leaky_relu
from minorm.functional.arguments import floats
from minorm.joining import where
from minorm.tensor import Tensor


@trace.operation
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """x where x > 0, else weight * x; weight has one element, or one for each channel (axis 1)."""
    floats("prelu", (), input=input, weight=weight)
    if weight.ndim > 1 or weight.numel() not in (1, input.shape[1] if input.ndim > 1 else 1):
        raise ValueError(f"prelu: weight has shape {weight.shape}; expected (1,), or one element for each channel of "
                         f"{input.shape}")  # fmt: skip
    slope = weight.reshape(-1, *(1,) * (input.ndim - 2)) if input.ndim > 1 else weight.reshape(())
    return where(input > 0, input, slope * input)


@trace.operation
def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:  # noqa: ARG001
    """min(max(x, min_val), max_val); slope 0 from the bounds on."""
    floats("hardtanh", input=input)
    if not min_val <= max_val:
        raise ValueError(f"hardtanh: min_val is {min_val}, max_val is {max_val}; expected min_val <= max_val")
    inside = (input > min_val) & (input < max_val)
    return where(inside, input, input.detach().clip(min_val, max_val))


@trace.operation
def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:  # noqa: ARG001
    """x where x > threshold, else value"""
    floats("threshold", input=input)
    return where(input <= threshold, value, input)


@trace.operation
def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x where |x| > lambd, else 0"""
    floats("hardshrink", input=input)
    return where((input >= -lambd) & (input <= lambd), 0.0, input)


@trace.operation
def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x moved by lambd towards 0, and 0 where |x| <= lambd"""
    floats("softshrink", input=input)
    if not lambd >= 0:
        raise ValueError(f"softshrink: lambd is {lambd}; expected a number of at least 0")
    moved = where(input > 0, input - lambd, input + lambd)
    return where((input >= -lambd) & (input <= lambd), 0.0, moved)


@trace.operation
def rrelu(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,  # noqa: ARG001
) -> Tensor:
    """x where x > 0, else a * x, a drawn from lower to upper for each element; their mean in evaluation.

    Source: Xu et al. 2015, arXiv:1505.00853.
    """
    floats("rrelu", input=input)
    if not lower <= upper:
        raise ValueError(f"rrelu: lower is {lower}, upper is {upper}; expected lower <= upper")
    if not training:
        return leaky_relu(input, (lower + upper) / 2)
    slopes = random.generator().uniform(lower, upper, input.shape)
    return where(input > 0, input, Tensor(np.asarray(slopes, input.dtype)).to(input.device) * input)
