"""Reads and writes safetensors files: first a JSON table of contents, then the bytes of the arrays.

    8 bytes    N, the length of the header, an unsigned little-endian integer
    N bytes    the header: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...,
               "__metadata__": {"key": "text"}}, filled up with spaces so that the data starts on a multiple of 8
    the rest   the arrays in C order, little-endian, one after the other without gaps

The writer sorts the data by item size, the largest first, so that every array is aligned. The header keeps the caller's
order. Before the reader allocates anything, it checks everything: it compares the header's entries with the size of the
file and with each other. So reading a file never takes more memory than the file's length. Format:
https://github.com/huggingface/safetensors
"""

from __future__ import annotations

import json
import math
import os
import reprlib
import struct
import sys
from collections.abc import Mapping
from io import BufferedReader
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.serialization import limits
from minorm.serialization.archive import Archive
from minorm.serialization.atomic import replacing
from minorm.serialization.opening import FilePath, regular
from minorm.support.safe_names import printable

Array = np.ndarray[Any, np.dtype[Any]]

MAX_HEADER = limits.HEADER
MAX_AXES = 64  # NumPy's limit
METADATA = "__metadata__"

_PYTORCH_BEFORE_1_6 = bytes.fromhex("80028a0a6cfc9c46f9206aa85019")  # torch.save's magic number as it begins a pickle
_FROM_PYTORCH = (
    "minorm reads safetensors files, but no pickles, because a pickle can run any code; in PyTorch, save the "
    "state_dict with safetensors.torch.save_file, or load the file there and pass its arrays to "
    "model.load_state_dict({name: x.numpy() for name, x in state.items()})"
)

NAMES = {
    dtypes.float64: "F64",
    dtypes.float32: "F32",
    dtypes.float16: "F16",
    dtypes.bfloat16: "BF16",
    dtypes.int64: "I64",
    dtypes.int32: "I32",
    dtypes.int16: "I16",
    dtypes.int8: "I8",
    dtypes.uint64: "U64",
    dtypes.uint32: "U32",
    dtypes.uint16: "U16",
    dtypes.uint8: "U8",
    dtypes.bool: "BOOL",
}
DTYPES = {name: dtype for dtype, name in NAMES.items()}


def write(arrays: Mapping[str, Array], path: FilePath, metadata: Mapping[str, str] | None = None) -> None:
    """Write `arrays` and `metadata` to `path` in one step (minorm.serialization.atomic).

    An array may have any memory order and byte order. An array that is not contiguous and little-endian is copied; only
    one copy exists at a time.
    """
    header: dict[str, Any] = {} if not metadata else {METADATA: _checked_metadata(metadata)}
    for name, array in arrays.items():
        if not isinstance(name, str) or name == METADATA:
            raise ValueError(f"save: {name!r} cannot name an entry; expected a str other than {METADATA!r}")
        dtype = array.dtype.newbyteorder("=")
        if dtype not in NAMES:
            raise TypeError(f"save: entry {name!r} has dtype {array.dtype}; expected one of {_listed(NAMES)}")
        header[name] = {"dtype": NAMES[dtype], "shape": list(array.shape), "data_offsets": None}

    order = sorted(arrays, key=lambda name: -arrays[name].itemsize)
    end = 0
    for name in order:
        start, end = end, end + arrays[name].nbytes
        header[name]["data_offsets"] = [start, end]

    try:
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"save: a name or a metadata text is not valid Unicode: {error}") from None
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER:
        raise ValueError(f"save: names and metadata take {len(text)} bytes; the format allows {MAX_HEADER}")

    with replacing(path) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in order:
            file.write(_little_endian_bytes(arrays[name]))


def _checked_metadata(metadata: Mapping[str, str]) -> dict[str, str]:
    for key, value in metadata.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"save: metadata[{key!r}] is {value!r}; the format holds texts only: str to str")
    return dict(metadata)


