"""Runs a float model and its int8 form in onnxruntime, compares their speed, and checks the int8 form's results."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from minorm.cli.quantize.calibration_images import classes
from minorm.cli.sources import Source
from minorm.tensor.tensor import Tensor
from minorm.training.data import file_preprocessing

PRECISE = "session.x64quantprecision"
TURNS = 7


def written(source: Source, example: Tensor) -> bytes:
    """Return the float model as an ONNX file that contains all its weights."""
    import minorm.onnx

    if source.kind == "onnx" and not source.model.original.outside:
        with open(source.path, "rb") as file:
            return file.read()
    given = None if source.kind == "onnx" else example
    contents: bytes = minorm.onnx.export(source.model, given).SerializeToString()
    return contents


def write(model: Any, example: Tensor, args: argparse.Namespace, source: Source) -> bytes:
    """Write the int8 model, with classes and preprocessing; return its bytes."""
    import minorm.onnx
    from minorm.onnx.graph import encoding
    from minorm.onnx.loading import metadata
    from minorm.serialization import atomic

    proto = minorm.onnx.export(model, example, opset_version=args.opset)
    described = {} if source.preprocessing is None else file_preprocessing.description(source.preprocessing)
    metadata.set_entries(proto, {**metadata.entries_of(proto), **described})
    contents = encoding.encode(proto)
    with atomic.replacing(args.out, "quantize") as file:
        file.write(contents)
    return contents


def compared(floats: bytes, int8: bytes, batches: Sequence[Tensor], mine: Sequence[Tensor]) -> dict[str, Any]:
    """Compare two models in onnxruntime: the float model and its int8 form.

    Return a dict with the milliseconds per batch of both models, and the number of images to which onnxruntime gives
    the same class as minorm. `mine` are minorm's outputs for the batches.

    saturates    whether the processor's sums of two products saturate; onnxruntime's option `PRECISE`
                 prevents this
    """
    import onnxruntime

    sessions = {exact: _session(onnxruntime, int8, exact) for exact in (False, True)}
    answers = {exact: [_run(session, batch) for batch in batches] for exact, session in sessions.items()}
    wanted = classes(mine)
    same = {exact: int((classes([Tensor(y) for y in found]) == wanted).sum()) for exact, found in answers.items()}
    apart = any(not np.array_equal(a, b) for a, b in zip(answers[False], answers[True], strict=True))
    return {
        "float_ms": _milliseconds(_session(onnxruntime, floats, False), batches[0]),
        "int8_ms": _milliseconds(sessions[False], batches[0]),
        "same_class": same[False],
        "same_class_exact": same[True],
        "saturates": apart,
    }


def _session(runtime: Any, contents: bytes, exact: bool) -> Any:
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    if exact:
        options.add_session_config_entry(PRECISE, "1")
    return runtime.InferenceSession(contents, options, providers=["CPUExecutionProvider"])


def _run(session: Any, batch: Tensor) -> Any:
    return session.run(None, {session.get_inputs()[0].name: batch.array})[0]


def _milliseconds(session: Any, batch: Tensor) -> float:
    """Return the median time of a few runs on one batch."""
    times = []
    for _ in range(TURNS):
        start = time.perf_counter()
        _run(session, batch)
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times)
