"""Values between two processes that do not trust each other: numbers, text, arrays; tuples, lists and dicts of them.

No pickle: whoever unpickles what a stranger wrote runs the stranger's code. A message is two lengths, a JSON text, and
the bytes of the arrays one after the other; JSON names each array's type and shape.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from math import prod
from typing import Any

import numpy as np

from minorm import dtypes
from minorm.tensor import Tensor

LARGEST = 64 << 20  # bytes of a message
HEADER = struct.Struct("<QQ")
TYPES = {str(dtype): dtype for dtype in dtypes.ALL}


class WireError(ValueError):
    """What came is no message, or what should go has no place in one."""


def encode(value: Any) -> tuple[bytes, bytes]:
    """A value as JSON and the arrays' bytes; WireError names what cannot travel."""
    chunks: list[bytes] = []
    text = json.dumps(_packed(value, chunks, 0)).encode()
    body = b"".join(chunks)
    if len(text) + len(body) > LARGEST:
        raise WireError(f"{(len(text) + len(body)) >> 20} MB in one answer; expected at most {LARGEST >> 20}")
    return text, body


def decode(text: bytes, body: bytes) -> Any:
    """The inverse; WireError for anything that `encode` does not write."""
    try:
        return _unpacked(json.loads(text), memoryview(body), [0])
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, OverflowError, MemoryError) as error:
        raise WireError(f"not a message: {type(error).__name__}") from None


def copied(value: Any) -> Any:
    """The value after a journey: what the other process would see."""
    return decode(*encode(value))


class Line:
    """A socket that carries values, each within a deadline."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    def send(self, value: Any, deadline: float | None = None) -> None:
        """Write one value; TimeoutError after the deadline (of time.monotonic), OSError when nobody is there."""
        text, body = encode(value)
        self._wait(deadline)
        self.connection.sendall(HEADER.pack(len(text), len(body)) + text + body)

    def receive(self, deadline: float | None = None) -> Any:
        """Read one value; EOFError when the other side has gone."""
        sizes = HEADER.unpack(self._read(HEADER.size, deadline))
        if sum(sizes) > LARGEST:
            raise WireError(f"a message of {sum(sizes) >> 20} MB; expected at most {LARGEST >> 20}")
        return decode(*(self._read(size, deadline) for size in sizes))

    def _read(self, size: int, deadline: float | None) -> bytes:
        data = bytearray()
        while len(data) < size:
            self._wait(deadline)
            chunk = self.connection.recv(min(size - len(data), 1 << 20))
            if not chunk:
                raise EOFError
            data += chunk
        return bytes(data)

    def _wait(self, deadline: float | None) -> None:
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self.connection.settimeout(left)


def _packed(value: Any, chunks: list[bytes], depth: int) -> Any:
    if depth > 50:
        raise WireError("lists inside lists, more than 50 deep")
    if isinstance(value, Tensor):
        value = value.array
    if value is None or isinstance(value, (bool, int, float, str)):
        return bool(value) if isinstance(value, np.bool_) else value
    if isinstance(value, np.generic):
        value = np.asarray(value)
    if isinstance(value, np.ndarray):
        if value.dtype.newbyteorder("=") not in dtypes.ALL:
            raise WireError(f"an array of {value.dtype}; expected numbers")
        value = value.astype(value.dtype.newbyteorder("="), copy=False)
        chunks.append(value.tobytes())
        return {"array": str(value.dtype), "shape": value.shape}
    if isinstance(value, (tuple, list)):
        return {type(value).__name__ if type(value) in (tuple, list) else "tuple": [
            _packed(item, chunks, depth + 1) for item in value
        ]}  # fmt: skip
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise WireError("a dict whose keys are not all text")
        return {"dict": {key: _packed(item, chunks, depth + 1) for key, item in value.items()}}
    raise WireError(f"a {type(value).__name__}; expected numbers, text, arrays, or tuples, lists and dicts of them")


def _unpacked(value: Any, body: memoryview, place: list[int]) -> Any:
    if not isinstance(value, dict):
        if isinstance(value, list):
            raise ValueError
        return value
    if "array" in value:
        dtype, shape = TYPES[value["array"]], tuple(value["shape"])
        if not all(type(n) is int and n >= 0 for n in shape):
            raise ValueError
        start, place[0] = place[0], place[0] + prod(shape) * dtype.itemsize
        if place[0] > len(body):
            raise ValueError
        return np.frombuffer(body[start : place[0]], dtype).reshape(shape).copy()
    ((kind, items),) = value.items()
    if kind == "dict":
        return {key: _unpacked(item, body, place) for key, item in items.items()}
    return {"tuple": tuple, "list": list}[kind](_unpacked(item, body, place) for item in items)
