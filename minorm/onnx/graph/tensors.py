"""Convert a TensorProto to an array, after checking its type, shape and byte count against each other.

If the contents are in another file, this file must be an ordinary file inside the model's folder.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from pathlib import PureWindowsPath
from typing import Any

import numpy as np
from onnx import TensorProto

from minorm.devices import dtypes
from minorm.onnx.graph import memory_budget
from minorm.onnx.graph.errors import LoadError
from minorm.onnx.graph.model_graph import ELEMENT_TYPES
from minorm.onnx.graph.storage import narrow
from minorm.onnx.graph.weights_folder import advice, holds
from minorm.serialization import limits
from minorm.serialization.opening import regular

DTYPES = {code: dtype for dtype, (code, _) in ELEMENT_TYPES.items()}
MAX_RANK = memory_budget.MAX_RANK
FOLDED = 4  # bytes of constants computed when a file is loaded, for each byte of its tensors ...
SPARE = 64 << 20  # ... plus this
LONGEST = 4096  # the most characters of a path
CHUNK = 1 << 16  # the number of elements of protobuf's lists that become Python numbers at once
WIDE = 4  # the least bytes per computed element, because narrow types are computed in wider types

# element type -> the field that holds the elements if raw_data does not, and their type in this field
_FIELDS = {
    dtypes.float32: "float_data",
    dtypes.float64: "double_data",
    dtypes.int64: "int64_data",
    dtypes.uint32: "uint64_data",
    dtypes.uint64: "uint64_data",
}
_ALL_FIELDS = ("float_data", "double_data", "int32_data", "int64_data", "uint64_data", "string_data")


class Budget:
    """Limits the bytes that a model may take: code asks the Budget before it allocates memory."""

    def __init__(self, limit: int = limits.ONNX) -> None:
        self.limit = limit
        self.taken = 0  # bytes that the contents of the file take
        self.computed = 0  # bytes of constants that were computed while the file was loaded

    def take(self, nbytes: int, what: str) -> None:
        """Count `nbytes` bytes that stay allocated; raise LoadError above the limit."""
        if self.taken + nbytes > self.limit:
            raise LoadError(
                f"load: {what} takes {nbytes} bytes, which together with {self.taken} bytes before it is more than "
                f"max_bytes={self.limit}; pass a larger max_bytes (--max-bytes) if you trust the file"
            )
        self.taken += nbytes

    def fits(self, shape: Sequence[int], dtype: Any) -> None:
        """Raise an error if an array of this shape and type may not be allocated."""
        if len(shape) > MAX_RANK:
            raise ValueError(f"the result would have {len(shape)} axes; expected at most {MAX_RANK}")
        nbytes = math.prod(shape) * max(WIDE, np.dtype(dtype).itemsize)
        current = memory_budget.active() or memory_budget.MemoryBudget(self.limit, self.limit)
        current.expect(nbytes, f"a result of shape {tuple(shape)}")

    def check_work(self, steps: int) -> None:
        """Raise an error if a node may not take this many multiplications."""
        (memory_budget.active() or memory_budget.MemoryBudget(self.limit, self.limit)).check_work(steps)

    def folding(self) -> AbstractContextManager[Any]:
        """Limit the size of the constants that are computed during loading, in proportion to the file's tensors."""
        most = min(self.limit, FOLDED * (self.taken - self.computed) + SPARE)
        return memory_budget.entered(memory_budget.MemoryBudget(self.limit, most - self.computed))

    def check_left_to_run(self, needed: int, what: str) -> None:
        """Raise LoadError if a value of `needed` bytes is so large that no run could read it.

        A node that reads a value asks for ROOM times the memory of this value.
        """
        if needed * memory_budget.ROOM > self.limit - self.computed:
            raise LoadError(
                f"load: {what} would take {needed} bytes, and {memory_budget.ROOM} times as many in a node that reads "
                f"it, which is more than max_bytes={self.limit} allows; load with a larger max_bytes (--max-bytes) if "
                "you trust the file"
            )

    def run(self, inputs: Sequence[Any] = (), weights: Collection[int] = ()) -> AbstractContextManager[Any]:
        """Open a run that has the limits of memory_budget.py."""
        return memory_budget.run(self.limit, self.computed, inputs, weights)


