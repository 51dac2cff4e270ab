"""Converts all tensors of a module to another type or device. All new arrays are made before the first tensor changes.

If memory runs out, or the user presses Ctrl-C, the module is unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from minorm import devices
from minorm.devices import dtypes
from minorm.tensor.tensor import Tensor


class Conversion:
    """convert(tensor) returns the tensor in the type `dtype` and on the device `device`. If `dtype` is None, the type
    does not change. If `device` is None, the device does not change.

    Integers keep their type.

    tensors  the tensors to convert; the constructor makes a new array for each tensor and each gradient, so several
             calls for one tensor return the same array
    """

    def __init__(self, tensors: Iterable[Tensor], device: Any, dtype: Any) -> None:
        self.device, self.dtype = device, dtype
        found = {id(tensor): tensor for tensor in tensors}  # each once, even if modules share it
        found |= {id(tensor.grad): tensor.grad for tensor in found.values() if tensor.grad is not None}
        self._made = {key: (tensor, self._converted(tensor.array)) for key, tensor in found.items()}

    def __call__(self, tensor: Tensor) -> Tensor:
        """Return the converted tensor."""
        made = self._made.get(id(tensor))  # None for a tensor that an override of `_apply` converts besides `tensors`
        return Tensor.from_array(self._converted(tensor.array) if made is None else made[1])

    def _converted(self, array: Any) -> Any:
        if self.dtype is not None and dtypes.is_float(array.dtype):
            with devices.on_device_of(array):
                array = array.astype(self.dtype, copy=False)
        return array if self.device is None else devices.to_device(array, self.device)
