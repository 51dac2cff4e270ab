"""Write weights to a second file beside the model, on request or if one file of 2 GiB cannot hold the model.

`model.onnx` then says where the bytes of each large initializer are in `model.onnx.data`. The bytes of each
initializer begin on a page (4096 bytes), so that a runtime can map the file instead of reading it.

The two files change together. The new weights get a file name that the old model does not use. Once the
weights are on the disk and the model is verified, the new model replaces the old file in one step, and the old weights
are deleted.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import IO, Any

import numpy as np
import onnx

from minorm.onnx.graph import encoding
from minorm.onnx.graph.encoding import LARGEST
from minorm.onnx.graph.errors import ExportError, LoadError
from minorm.serialization import atomic, limits

Path = str | os.PathLike[str] | IO[bytes] | None  # the target of a model: a file's name, a binary file, or None

MARGIN = 2**24  # the bytes of these that are kept for the graph itself
PAGE = 4096  # each tensor begins at a multiple of this
LEAST = 1024  # bytes; smaller tensors stay in the model


class Weights:
    """Collects the arrays for the weights file, and assigns each array an offset in this file.

    path       the model's file; None to keep everything inside the model. A path that cannot be a file raises OSError
    asked      True to move all tensors of at least 1 KiB; None to move these tensors only if the model would not fit
               into one file; False to move no tensor
    operation  the name of the writing operation, for errors
    """

    def __init__(
        self, path: str | os.PathLike[str] | None, asked: bool | None = None, operation: str = "export"
    ) -> None:
        if asked and path is None:
            raise ValueError(
                f"{operation}: external_data=True needs a file name as path; the weights lie beside that file"
            )
        self.path = None if path is None else atomic.destination(path, operation)
        self.asked, self.operation = asked, operation
        self.location = _unused_name(self.path) if self.path is not None else ""
        self.arrays: list[tuple[int, Any]] = []  # offset, array
        self.end = 0
        self.active = False

    def decide(self, arrays: Sequence[Any]) -> None:
        """Decide from the size of all arrays of the model whether large arrays go to the weights file."""
        total = sum(array.nbytes for array in arrays)
        self.active = bool(self.asked) or (self.asked is None and total > LARGEST - MARGIN)
        if total > LARGEST - MARGIN and (self.path is None or self.asked is False):
            raise ExportError(
                f"{self.operation}: the weights take {total} bytes; one ONNX file holds less than 2147483648: "
                + ("leave external_data to its default" if self.path is not None else "give a file name as path, ")
                + ("" if self.path is not None else "so that the weights can go to a file beside the model")
            )

    def take(self, array: Any, tensor: Any) -> bool:
        """Plan to store `array` in the weights file, and record the file name, offset and length in `tensor`.

        Return False if the array stays in the model.
        """
        if not self.active or array.nbytes < LEAST:
            return False
        offset = -(-self.end // PAGE) * PAGE
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", self.location), ("offset", offset), ("length", array.nbytes)):
            tensor.external_data.add(key=key, value=str(value))
        self.arrays.append((offset, array))
        self.end = offset + array.nbytes
        return True

    def write(self, file: Any) -> None:
        """Write the weights file, which holds all arrays, to `file`; at most one array is copied at a time."""
        end = 0
        for offset, array in self.arrays:
            file.write(b"\0" * (offset - end))
            data = np.ascontiguousarray(array)
            if sys.byteorder == "big":
                data = data.byteswap()
            file.write(data.reshape(-1).view(np.uint8).data)
            end = offset + array.nbytes


def write(model: onnx.ModelProto, path: Path, weights: Weights, check: Callable[[Any], object] | None = None) -> None:
    """Write the model to `path`, unless `check` raises an error.

    If the model holds all its weights, `check` gets the model. Otherwise, `check` gets the path of the new file.
    """
    if check is not None and not weights.arrays:
        check(model)
    if path is None:
        return
    contents = encoding.encode(model, weights.operation)
    if isinstance(path, (str, os.PathLike)):
        save(contents, weights, check)
    else:
        path.write(contents)


def save(contents: bytes, weights: Weights, check: Callable[[str], object] | None) -> None:
    """Write the model to `weights.path`; call `check` with the path of the new file before the old file is replaced."""
    assert weights.path is not None
    folder = os.path.dirname(weights.path)
    old = _weights_of(weights.path)
    beside = os.path.join(folder, weights.location)
    if weights.arrays:
        with atomic.replacing(beside, weights.operation) as file:
            weights.write(file)
    try:
        if check is not None and weights.arrays:
            # Beside the weights, because a runtime looks for them in the model's folder.
            with atomic.passing(weights.path, weights.operation) as (path, file):
                file.write(contents)
                file.flush()
                check(path)
        with atomic.replacing(weights.path, weights.operation) as file:
            file.write(contents)
    except BaseException:
        if weights.arrays:
            with suppress(OSError):
                os.unlink(beside)
        raise
    for path in old:
        with suppress(OSError):
            os.unlink(path)


def _names(path: str) -> Iterator[str]:
    """Yield the possible names for the weights of a model: `model.onnx.data`, `model.onnx.2.data` ...

    The model stores this name as UTF-8. So if a byte of the model's own name is not UTF-8, this byte becomes `_`.
    """
    folder, model = os.path.split(path)
    name = os.path.join(folder, re.sub("[\udc80-\udcff]", "_", model))
    return (f"{name}.data" if i == 1 else f"{name}.{i}.data" for i in itertools.count(1))


def _unused_name(path: str) -> str:
    return os.path.basename(next(name for name in _names(path) if not os.path.lexists(name)))


def _weights_of(path: str) -> list[str]:
    """List the files of weights that `export` wrote for the model at `path` and that the model uses."""
    found = [name for name in itertools.islice(_names(path), 9) if os.path.isfile(name)]
    if not found or not os.path.isfile(path):
        return []
    try:
        model = encoding.read(path, "export", limits.ONNX)
    except (LoadError, OSError):  # not a model, so it has no weights
        return []
    used = {e.value for tensor in model.graph.initializer for e in tensor.external_data if e.key == "location"}
    return [name for name in found if os.path.basename(name) in used]