def text(value: Any, what: str) -> str:
    """Return `value` if it is text; raise LoadError for bytes, which protobuf gives for text that is not UTF-8."""
    if not isinstance(value, str):
        raise LoadError(f"load: {what} is no UTF-8 text: {value[:40]!r}")
    return value


def element_type(code: int, what: str) -> np.dtype[Any]:
    """Return the dtype of an element type of ONNX; raise LoadError if minorm does not have this type."""
    if code in narrow.TYPES:
        return narrow.TYPES[code]
    if code not in DTYPES:
        known = code in TensorProto.DataType.values()
        name = TensorProto.DataType.Name(code) if known else f"element type {code}, which ONNX does not define"
        raise LoadError(f"load: {what} is {name}; minorm reads bool, integers and floats")
    return DTYPES[code]


def read(tensor: Any, what: str, folder: str | None, budget: Budget) -> Any:
    """Read a TensorProto into a new array. External data must be in `folder`; None forbids external data."""
    dtype = element_type(tensor.data_type, what)
    shape = tuple(tensor.dims)
    if any(n < 0 for n in shape) or len(shape) > MAX_RANK:
        raise LoadError(f"load: {what} has shape {shape}; expected at most {MAX_RANK} lengths of at least 0")
    count = math.prod(shape)
    # NumPy multiplies the other lengths even if one is 0.
    if not count and math.prod(max(n, 1) for n in shape) * dtype.itemsize >= 2**63:
        raise LoadError(f"load: {what} has shape {shape}, whose lengths are too large, although the tensor is empty")
    if tensor.HasField("segment"):
        raise LoadError(f"load: {what} is stored in segments, which minorm does not read")
    if dtype in narrow.BITS:
        budget.take(count, what)
        return _narrow(tensor, what, folder, dtype, shape)
    if tensor.data_location == TensorProto.EXTERNAL:
        budget.take(count * dtype.itemsize, what)
        return _external(tensor, what, folder, dtype, shape)
    used = [name for name in _ALL_FIELDS if len(getattr(tensor, name))]
    raw = tensor.raw_data
    if len(used) + bool(raw) > 1:
        raise LoadError(f"load: {what} stores its elements twice, in {' and '.join([*used, 'raw_data'])}")
    if used and used[0] != _FIELDS.get(dtype, "int32_data"):
        raise LoadError(f"load: {what} is {dtype}, but stores its elements in {used[0]}")
    found, expected = (len(getattr(tensor, used[0])), count) if used else (len(raw), count * dtype.itemsize)
    if found != expected:
        unit = "elements" if used else "bytes"
        raise LoadError(
            f"load: {what} has shape {shape} of {dtype}, which takes {expected} {unit}; the file holds {found}"
        )
    budget.take(count * dtype.itemsize, what)
    return _typed(getattr(tensor, used[0]), dtype, shape, what) if used else _from_bytes(raw, dtype, shape)


