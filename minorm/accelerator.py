"""PyTorch's newer names of functions that look for a GPU: `accelerator.is_available()`, `current_accelerator()` ..."""

from __future__ import annotations

from minorm import cuda
from minorm.cuda import device_count, is_available, synchronize
from minorm.devices import device
from minorm.support.documented import documented

__all__ = ["current_accelerator", "device_count", "is_available", "synchronize"]


@documented({}, check_available="accepted, without effect: the function always checks whether a GPU can be used")
def current_accelerator(check_available: bool = False) -> device | None:  # noqa: ARG001  both ask what is there
    """Return device("cuda"), or None if no GPU can be used."""
    return device("cuda") if cuda.is_available() else None
