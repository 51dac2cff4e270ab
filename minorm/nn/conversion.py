"""Converts all tensors of a module to another type or device. All new arrays are made before the first tensor changes.

If memory runs out, or the user presses Ctrl-C, the module is unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from minorm import devices
from minorm.devices import dtypes
from minorm.nn import weight_order
from minorm.tensor.memory_formats import in_format, lies_like
from minorm.tensor.tensor import Tensor


class Conversion:
    """convert(tensor) returns the tensor in the type `dtype` and on the device `device`. If `dtype` is None, the type
    does not change. If `device` is None, the device does not change.

    Integers keep their type.

    tensors        the tensors to convert; the constructor makes a new array for each tensor and each gradient, so
                   several calls for one tensor return the same array
    memory_format  the order in memory of tensors on a GPU with as many axes as the order; None keeps the order
    weights        those of the tensors that a convolution reads; on a GPU, they get the order that it reads
    """

    def __init__(
        self, tensors: Iterable[Tensor], device: Any, dtype: Any, memory_format: Any = None, weights: Iterable[Any] = ()
    ) -> None:
        self.device, self.dtype, self.memory_format = device, dtype, memory_format
        found = {id(tensor): tensor for tensor in tensors}  # each once, even if modules share it
        of_convolutions = {id(weight) for weight in weights}
        of_convolutions |= {id(found[key].grad) for key in of_convolutions & found.keys()}
        found |= {id(tensor.grad): tensor.grad for tensor in found.values() if tensor.grad is not None}
        self._made = {
            key: (tensor, self._converted(tensor.array, key in of_convolutions)) for key, tensor in found.items()
        }

    def __call__(self, tensor: Tensor) -> Tensor:
        """Return the converted tensor."""
        made = self._made.get(id(tensor))  # None for a tensor that an override of `_apply` converts besides `tensors`
        return Tensor.from_array(self._converted(tensor.array) if made is None else made[1])

    def _converted(self, array: Any, of_convolution: bool = False) -> Any:
        if self.dtype is not None and dtypes.is_float(array.dtype):
            with devices.on_device_of(array):
                array = array.astype(self.dtype, copy=False)
        if self.device is not None:
            array = lies_like(devices.to_device(array, self.device), array)
        if of_convolution and self.memory_format is None:
            array = weight_order.of_convolution(array, array.dtype)
        return in_format(array, self.memory_format)
