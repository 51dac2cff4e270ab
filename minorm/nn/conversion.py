"""Another type or device for all tensors of a module: every new array is made first, then they change together.

So where memory does not suffice for one of them, or Ctrl-C is pressed, the module is as it was.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from minorm import devices, dtypes
from minorm.states import completed
from minorm.tensor import Tensor


def convert(tensors: Iterable[Tensor], device: Any, dtype: Any) -> None:
    """Swap the arrays, and those of the gradients, for others of that float type and on that device; None keeps it."""
    found = {id(tensor): tensor for tensor in tensors}  # each once, also where modules share it
    found |= {id(tensor.grad): tensor.grad for tensor in found.values() if tensor.grad is not None}
    made = [(tensor, _converted(tensor.array, device, dtype)) for tensor in found.values()]

    def swap() -> None:
        for tensor, array in made:
            tensor.set_array(array)

    completed(swap)


def _converted(array: Any, device: Any, dtype: Any) -> Any:
    if dtype is not None and dtypes.is_float(array.dtype):
        with devices.on_device_of(array):
            array = array.astype(dtype, copy=False)
    return array if device is None else devices.to_device(array, device)
