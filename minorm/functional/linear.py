"""The linear layer as a function."""

from __future__ import annotations

from minorm import trace
from minorm.functional.arguments import floats
from minorm.ops.linear import Linear
from minorm.tensor import Tensor


@trace.operation
def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """y = x @ weight.T + bias

    x (..., in), weight (out, in), bias (out) or None, all of one float type; y (..., out).
    """
    floats("linear", x=x, weight=weight, bias=bias)
    if weight.ndim != 2:
        raise ValueError(f"linear: weight has shape {weight.shape}; expected 2 dimensions (out, in)")
    if x.ndim == 0 or x.shape[-1] != weight.shape[1]:
        given = x.shape[-1] if x.ndim else "no"
        raise ValueError(
            f"linear: x has {given} features in its last axis, weight takes {weight.shape[1]}; expected x.shape[-1] == "
            f"weight.shape[1]; x.shape is {x.shape}, weight.shape is {weight.shape}"
            + ("; flatten the axes before: x.flatten(1)" if x.ndim > 2 else "")
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"linear: bias has shape {bias.shape}; expected {weight.shape[:1]}, one number an output")
    return Linear.apply(x, weight, bias)
