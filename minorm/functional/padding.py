"""pad: adds elements around a tensor. The new elements are a constant, or copies of the tensor's elements (reflect,
replicate, circular).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minorm.devices import constant_of
from minorm.graph import trace
from minorm.ops.operands import check_room
from minorm.support.argument_errors import not_a_tensor
from minorm.support.documented import documented
from minorm.tensor import combining as constant
from minorm.tensor.tensor import Tensor

COPIES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}  # PyTorch's names: NumPy's and ONNX's


@documented(
    {},
    input="any shape",
    pad="(before, after) for the last axis, then for the axis before it, and so on; negative numbers cut elements off",
    mode='"constant" adds `value`. For the last 1 to 3 axes only: "reflect" mirrors the elements at the first and the '
    'last element, "replicate" repeats the nearest element, "circular" continues with the elements from the other end',
    value='the value of the new elements in mode "constant"; None is 0',
)
@trace.operation
def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """y[..., i] = input[..., i - before] if input has this element; else `value`, or a copy of an element of input.

    `pad` holds a pair (before, after) for each of the last axes; y is longer than input by before + after along the
    axis. Raises ValueError for an unknown mode, and if a width is larger than the number of elements that the mode can
    copy.

    Example:
        >>> F.pad(mn.tensor([1.0, 2.0, 3.0]), (1, 0))
        tensor([0., 1., 2., 3.])
        >>> F.pad(mn.tensor([[1.0, 2.0, 3.0]]), (2, 1), mode="reflect")
        tensor([[3., 2., 1., 2., 3., 2.]])

    Its ONNX operator is Pad.
    """
    if not isinstance(input, Tensor):
        raise not_a_tensor("pad", "input", input)
    if mode == "constant":
        return constant.pad(input, pad, 0.0 if value is None else value)
    if mode not in COPIES:
        raise ValueError(f"pad: mode is {mode!r}; expected 'constant', 'reflect', 'replicate' or 'circular'")
    if value not in (None, 0):
        raise ValueError(f"pad: value is {value}; expected value=None, because mode {mode!r} copies elements")
    if len(pad) % 2 or not 2 <= len(pad) <= 2 * input.ndim:
        raise ValueError(f"pad: pad={tuple(pad)}; expected 1 to {input.ndim} pairs, one for each of the last axes")
    for i in range(len(pad) // 2):
        axis, (low, high) = input.ndim - 1 - i, pad[2 * i : 2 * i + 2]
        most = {"reflect": input.shape[axis] - 1, "circular": input.shape[axis]}.get(mode, max(low, high))
        if max(low, high) > most or not input.shape[axis]:
            raise ValueError(
                f"pad: mode {mode} adds ({low}, {high}) elements to axis {axis} of {input.shape}; expected at most "
                f"{most} on each side"
            )
        if mode == "circular" and min(low, high) < 0:  # cut elements off first, then copy from the new ends
            input = along(input, axis, min(low, 0), min(high, 0), "wrap")
            low, high = max(low, 0), max(high, 0)
        input = along(input, axis, low, high, COPIES[mode])
    return input


def along(x: Tensor, axis: int, low: int, high: int, mode: str) -> Tensor:
    """Add copies of elements at both ends of axis `axis`, or cut elements off where low or high is negative. mode is
    "reflect", "edge" or "wrap".
    """
    if (low, high) == (0, 0):
        return x
    check_room("pad", (x.shape[axis] + max(low, 0), x.shape[axis] + max(high, 0)))
    places = np.pad(np.arange(x.shape[axis]), (max(low, 0), max(high, 0)), mode)  # type: ignore[call-overload]
    places = places[max(0, -low) : len(places) - max(0, -high)]
    return x[(*(slice(None),) * axis, constant_of(places, x.array))]
