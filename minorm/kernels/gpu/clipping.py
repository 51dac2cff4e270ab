"""Clips lists of gradients on CuPy arrays; see clipping.cu. The host does not wait for the GPU.

The norm of up to 192 arrays of one type takes one launch, and clipping them another. Arrays with gaps or on the CPU are
copied, and copied back. GPUs exchange the sums of their chunks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import cupy
import numpy as np

from minorm import devices
from minorm.devices import dtypes
from minorm.kernels.gpu import copying, launch, memory
from minorm.kernels.gpu.plans import clip_plan
from minorm.kernels.gpu.plans.structs import Struct
from minorm.kernels.gpu.program import Program
from minorm.kernels.order import is_dense

_program = Program("clipping.cu")

_KINDS = {2.0: "squares", 1.0: "absolutes", math.inf: "largest"}
_long, _int, _double = np.dtype(np.int64).type, np.dtype(np.int32).type, np.dtype(np.float64).type


class _Group(NamedTuple):
    """Arrays of one type on one device, without gaps."""

    arrays: list[Any]
    length: int  # the elements of a chunk
    launches: list[clip_plan.Launch]
    key: tuple[Any, ...]  # the first arguments of the kernels' templates

    @property
    def chunks(self) -> int:
        return sum(each.chunks for each in self.launches)


def clip_norm(arrays: list[Any], most: float, p: float, look: Callable[[Any], None] | None) -> Any:
    """Multiply all arrays by most / (norm + 1e-6), if the norm of all elements is above `most`. Return the norm.

    The arrays are floats. The norm is an array without axes, of the first array's type. `look`, if it is not None, gets
    the norm before anything changes.
    """
    kind, dtype = _KINDS.get(p, "powers"), arrays[0].dtype
    dense, groups = _grouped(arrays)
    parts = {device: _parts(mine, kind, p) for device, mine in groups.items()}
    home = dense[0].device.id
    with dense[0].device:
        result = memory.empty((), dtype)

    def measure() -> None:
        nothing = [*clip_plan.launches([], [0], clip_plan.SHORTEST)]
        with dense[0].device:
            group = _Group([], clip_plan.SHORTEST, nothing, _key(dtype, 1))
            _clip(group, _gathered(parts, home), kind, p, most, result)

    if look is not None:
        measure()
        look(result)
    written = look is not None
    for device, mine in groups.items():
        with cupy.cuda.Device(device):
            given = _gathered(parts, device)
            for group in mine:
                writes = not written and device == home and group.arrays[0].dtype == dtype
                _clip(group, given, kind, p, most, result if writes else None)
                written = written or writes
    if not written:  # the first array is empty, and no other has its type
        measure()
    _copy_back(arrays, dense)
    return result


def clip_value(arrays: list[Any], most: float) -> None:
    """Limit all elements of float arrays to -most and most. NaN stays."""
    dense, groups = _grouped(arrays)
    for device, mine in groups.items():
        with cupy.cuda.Device(device):
            for group in mine:
                with np.errstate(over="ignore"):  # infinity is no limit
                    number = group.key[1].type(group.key[0].type(most))
                for part in group.launches:
                    kernel = _program.kernel("clip_value", *group.key)
                    kernel((part.chunks,), (clip_plan.THREADS,), (Struct(part.struct), _long(group.length), number))
    _copy_back(arrays, dense)


def _key(dtype: Any, width: int) -> tuple[Any, ...]:
    return dtype, dtypes.compute_type(dtype), width


def _grouped(arrays: list[Any]) -> tuple[list[Any], dict[int, list[_Group]]]:
    """Return the arrays on GPUs and without gaps, and groups of them by the number of their device.

    Empty arrays are in no group.
    """
    dense = []
    found: dict[tuple[int, Any], list[Any]] = {}
    place = next(devices.device_of(array) for array in arrays if not devices.is_host(array))
    for given in arrays:
        array = given
        if devices.is_host(array):
            array = devices.to_device(array, place)
        elif not is_dense(array):
            with array.device:
                array = copying.copy(array)
        dense.append(array)
        if array.size:
            found.setdefault((array.device.id, array.dtype), []).append(array)
    groups: dict[int, list[_Group]] = {}
    for (device, dtype), same in found.items():
        sizes = [array.size for array in same]
        length = clip_plan.length(sizes)
        width = launch.ACCESS // dtype.itemsize if launch.is_aligned(*same) else 1
        parts = [*clip_plan.launches([array.data.ptr for array in same], sizes, length)]
        groups.setdefault(device, []).append(_Group(same, length, parts, _key(dtype, width)))
    return dense, groups


def _parts(groups: list[_Group], kind: str, p: float) -> Any:
    """Return the sums of all chunks on one device."""
    with groups[0].arrays[0].device:
        parts = memory.empty((sum(group.chunks for group in groups),), dtypes.float64)
        start = 0
        for group in groups:
            for part in group.launches:
                kernel = _program.kernel("add_powers", *group.key, kind)
                given = Struct(part.struct), _long(group.length), _double(p), parts[start:]
                kernel((part.chunks,), (clip_plan.THREADS,), given)
                start += part.chunks
    return parts


def _gathered(parts: dict[int, Any], device: int) -> Any:
    """Return the sums of all devices on one of them, in the order of the arrays' devices."""
    here = [devices.to_device(part, f"cuda:{device}") for part in parts.values()]
    if not here:
        return memory.empty((0,), dtypes.float64)
    return here[0] if len(here) == 1 else cupy.concatenate(here)


def _clip(group: _Group, parts: Any, kind: str, p: float, most: float, result: Any) -> None:
    numbers = _long(group.length), _double(p), _double(most), _int(parts.size), parts
    kernel = _program.kernel("clip_norm", *group.key, kind)
    for number, part in enumerate(group.launches):
        blocks = min(max(1, part.chunks), clip_plan.BLOCKS)
        kernel((blocks,), (clip_plan.THREADS,), (Struct(part.struct), *numbers, None if number else result))


def _copy_back(arrays: list[Any], dense: list[Any]) -> None:
    """Fill the arrays that were copied."""
    for array, copied in zip(arrays, dense, strict=True):
        if devices.is_host(array):
            array[...] = devices.to_device(copied, "cpu")
        elif copied is not array:
            with array.device:
                copying.assign(array, copied)
