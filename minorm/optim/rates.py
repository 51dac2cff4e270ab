"""A learning rate that is a Tensor: the group keeps the Tensor, each step reads it, and schedules change it in place.

So `group["lr"].fill_(0.01)` changes the rate, as in PyTorch, in all groups that share the Tensor.
"""

from __future__ import annotations

from typing import Any

from minorm.devices import dtypes
from minorm.graph.grad_mode import no_grad
from minorm.tensor.tensor import Tensor


def as_number(rate: Any) -> Any:
    """Return the rate as a number if the rate is a Tensor; otherwise return the rate unchanged."""
    return rate.item() if isinstance(rate, Tensor) else rate


def set_rate(group: dict[str, Any], rate: float) -> None:
    """Set the rate of a group; if the rate is a Tensor, change the Tensor in place."""
    held = group["lr"]
    if isinstance(held, Tensor):
        with no_grad():
            held.fill_(rate)
    else:
        group["lr"] = rate


def checked_number(operation: str, name: str, value: Any) -> Any:
    """Return `as_number(value)`; raise ValueError or TypeError for a Tensor that is not a single float."""
    if isinstance(value, Tensor):
        if value.numel() != 1:
            raise ValueError(
                f"{operation}: {name} has shape {value.shape}; expected a Tensor of one element, or a number"
            )
        if not dtypes.is_float(value.dtype):
            raise TypeError(f"{operation}: {name} is {value.dtype}; expected a float type, or a number")
    return as_number(value)
