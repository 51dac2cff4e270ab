"""PyTorch's older constructors, one for each element type, such as `LongTensor([3, 1])` and `FloatTensor(2, 3)`.

The constructors convert a list, an array or a Tensor. If the arguments are sizes, the result is an uninitialized
Tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minorm.devices import dtypes
from minorm.support.documented import documented
from minorm.tensor import creation
from minorm.tensor.tensor import Tensor


def _constructor(name: str, dtype: Any) -> Callable[..., Tensor]:
    def make(*data: Any) -> Tensor:
        sizes = all(isinstance(size, int) for size in data)
        return creation.empty(*(data or (0,)), dtype=dtype) if sizes else creation.tensor(data[0], dtype=dtype)

    make.__name__ = make.__qualname__ = name
    vars(make)["makes"] = dtype  # for x.type(LongTensor)
    make.__doc__ = f"Make a Tensor of type {dtype}: from data, or uninitialized with the given length of each axis."
    return documented({}, data="a list, an array or a Tensor; or the length of each axis, for uninitialized memory")(
        make
    )


FloatTensor = _constructor("FloatTensor", dtypes.float32)
DoubleTensor = _constructor("DoubleTensor", dtypes.float64)
HalfTensor = _constructor("HalfTensor", dtypes.float16)
LongTensor = _constructor("LongTensor", dtypes.int64)
IntTensor = _constructor("IntTensor", dtypes.int32)
ShortTensor = _constructor("ShortTensor", dtypes.int16)
ByteTensor = _constructor("ByteTensor", dtypes.uint8)
BoolTensor = _constructor("BoolTensor", dtypes.bool)