def _little_endian_bytes(array: Array) -> memoryview[Any]:
    """Return the array's bytes in the order of the file; copy nothing if they are in this order already."""
    swap = array.dtype.itemsize > 1 and not _is_little_endian(array.dtype)
    flat = np.ascontiguousarray(array).reshape(-1)
    if swap:
        flat = flat.byteswap()
    return flat.view(np.uint8).data  # bfloat16 itself has no buffer protocol


def _is_little_endian(dtype: np.dtype[Any]) -> bool:
    return dtype.byteorder == "<" or (dtype.byteorder in "=|" and sys.byteorder == "little")


def read(path: FilePath) -> tuple[dict[str, Array], dict[str, str]]:
    """Return the arrays (in the header's order) and the metadata of the file at `path`.

    Raise ValueError for any fault: a truncated file, a wrong byte count, gaps, overlaps, bytes after the end, an
    unknown dtype, a repeated name. The error names the file, the entry, the value found and the value expected. Raise
    FileNotFoundError or PermissionError if the file cannot be opened, and OSError if the path is not a regular file.
    """
    name = os.fsdecode(path)
    with regular(path, "load") as file:
        try:
            return _read(file, os.fstat(file.fileno()).st_size)
        except ValueError as error:
            raise ValueError(f"load: {printable(name)}: {_other_format(file) or error}") from None


