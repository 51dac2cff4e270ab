"""A learning rate that is a Tensor: it stays the group's own, is read at each step, and schedules fill it in place.

So `group["lr"].fill_(0.01)`, or the same Tensor in several groups, changes the rate as in PyTorch.
"""

from __future__ import annotations

from typing import Any

from minorm.devices import dtypes
from minorm.graph.grad_mode import no_grad
from minorm.tensor.tensor import Tensor


def as_number(rate: Any) -> Any:
    """The rate as a number, where it is a Tensor."""
    return rate.item() if isinstance(rate, Tensor) else rate


def set_rate(group: dict[str, Any], rate: float) -> None:
    """Give a group this rate: into its Tensor, where it has one."""
    held = group["lr"]
    if isinstance(held, Tensor):
        with no_grad():
            held.fill_(rate)
    else:
        group["lr"] = rate


def check_tensor(operation: str, rate: Tensor) -> None:
    """Raise unless a rate is a float Tensor of one element."""
    if rate.numel() != 1:
        raise ValueError(f"{operation}: lr has shape {rate.shape}; expected a Tensor of one element, or a number")
    if not dtypes.is_float(rate.dtype):
        raise TypeError(f"{operation}: lr is {rate.dtype}; expected a float type, or a number")
