"""Sends values between processes that do not trust each other: numbers, text, arrays; tuples, lists, dicts of them.

Pickle is not used, because unpickling a stranger's data runs the stranger's code. A message consists of two lengths, a
JSON text, and the bytes of all arrays, one after the other. The JSON text names each array's type, shape and order in
memory. An object that a layer passes to a backend is sent as a name and its parts (minorm/labs/calling/objects.py);
only processes that know the name can rebuild the object.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from minorm.devices import dtypes
from minorm.tensor.tensor import Tensor

LARGEST = 64 << 20  # bytes of the arrays in a message
LONGEST = 1 << 20  # bytes of its JSON: reading it takes a hundred times as long as an array of that size
MOST_AXES = 32
DEEPEST = 50  # lists inside lists
HEADER = struct.Struct("<QQ")
TYPES: dict[str, Any] = {str(dtype): dtype for dtype in dtypes.ALL}

Packers = Mapping[type, tuple[str, Callable[[Any], Any]]]  # class -> name, parts of an object
Makers = Mapping[str, Callable[[Any], Any]]  # name -> an object of its parts

NOTHING: Mapping[Any, Any] = MappingProxyType({})


class WireError(ValueError):
    """Raised for received bytes that are not a message, and for a value that a message cannot hold."""


def encode(value: Any, packers: Packers = NOTHING) -> tuple[bytes, bytes]:
    """Return a value as JSON and the bytes of its arrays; raise WireError for a value that cannot be sent."""
    chunks: list[bytes] = []
    text = json.dumps(_packed(value, chunks, 0, packers)).encode()
    _require(len(text), sum(map(len, chunks)))
    return text, b"".join(chunks)


def decode(text: bytes, body: bytes, makers: Makers = NOTHING) -> Any:
    """Return the value that `encode` turned into `text` and `body`.

    Raise WireError if `encode` cannot have made them.
    """
    try:
        return _unpacked(json.loads(text), memoryview(body), [0], makers)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, OverflowError, MemoryError) as error:
        raise WireError(f"not a message: {type(error).__name__}") from None


def copied(value: Any) -> Any:
    """Encode and decode a value. The result is what another process would receive."""
    return decode(*encode(value))


def leaves(values: Sequence[Any]) -> list[Any]:
    """Return the values inside nested tuples and lists, in order."""
    return [leaf for value in values for leaf in (leaves(value) if isinstance(value, (tuple, list)) else [value])]


def _require(text: int, body: int) -> None:
    if body > LARGEST:
        raise WireError(f"{body >> 20} MB of arrays in one message; expected at most {LARGEST >> 20}")
    if text > LONGEST:
        raise WireError(f"{text >> 10} KB beside arrays in one message; expected at most {LONGEST >> 10}")


class Stream(Protocol):
    """The socket methods that `Line` needs."""

    def recv(self, size: int, /) -> bytes:
        """Return at most `size` bytes; an empty result means the end."""

    def sendall(self, data: bytes, /) -> None:
        """Write all of the data."""

    def settimeout(self, seconds: float, /) -> None:
        """Set the time limit for later calls of recv and sendall."""


class Line:
    """Sends and receives values over a socket, each before a deadline."""

    def __init__(self, connection: Stream, packers: Packers = NOTHING, makers: Makers = NOTHING) -> None:
        self.connection, self.packers, self.makers = connection, packers, makers

    def send(self, value: Any, deadline: float | None = None) -> None:
        """Write one value before the deadline (of time.monotonic).

        TimeoutError is raised after the deadline, and OSError if the receiving process has ended.
        """
        text, body = encode(value, self.packers)
        self._wait(deadline)
        self.connection.sendall(HEADER.pack(len(text), len(body)) + text + body)

    def receive(self, deadline: float | None = None) -> Any:
        """Read and decode one value before the deadline. Raise EOFError if the sending process has ended."""
        sizes = HEADER.unpack(self._read(HEADER.size, deadline))
        _require(*sizes)
        text, body = (self._read(size, deadline) for size in sizes)
        value = decode(text, body, self.makers)
        if deadline is not None and time.monotonic() > deadline:
            raise TimeoutError
        return value

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


def _packed(value: Any, chunks: list[bytes], depth: int, packers: Packers) -> Any:
    if depth > DEEPEST:
        raise WireError(f"lists inside lists, more than {DEEPEST} deep")
    if type(value) in packers:
        name, parts = packers[type(value)]
        return {"object": name, "parts": _packed(parts(value), chunks, depth + 1, packers)}
    if isinstance(value, Tensor):
        value = value.array
    if value is None or isinstance(value, (bool, int, float, str)):
        return bool(value) if isinstance(value, np.bool_) else value
    if isinstance(value, np.dtype) and np.dtype in packers:  # each dtype has its own class
        return {"object": packers[np.dtype][0], "parts": str(value)}
    if isinstance(value, np.generic):
        value = np.asarray(value)
    if isinstance(value, np.ndarray):
        return _packed_array(value, chunks)
    if isinstance(value, (tuple, list)):
        return {type(value).__name__ if type(value) in (tuple, list) else "tuple": [
            _packed(item, chunks, depth + 1, packers) for item in value
        ]}  # fmt: skip
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise WireError("a dict whose keys are not all text")
        return {"dict": {key: _packed(item, chunks, depth + 1, packers) for key, item in value.items()}}
    raise WireError(f"a {type(value).__name__}; expected numbers, text, arrays, or tuples, lists and dicts of them")


def _packed_array(value: Any, chunks: list[bytes]) -> dict[str, Any]:
    """Pack an array's bytes. An array without gaps keeps its order in memory."""
    if value.dtype.newbyteorder("=") not in dtypes.ALL:
        raise WireError(f"an array of {value.dtype}; expected numbers")
    if value.ndim > MOST_AXES:
        raise WireError(f"an array of {value.ndim} axes; expected at most {MOST_AXES}")
    value = value.astype(value.dtype.newbyteorder("="), copy=False)
    found = {"array": str(value.dtype), "shape": value.shape}
    order = sorted(range(value.ndim), key=lambda axis: -value.strides[axis])
    if value.flags.c_contiguous or not value.transpose(order).flags.c_contiguous:
        chunks.append(value.tobytes())
    else:
        chunks.append(value.transpose(order).tobytes())
        found["order"] = order
    return found


