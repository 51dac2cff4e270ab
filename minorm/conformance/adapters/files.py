"""Write a case in the way an exporter would: the data are an input, and everything else is a weight."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, helper

from minorm.conformance import formula
from minorm.conformance.case import Case, model


def as_file(case: Case) -> tuple[ModelProto, Any]:
    """Return the case as an ONNX file, and its input array.

    The file declares types and shapes of outputs, which many runtimes need.
    """
    proto = model(dataclasses.replace(case, held=tuple(range(1, len(case.inputs)))))
    declare_outputs(proto, case)
    return proto, case.inputs[0]


def declare_outputs(proto: ModelProto, case: Case) -> None:
    """Write the types and shapes of a case's outputs into its file."""
    due = formula.due(case)
    for (place, name), output in zip(case.file_outputs, proto.graph.output, strict=True):
        value, dtype = due[place]
        shape = None if value is None else np.shape(value)
        output.CopyFrom(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), shape))


@contextmanager
def on_disk(case: Case) -> Iterator[tuple[Path, Any]]:
    """Write the case to a temporary folder.

    Yield the path of the file and the input array; a converter may also write to this folder.
    """
    proto, x = as_file(case)
    with tempfile.TemporaryDirectory(prefix="minorm-") as folder:
        path = Path(folder, "case.onnx")
        path.write_bytes(proto.SerializeToString())
        yield path, x
