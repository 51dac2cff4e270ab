"""Convert bytes to a ModelProto and back, and check that there is enough memory.

If memory runs out, protobuf may report that a sound file is damaged, or that a sound model cannot be encoded. Protobuf
may also write to a null pointer, which ends the process. So minorm first checks that there is memory for all large
contents, and raises MemoryError if there is too little.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx

from minorm.onnx.graph import footprint
from minorm.onnx.graph.errors import ExportError, LoadError
from minorm.serialization.opening import FilePath, Irregular, regular

LARGEST = 2**31 - 1  # the most bytes of one protobuf file
SPARE = 1 << 20  # bytes that we keep free for small things
GROWTH = 5  # protobuf doubles its output buffer again and again, keeps the earlier buffers, and copies the result


def read(path: FilePath, operation: str, max_bytes: int | None = None) -> onnx.ModelProto:
    """Read the model in the file at `path`, but not the weights in other files.

    max_bytes    the memory that the model may take; None means no limit, for a file that minorm wrote or has read
                 before

    Raise LoadError if the file is not a regular file or not a model. Raise LoadError also if the model takes more
    memory than max_bytes, or far more memory than the file's length. FileNotFoundError and PermissionError pass
    through.
    """
    try:
        with regular(path, operation) as file:
            size = os.fstat(file.fileno()).st_size
            if max_bytes is not None and size > max_bytes:
                raise LoadError(
                    f"{operation}: {os.fsdecode(path)!r} takes {size} bytes, more than max_bytes={max_bytes}; pass a "
                    "larger max_bytes (--max-bytes) if you trust it"
                )
            return parse(file.read(size), f"{operation}: {os.fsdecode(path)!r}", max_bytes)
    except Irregular as error:
        raise LoadError(str(error)) from error


def parse(contents: bytes, what: str, max_bytes: int | None = None) -> onnx.ModelProto:
    """Parse a file's bytes into a model; raise LoadError if the bytes are no model.

    The message of the error begins with `what`.

    max_bytes    as for `read`
    """
    if max_bytes is not None:
        footprint.check(contents, what, max_bytes)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(contents)
    except Exception as error:  # DecodeError of protobuf, a package without type hints
        if isinstance(error, MemoryError) or "alloc" in str(error):
            raise MemoryError(
                f"{what} has {len(contents)} bytes; there is not enough memory for the parsed model"
            ) from None
        raise LoadError(f"{what} is no ONNX model, or a damaged one: {error}") from error
    return model


def encode(model: onnx.ModelProto, operation: str = "export") -> bytes:
    """Encode the model as the bytes of a file; raise ExportError if the model is too large for one file."""
    try:
        contents = bytes(model.SerializeToString())
    except Exception as error:  # EncodeError of protobuf, which gives no reason; a bare MemoryError
        size = _size(model)
        if isinstance(error, MemoryError) or not _is_room(GROWTH * size):
            raise MemoryError(f"{operation}: there is not enough memory to write a model of {size} bytes") from None
        raise ExportError(f"{operation}: protobuf cannot write the model, of about {size} bytes: {error}") from error
    if len(contents) > LARGEST:
        raise ExportError(
            f"{operation}: the model takes {len(contents)} bytes; one ONNX file holds less than 2147483648"
        )
    return contents


def _size(model: onnx.ModelProto) -> int:
    """Return the number of bytes of the initializers that the model itself holds."""
    return sum(
        math.prod(tensor.dims) * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
        for tensor in model.graph.initializer
        if tensor.data_location != onnx.TensorProto.EXTERNAL
    )


def fill(tensors: Iterable[tuple[Any, Any]], operation: str = "export") -> None:
    """Store the elements of each array in the TensorProto of the same pair."""
    for tensor, array in tensors:
        reserve(2 * array.nbytes, f"{operation}: {tensor.name!r} in the model")  # the bytes, and protobuf's copy
        tensor.raw_data = (array.byteswap() if sys.byteorder == "big" else array).tobytes()


PAYLOAD = ("raw_data", "float_data", "double_data", "int32_data", "int64_data", "uint64_data", "string_data")


def describe(tensor: Any, array: Any) -> None:
    """Give a TensorProto the array's type and shape, and clear its contents; `fill` sets the elements later."""
    for name in (*PAYLOAD, "data_location", "external_data", "dims"):
        tensor.ClearField(name)
    tensor.data_type = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    tensor.dims.extend(array.shape)


def reserve(nbytes: int, what: str) -> None:
    """Raise MemoryError if there is no memory for `nbytes` bytes and a small reserve."""
    if not _is_room(nbytes + SPARE):
        raise MemoryError(f"{what} takes {nbytes} bytes; there is not so much memory")


def _is_room(nbytes: int) -> bool:
    try:
        np.empty(nbytes, np.uint8)
    except MemoryError:
        return False
    return True
