"""Converts all tensors of a module to another type or device: first makes every new array, then changes them together.

If memory runs out, or the user presses Ctrl-C, the module stays as it was.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from minorm import devices
from minorm.devices import dtypes
from minorm.tensor.tensor import Tensor


class Conversion:
    """convert(tensor) returns the tensor in a float type, on a device; None keeps either. Integers keep their type.

    tensors  what will be asked for, with the gradients: their arrays are made at once, and any number of calls gives
             the same ones
    """

    def __init__(self, tensors: Iterable[Tensor], device: Any, dtype: Any) -> None:
        self.device, self.dtype = device, dtype
        found = {id(tensor): tensor for tensor in tensors}  # each once, also where modules share it
        found |= {id(tensor.grad): tensor.grad for tensor in found.values() if tensor.grad is not None}
        self._made = {key: (tensor, self._converted(tensor.array)) for key, tensor in found.items()}

    def __call__(self, tensor: Tensor) -> Tensor:
        """Return the converted tensor."""
        made = self._made.get(id(tensor))  # None for a tensor that an override of `_apply` keeps beside the parameters
        return Tensor.from_array(self._converted(tensor.array) if made is None else made[1])

    def _converted(self, array: Any) -> Any:
        if self.dtype is not None and dtypes.is_float(array.dtype):
            with devices.on_device_of(array):
                array = array.astype(self.dtype, copy=False)
        return array if self.device is None else devices.to_device(array, self.device)