def _unpacked(value: Any, body: memoryview, place: list[int], makers: Makers) -> Any:
    if not isinstance(value, dict):
        if isinstance(value, list):
            raise ValueError
        return value
    if "array" in value:
        return _unpacked_array(value, body, place)
    if "object" in value:
        return makers[value["object"]](_unpacked(value["parts"], body, place, makers))
    ((kind, items),) = value.items()
    if kind == "dict":
        return {key: _unpacked(item, body, place, makers) for key, item in items.items()}
    return {"tuple": tuple, "list": list}[kind](_unpacked(item, body, place, makers) for item in items)


def _unpacked_array(value: dict[str, Any], body: memoryview, place: list[int]) -> Any:
    dtype, shape = TYPES[value["array"]], tuple(value["shape"])
    order = value.get("order", list(range(len(shape))))
    if not all(type(n) is int and 0 <= n <= LARGEST for n in shape) or len(shape) > MOST_AXES:
        raise ValueError
    if not all(type(axis) is int for axis in order) or sorted(order) != list(range(len(shape))):
        raise ValueError
    start, place[0] = place[0], place[0] + prod(shape) * dtype.itemsize
    if place[0] > len(body):
        raise ValueError
    lying = np.frombuffer(body[start : place[0]], dtype).reshape([shape[axis] for axis in order]).copy()
    return lying.transpose(np.argsort(order)) if "order" in value else lying
