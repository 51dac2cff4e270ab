"""Reads PyTorch's .pt files without running code in them.

The file is a zip archive. `data.pkl` is a pickle of the structure, and `data/0`, `data/1` ... have the bytes of the
tensors. First the pickle is interpreted (unpickling.py), with descriptions instead of tensors. If all descriptions fit
the file and the tensors together stay below the limit, the tensors are made.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, BinaryIO

import numpy as np

from minorm.serialization import limits, unpickling
from minorm.serialization.archive import Archive
from minorm.serialization.unpickling import STORAGES, Storage, Tensor

Array = np.ndarray[Any, np.dtype[Any]]
PICKLE = "data.pkl"
MAX_DEPTH = 100
MAX_PARTS = 1_000_000  # or the number of the pickle's bytes, if that is more


def is_one(file: BinaryIO) -> bool:
    """Return True if the file is a zip archive with a data.pkl; set the file's position back to the beginning."""
    zipped = file.read(4) == b"PK\x03\x04"
    file.seek(0)
    if not zipped:
        return False
    try:
        return any(name.endswith(f"/{PICKLE}") for name in Archive(file).entries)
    except ValueError:  # a broken archive: safetensors_file reports it
        return False
    finally:
        file.seek(0)


def read(file: BinaryIO, path: Any, max_bytes: int | None, made: Callable[[Array], Any]) -> Any:
    """Return the saved value: nested dicts, lists, tuples, texts and numbers, with `made(array)` for each tensor.

    max_bytes  the memory that all tensors together may take; None means limits.PT or the file's length, if this is
               larger

    Raise ValueError if the file is damaged or big-endian, or if it holds any other value, such as a whole model or an
    object of a class.
    """
    try:
        archive = Archive(file)
        place = next((name for name in archive.entries if name.endswith(f"/{PICKLE}")), None)
        if place is None:
            raise ValueError(f"the file has no {PICKLE}")
        folder = place.removesuffix(PICKLE)
        order = f"{folder}byteorder"
        if order in archive.entries and (archive.entries[order].size > 6 or archive.read(order) != b"little"):
            raise ValueError("its tensors are big-endian; expected little-endian ones")
        value, length = _run(archive, place)
        tensors = _tensors(value, max(MAX_PARTS, length))
        by_storage = _by_storage(tensors)
        _check(archive, folder, by_storage, max(limits.PT, archive.length) if max_bytes is None else max_bytes)
        arrays: dict[int, Any] = {}
        for storage, views in by_storage.items():
            numbers = _numbers(archive, folder, storage)
            arrays |= {id(tensor): _view(numbers, tensor) for tensor in views}
    except ValueError as error:
        raise ValueError(f"load: {path}: {error}") from None
    return _replaced(value, {key: made(array) for key, array in arrays.items()})


def _run(archive: Archive, place: str) -> tuple[Any, int]:
    """Run the pickle; return its value, and the size of the pickle in bytes."""
    size = archive.entries[place].size
    room = limits.spare(archive.length) - size
    if room < 0:
        raise ValueError(f"its {PICKLE} unpacks to {size:,} bytes, far more than a state_dict of this file can have")
    return unpickling.run(archive.read(place), room), size


def _tensors(value: Any, most: int) -> list[Tensor]:
    """Return the different tensors in the value; raise ValueError if a state_dict cannot hold this value.

    In a pickle of a few bytes, a list can hold another list twice, this list can hold a third list twice, and so on.
    Then a program that visits every part never ends. So each part is counted as often as it occurs, but visited only
    once.
    """
    found: list[Tensor] = []
    seen: dict[int, tuple[int, int]] = {}  # id -> the number of its parts, and their depth; (0, 0) during its visit

    def visit(value: Any, depth: int) -> tuple[int, int]:
        kind = type(value)
        if kind is Tensor:
            if id(value) not in seen:
                seen[id(value)] = (1, 1)
                found.append(value)
            return 1, 1
        if kind not in (dict, list, tuple):
            if kind in (unpickling.Name, Storage):
                raise ValueError("the file holds "
                                 f"{value if kind is unpickling.Name else 'a storage without a tensor'}; expected a "
                                 "state_dict")  # fmt: skip
            return 1, 1
        if not value:
            return 1, 1
        if id(value) not in seen:
            if depth > MAX_DEPTH:
                raise ValueError(f"the file's content is nested more than {MAX_DEPTH} deep")
            seen[id(value)] = (0, 0)
            parts, height = 1, 0
            for item in value.values() if kind is dict else value:
                more, below = visit(item, depth + 1)
                parts, height = parts + more, max(height, below)
            seen[id(value)] = (parts, height + 1)
        parts, height = seen[id(value)]
        if not parts:
            raise ValueError("a list or dict in the file contains itself")
        if depth + height > MAX_DEPTH + 1:
            raise ValueError(f"the file's content is nested more than {MAX_DEPTH} deep")
        if parts > most:
            raise ValueError(f"the lists and dicts in the file contain each other so often that they have {parts:,} "
                             f"parts in all; expected at most {most:,}")  # fmt: skip
        return parts, height

    visit(value, 1)
    return found