def _other_format(file: BufferedReader) -> str:
    """If the file has another known format of weights, return a text that names the format and the remedy; else "".

    Only the first bytes and the names of entries are read. A pickle is a program, and this module never runs one.
    """
    file.seek(0)
    start = file.read(len(_PYTORCH_BEFORE_1_6))
    if start[8:9] == b"{":  # a broken safetensors file, whose length may look like the beginning of a pickle
        return ""
    if start.startswith(b"PK\x03\x04"):
        try:
            names = list(Archive(file).entries)
        except ValueError as error:
            return f"this is a zip archive; expected a safetensors file ({error})"
        if any(name.endswith("/data.pkl") or name == "data.pkl" for name in names):
            return f"this is a file of PyTorch (a zip archive with data.pkl in it); {_FROM_PYTORCH}"
        if names and all(name.endswith(".npy") for name in names):
            return "this is an .npz file of NumPy; expected safetensors; load_state_dict takes what numpy.load reads"
        return "this is a zip archive; expected a safetensors file"
    if start == _PYTORCH_BEFORE_1_6:
        return f"this is a file of PyTorch, as versions before 1.6 wrote it; {_FROM_PYTORCH}"
    if start[:1] == b"\x80" and start[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return f"this is a pickle, perhaps of PyTorch; {_FROM_PYTORCH}"
    return ""


def _read(file: BufferedReader, size: int) -> tuple[dict[str, Array], dict[str, str]]:
    header, data_start = _read_header(file, size)
    metadata = header.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError(f"{METADATA} is {short(metadata)}; expected an object of texts")
    entries = {name: _checked_entry(name, entry) for name, entry in header.items()}
    _check_offsets(entries, size - data_start)

    arrays = {}
    for name, (dtype, shape, start, end) in entries.items():
        array = np.empty(shape, dtype)
        file.seek(data_start + start)
        if end > start and file.readinto(array.reshape(-1).view(np.uint8).data) != end - start:
            raise ValueError(f"entry {name!r}: the file became shorter while it was read")
        if dtype == dtypes.bool and array.view(np.uint8).max(initial=0) > 1:
            raise ValueError(f"entry {name!r} is BOOL with bytes other than 0 and 1")
        arrays[name] = array if sys.byteorder == "little" else array.byteswap()
    return arrays, metadata


def _read_header(file: BufferedReader, size: int) -> tuple[dict[str, Any], int]:
    """Return the parsed header and the offset at which the data starts."""
    if size < 8:
        raise ValueError(f"the file has {size} bytes; expected at least 8, which give the length of the header")
    (length,) = struct.unpack("<Q", file.read(8))
    if length > size - 8:
        raise ValueError(f"the first 8 bytes say that the header has {length} bytes, but only {size - 8} bytes follow; "
                         "the file is truncated, or not a safetensors file")  # fmt: skip
    if length > MAX_HEADER:
        raise ValueError(f"the first 8 bytes say that the header has {length} bytes; expected at most {MAX_HEADER}")
    text = file.read(length)
    if not text.startswith(b"{"):
        raise ValueError(f"the header starts with {text[:1]!r}; expected b'{{', the start of a JSON object")
    try:
        header = json.loads(text.decode(), object_pairs_hook=_unique, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("the header is nested too deeply") from None
    except _Duplicate as error:
        raise ValueError(f"the header has the name {error.args[0]!r} twice") from None
    except ValueError as error:  # UnicodeDecodeError, JSONDecodeError and an integer of too many digits
        raise ValueError(f"the header is not JSON: {error}") from None
    return header, 8 + length


class _Duplicate(ValueError):
    pass


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise _Duplicate(name)
            seen.add(name)
    return found


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _checked_entry(name: str, entry: Any) -> tuple[np.dtype[Any], tuple[int, ...], int, int]:
    """Return (dtype, shape, start, end) of an entry; raise ValueError if the entry is wrong or contradicts itself."""
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"entry {name!r} is {short(entry)}; expected an object with dtype, shape and data_offsets")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError(f"entry {name!r}: the name is not valid Unicode") from None
    dtype = DTYPES.get(entry["dtype"]) if isinstance(entry["dtype"], str) else None
    if dtype is None:
        raise ValueError(f"entry {name!r} has dtype {short(entry['dtype'])}; expected one of {', '.join(DTYPES)}")
    shape, offsets = entry["shape"], entry["data_offsets"]
    if not _are_sizes(shape) or len(shape) > MAX_AXES:
        raise ValueError(f"entry {name!r} has shape {short(shape)}; "
                         f"expected a list of at most {MAX_AXES} non-negative integers")  # fmt: skip
    if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise ValueError(f"entry {name!r} has data_offsets {short(offsets)}; expected [start, end] with start <= end")
    start, end = offsets
    if math.prod(axis or 1 for axis in shape) * dtype.itemsize >= 1 << 63:  # NumPy's limit, even with a 0 axis
        raise ValueError(f"entry {name!r} has shape {short(shape)}, larger than any array can be")
    if end - start != (expected := math.prod(shape) * dtype.itemsize):
        raise ValueError(f"entry {name!r}: data_offsets {offsets} span {end - start} bytes; expected {expected} for "
                         f"shape {shape} of {entry['dtype']}")  # fmt: skip
    return dtype, tuple(shape), start, end


def _are_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 1 << 63 for item in value)


def _check_offsets(entries: Mapping[str, tuple[Any, Any, int, int]], size: int) -> None:
    """Check that each entry starts at the end of the entry before it, and that the last entry ends with the file."""
    at = 0
    for name, (_, _, start, end) in sorted(entries.items(), key=lambda item: item[1][2:]):
        if start != at:
            what = "overlaps the entry before it" if start < at else "leaves a hole before it"
            raise ValueError(f"entry {name!r} {what}: it starts at byte {start} of the data; expected byte {at}")
        at = end
    if at > size:
        raise ValueError(f"the entries take {at} bytes, but the file has only {size}, so it is truncated")
    if at < size:
        raise ValueError(f"the entries take {at} bytes, but the file has {size}; expected no bytes after the entries")


_repr = reprlib.Repr()
_repr.maxstring = _repr.maxlong = 60
short = _repr.repr  # shortens a value from a file, which may be very long or deep


def _listed(names: Mapping[np.dtype[Any], str]) -> str:
    return ", ".join(map(str, names))