def _narrow(tensor: Any, what: str, folder: str | None, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    """Read elements of 8 bits or fewer, one or several per byte, from raw_data, int32_data or another file."""
    count = narrow.nbytes(dtype, math.prod(shape))
    if tensor.data_location == TensorProto.EXTERNAL:
        return narrow.unpacked(_external(tensor, what, folder, np.dtype(np.uint8), (count,)), dtype, shape)
    raw = np.frombuffer(tensor.raw_data, np.uint8) if tensor.raw_data else None
    if raw is None:
        numbers = np.array(tensor.int32_data, np.int64)
        if ((numbers < 0) | (numbers > 255)).any():
            raise LoadError(f"load: {what} is {dtype}, but its elements are stored as numbers outside of 0 to 255")
        raw = numbers.astype(np.uint8)
    if len(raw) != count or (tensor.raw_data and len(tensor.int32_data)):
        raise LoadError(
            f"load: {what} has shape {shape} of {dtype}, which takes {count} bytes; the file holds {len(raw)}"
        )
    return narrow.unpacked(raw, dtype, shape)


def _from_bytes(raw: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    if dtype == dtypes.bool:
        return (np.frombuffer(raw, np.uint8) != 0).reshape(shape)
    stored = np.dtype(f"<u{dtype.itemsize}")
    native = np.frombuffer(raw, stored).astype(stored.newbyteorder("="), copy=isinstance(raw, bytes))
    return native.view(dtype).reshape(shape)


def _typed(values: Any, dtype: np.dtype[Any], shape: tuple[int, ...], what: str) -> Any:
    """Convert elements that protobuf holds as numbers.

    One piece is converted at a time, because a Python number takes more memory than an element.
    """
    held = dtypes.uint16 if dtype in dtypes.HALVES else dtype  # 16-bit floats are stored as bits
    found = np.empty(len(values), held)
    for start in range(0, len(values), CHUNK):
        found[start : start + CHUNK] = _numbers(values[start : start + CHUNK], held, what, dtype)
    return found.view(dtype).reshape(shape)


def _numbers(values: Sequence[Any], held: np.dtype[Any], what: str, dtype: np.dtype[Any]) -> Any:
    if held in (dtypes.float32, dtypes.float64):
        return np.array(values, held)
    wide = np.array(values, np.uint64 if _FIELDS.get(dtype) == "uint64_data" else np.int64)
    narrow = wide.astype(held)
    if held != dtypes.bool and (narrow.astype(wide.dtype) != wide).any():
        raise LoadError(f"load: {what} is {dtype}, but stores elements that this type cannot hold")
    return narrow


# External data


def _external(tensor: Any, what: str, folder: str | None, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    given = {text(e.key, "a key"): text(e.value, f"external data of {what}") for e in tensor.external_data}
    location = given.get("location", "")
    if folder is None:
        raise LoadError(
            f"load: {what} lies in another file, {location!r}; expected the path of the model, because the other file "
            "is in the model's folder"
        )
    nbytes = math.prod(shape) * dtype.itemsize
    offset, length = (
        _whole(given.get(key), default, key, what) for key, default in (("offset", 0), ("length", nbytes))
    )
    if length != nbytes:
        raise LoadError(
            f"load: {what} has shape {shape} of {dtype}, which takes {nbytes} bytes; the file says {length}"
        )
    path = _external_path(folder, location, what)
    try:
        with regular(path, "load", follow=False) as file:
            status = os.fstat(file.fileno())
            if status.st_nlink > 1 and not _is_named(folder, path):
                raise _is_link(what, location, path)
            if offset + nbytes > status.st_size:
                raise LoadError(
                    f"load: {what} lies at bytes {offset} to {offset + nbytes} of {location!r}, which holds "
                    f"{status.st_size}"
                )
            file.seek(offset)
            raw = np.fromfile(file, np.uint8, nbytes)
    except OSError as error:  # the error has the reason and the path, and `location` is the name in the model
        found = str(error).removeprefix("load: ").replace(repr(path), repr(location))
        raise LoadError(f"load: {what} lies in another file: {found}") from error
    return _from_bytes(raw, dtype, shape)


def _whole(text: str | None, default: int, key: str, what: str) -> int:
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise LoadError(f"load: {what} has external data with {key}={text[:40]!r}; expected a whole number")
    return int(text)


def _external_path(folder: str, location: str, what: str) -> str:
    """Return the path of an external file below `folder`; a link must lead into one of the folder's `roots`."""
    if len(location) > LONGEST:
        raise LoadError(f"load: {what} lies in {location[:80]!r}..., a path of {len(location)} characters; expected at "
                        f"most {LONGEST}")  # fmt: skip
    windows = PureWindowsPath(location)
    parts = location.split("/")
    strange = "\\" in location or "\0" in location or windows.drive or windows.root
    if strange or any(part in ("", ".", "..") for part in parts):
        raise LoadError(
            f"load: {what} lies in {location!r}; expected a file inside the model's folder, named by a relative path"
        )
    path = folder
    for part in parts:
        path = os.path.join(path, part)
        if os.path.islink(path):
            return _behind_link(folder, os.path.join(folder, *parts), what, location)
    return path


def _behind_link(folder: str, path: str, what: str, location: str) -> str:
    """Return the real path of a link; raise LoadError if this path is outside the folder's `roots`."""
    real = os.path.realpath(path)
    if not any(holds(root, real) for root in getattr(folder, "roots", ())):
        raise _is_link(what, location, real)
    return real


def _is_named(folder: str, path: str) -> bool:
    return any(holds(root, os.path.realpath(path)) for root in getattr(folder, "named", ()))


def _is_link(what: str, location: str, real: str) -> LoadError:
    return LoadError(f"load: {what} lies in {location!r}, which is a link; {advice(real)}")
