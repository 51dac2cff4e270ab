"""Activations with corners: lines, thresholds and gaps. All functions keep the shape and the float type of the input.

The functions accept `inplace` so that a model written for PyTorch runs, but the result is always a new tensor.
"""

from __future__ import annotations

from minorm.devices import dtypes
from minorm.functional.activation import leaky_relu
from minorm.functional.argument_texts import ELEMENTWISE
from minorm.functional.arguments import floats, holds_integers
from minorm.graph import trace
from minorm.kernels import draws
from minorm.support.documented import documented
from minorm.tensor.combining import where
from minorm.tensor.tensor import Tensor


@documented(ELEMENTWISE, weight="the slope below 0: one element, or one for each channel (axis 1)")
@trace.operation
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """y = x where x > 0, else weight * x. The slope `weight` is learned.

    Raises ValueError unless there is one weight, or one weight for each channel.

    Example:
        >>> F.prelu(mn.tensor([[-1.0, -1.0, 2.0]]), mn.tensor([0.1, 0.2, 0.3]))
        tensor([[-0.1, -0.2,  2. ]])

    Its ONNX operator is PRelu; He et al. 2015, arXiv:1502.01852.
    """
    floats("prelu", (), input=input, weight=weight)
    if weight.ndim > 1 or weight.numel() not in (1, input.shape[1] if input.ndim > 1 else 1):
        raise ValueError(f"prelu: weight has shape {weight.shape}; expected (1,), or one element for each channel of "
                         f"{input.shape}")  # fmt: skip
    slope = weight.reshape(-1, *(1,) * (input.ndim - 2)) if input.ndim > 1 else weight.reshape(())
    return where(input > 0, input, slope * input)


@documented(ELEMENTWISE, min_val="the smallest y", max_val="the largest y, at least min_val")
@trace.operation
def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:  # noqa: ARG001
    """y = min(max(x, min_val), max_val). The slope of y is 0 at the bounds and outside.

    Integers stay integers, and the bounds are then truncated to integers. Raises ValueError if min_val is above
    max_val, and if min_val is negative for unsigned integers.

    Example:
        >>> F.hardtanh(mn.tensor([-3.0, 0.5, 3.0]))
        tensor([-1. ,  0.5,  1. ])

    Its ONNX operator is Clip.
    """
    is_integer = holds_integers("hardtanh", "input", input)
    if not min_val <= max_val:
        raise ValueError(f"hardtanh: min_val is {min_val}, max_val is {max_val}; expected min_val <= max_val")
    if is_integer:
        if min_val < 0 and input.array.dtype.kind == "u":
            raise ValueError(f"hardtanh: min_val is {min_val}, input is {input.dtype}; expected min_val of at least 0")
        return input.clip(int(min_val), int(max_val))
    inside = (input > min_val) & (input < max_val)
    return where(inside, input, input.detach().clip(min_val, max_val))


@documented(ELEMENTWISE, threshold="x stays where it is above this", value="the value of y elsewhere")
@trace.operation
def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:  # noqa: ARG001
    """y = x where x > threshold, else value. If x holds integers, threshold and value are truncated to integers.

    Example:
        >>> F.threshold(mn.tensor([0.5, 2.0]), threshold=1.0, value=-1.0)
        tensor([-1.,  2.])

    For value = 0, ONNX ThresholdedRelu does the same.
    """
    if holds_integers("threshold", "input", input):
        threshold, value = int(threshold), int(value)
    return where(input <= threshold, value, input)


@documented(ELEMENTWISE, lambd="half the width of the gap around 0")
@trace.operation
def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """y = x where |x| > lambd, else 0

    Example:
        >>> F.hardshrink(mn.tensor([-2.0, 0.3, 2.0]))
        tensor([-2.,  0.,  2.])

    ONNX Shrink with bias = 0 does the same.
    """
    floats("hardshrink", input=input)
    return where((input >= -lambd) & (input <= lambd), 0.0, input)


@documented(ELEMENTWISE, lambd="how far x moves, at least 0")
@trace.operation
def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """y = sign(x) * max(|x| - lambd, 0): y is x moved by lambd towards 0, and 0 where |x| <= lambd

    Raises ValueError for lambd below 0.

    Example:
        >>> F.softshrink(mn.tensor([-2.0, 0.3, 2.0]))
        tensor([-1.5,  0. ,  1.5])

    ONNX Shrink with bias = lambd does the same.
    """
    floats("softshrink", input=input)
    if not lambd >= 0:
        raise ValueError(f"softshrink: lambd is {lambd}; expected a number of at least 0")
    moved = where(input > 0, input - lambd, input + lambd)
    return where((input >= -lambd) & (input <= lambd), 0.0, moved)


@documented(
    ELEMENTWISE,
    lower="the smallest slope below 0",
    upper="the largest slope below 0, at least lower",
    training="True draws a slope for each element, False uses (lower + upper) / 2",
)
@trace.operation
def rrelu(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,  # noqa: ARG001
) -> Tensor:
    """y = x where x > 0, else slope * x, with a random slope between lower and upper for each element.

    In evaluation the slope is (lower + upper) / 2. Raises ValueError if lower > upper. The draws come from minorm's
    generator, so they repeat after `minorm.manual_seed` with the same seed.

    Example:
        >>> F.rrelu(mn.tensor([-1.0, 2.0]), lower=0.1, upper=0.3)
        tensor([-0.2,  2. ])

    Xu et al. 2015, arXiv:1505.00853.
    """
    floats("rrelu", input=input)
    if not lower <= upper:
        raise ValueError(f"rrelu: lower is {lower}, upper is {upper}; expected lower <= upper")
    if not training:
        return leaky_relu(input, (lower + upper) / 2)
    slopes = draws.uniform(input.shape, dtypes.float64, input.device, None, lower, upper)
    return where(input > 0, input, Tensor(slopes).to(input.dtype) * input)