def _by_storage(tensors: list[Tensor]) -> dict[Storage, list[Tensor]]:
    """Map each storage to its tensors.

    Raise ValueError if two different storages have the same key, because each would be unpacked separately. PyTorch
    writes equal keys only for storages that are empty.
    """
    found: dict[Storage, list[Tensor]] = {}
    by_key: dict[str, Storage] = {}
    for tensor in tensors:
        storage = tensor.storage
        first = by_key.setdefault(storage.key, storage)
        if first != storage and (first.numbers or storage.numbers):
            raise ValueError(f"storage {storage.key[:60]!r} is a {first.kind} of {first.numbers} numbers in one place, "
                             f"and a {storage.kind} of {storage.numbers} in another; expected the same kind "
                             "and count")  # fmt: skip
        found.setdefault(storage, []).append(tensor)
    return found


def _check(archive: Archive, folder: str, by_storage: dict[Storage, list[Tensor]], max_bytes: int) -> None:
    """Raise ValueError if a storage is missing or incomplete in the file, or the tensors exceed the limit."""
    sizes, stored = {}, 0
    for storage, views in by_storage.items():
        width, name = np.dtype(STORAGES[storage.kind]).itemsize, f"{folder}data/{storage.key}"
        entry = archive.entries.get(name)
        if entry is None:
            raise ValueError(f"storage {storage.key[:60]!r} is missing: the file is damaged")
        if entry.size < storage.numbers * width:
            raise ValueError(f"storage {storage.key[:60]!r} has {entry.size // width} numbers; "
                             f"expected {storage.numbers}")  # fmt: skip
        stored += entry.size
        sizes[storage] = sum(max(1, prod(view.shape)) * width for view in views)
    if (decoded := max(stored, sum(sizes.values()))) > max_bytes:
        raise ValueError(limits.too_large("the tensors together take", decoded, max_bytes))
    if decoded > limits.spare(archive.length):  # find a damaged file before taking memory
        for storage in by_storage:
            _numbers(archive, folder, storage, keep=False)


def _numbers(archive: Archive, folder: str, storage: Storage, keep: bool = True) -> Array:
    """Return the numbers of a storage as a vector; if `keep` is False, only test that they can be read."""
    dtype, name = np.dtype(STORAGES[storage.kind]), f"{folder}data/{storage.key}"
    room = storage.numbers * dtype.itemsize
    numbers = np.empty(room if keep else 0, np.uint8)
    at = 0
    for piece in archive.pieces(name):
        part = np.frombuffer(piece, np.uint8)[: max(0, room - at)]
        if storage.kind == "BoolStorage" and part.max(initial=0) > 1:
            raise ValueError(f"storage {storage.key[:60]!r} holds bools with bytes other than 0 and 1")
        if keep:
            numbers[at : at + len(part)] = part
        at += len(piece)
    return numbers.view(dtype)


def _view(numbers: Array, tensor: Tensor) -> Array:
    """Return the tensor's numbers as a separate array."""
    steps = [  # the stride of an axis of length 1 may be anything
        step * numbers.itemsize if length > 1 else 0 for length, step in zip(tensor.shape, tensor.strides, strict=True)
    ]
    found = np.lib.stride_tricks.as_strided(numbers[tensor.offset :], tensor.shape, steps)
    return -found if tensor.negative else found.copy()


def _replaced(value: Any, arrays: dict[int, Any]) -> Any:
    """Replace descriptions of tensors by arrays; change lists and dicts in place, and keep shared objects shared."""
    done: dict[int, Any] = {}

    def replace(value: Any) -> Any:
        kind = type(value)
        if kind is Tensor:
            return arrays[id(value)]
        if kind not in (dict, list, tuple) or not value:
            return value
        if id(value) not in done:
            if kind is tuple:
                done[id(value)] = tuple(map(replace, value))
            else:
                done[id(value)] = value
                for key, item in value.items() if kind is dict else enumerate(value):
                    value[key] = replace(item)
        return done[id(value)]

    return replace(value)
