"""Orders of elements in memory: row-major, or with the channels of images or volumes last.

No result depends on the order.

contiguous         row-major
channels_last      N x C x H x W is stored as N x H x W x C
channels_last_3d   N x C x D x H x W is stored as N x D x H x W x C
preserve           the order of the input, if the input has no gaps
"""

from __future__ import annotations

from typing import Any

from minorm import devices
from minorm.devices import dtypes
from minorm.kernels.order import memory_order
from minorm.kernels.select import backend

RANKS = {dtypes.channels_last: 4, dtypes.channels_last_3d: 5}
_ROWS = (None, dtypes.contiguous_format, dtypes.preserve_format)


def named(memory_format: Any) -> Any:
    """Return minorm's name of an order. The order may be given as an object of PyTorch."""
    return None if memory_format is None else str(memory_format).removeprefix("torch.").removesuffix("_format")


def order_of(operation: str, memory_format: Any, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the axes in their order in memory, from the largest step to the smallest; return None for row-major order.

    Raises ValueError for a wrong name or number of axes.
    """
    memory_format = named(memory_format)
    if memory_format in _ROWS:
        return None
    if memory_format not in RANKS:
        raise ValueError(
            f"{operation}: memory_format={memory_format!r}; expected minorm.contiguous_format, channels_last, "
            "channels_last_3d or preserve_format"
        )
    if len(shape) != RANKS[memory_format]:
        raise ValueError(
            f"{operation}: memory_format={memory_format!r} orders {RANKS[memory_format]} axes; x.shape is {shape}"
        )
    return 0, *range(2, len(shape)), 1


def lies_in(array: Any, memory_format: Any) -> bool:
    """Return whether an array has this order without gaps; return False if the order is for another number of axes."""
    if RANKS.get(named(memory_format), array.ndim) != array.ndim:
        return False
    order = order_of("is_contiguous", memory_format, array.shape)
    return bool((array if order is None else array.transpose(order)).flags.c_contiguous)


def laid_out(operation: str, array: Any, memory_format: Any, like: Any) -> Any:
    """Return a new array in the order memory_format, where None and preserve_format mean the order of `like`."""
    if named(memory_format) in (None, dtypes.preserve_format):
        has_gaps = not like.transpose(memory_order(like)).flags.c_contiguous
        order = None if has_gaps else tuple(memory_order(like))
    else:
        order = order_of(operation, memory_format, array.shape)
    if order is None or order == tuple(range(array.ndim)):
        return array
    back = sorted(range(len(order)), key=order.__getitem__)
    return array.transpose(order).copy().transpose(back)


def in_format(array: Any, memory_format: Any) -> Any:
    """Return an array of a module in the order memory_format: the array itself if it lies so, else a copy.

    Only arrays on a GPU with as many axes as the order are copied. channels_last is for four axes, channels_last_3d for
    five; contiguous is for both.
    """
    memory_format = named(memory_format)
    rank = RANKS.get(memory_format)
    if memory_format in _ROWS[:1] or memory_format == dtypes.preserve_format:
        return array
    if rank is None:
        order_of("Module.to", memory_format, array.shape)  # raises an error for an unknown name
    if devices.is_host(array) or array.ndim not in ([rank] if rank else RANKS.values()):
        return array
    with devices.on_device_of(array):
        return backend(array).conv.in_order(array, rank is not None)


def lies_like(array: Any, like: Any) -> Any:
    """Return an array on a GPU in the order of `like`, which has the same shape: the array itself or a copy.

    An array on the CPU is returned as it is.
    """
    if devices.is_host(array) or devices.is_host(like):
        return array
    with devices.on_device_of(array):
        return backend(array).copying.in_order_of(array, like)
