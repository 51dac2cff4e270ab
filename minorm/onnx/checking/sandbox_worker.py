"""The other process of `sandbox.py`: checks and runs one model, and writes down how far it came.

    python sandbox_worker.py FOLDER

FOLDER/request.json says what to do, FOLDER/feeds.npz holds the inputs. A line goes to FOLDER/progress before and after
each stage, so that whoever started this knows in which one it died; the results go to FOLDER/results.npz. It imports
nothing of minorm, so that it starts quickly. bfloat16 travels as its bits.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

BFLOAT16 = 16  # TensorProto.BFLOAT16


def main(folder: str) -> None:
    """Do what the request says, stage after stage, until one fails."""
    with open(os.path.join(folder, "request.json"), encoding="utf-8") as file:
        request = json.load(file)
    limit_resources(request["memory"], request["seconds"])
    with open(os.path.join(folder, "progress"), "w", encoding="utf-8", buffering=1) as progress:

        def stage(name: str, work: Callable[[], Any]) -> Any:
            progress.write(json.dumps({"begin": name}) + "\n")
            begin = time.perf_counter()
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001  whatever it is, it is the answer
                text = " ".join(f"{type(error).__name__}: {error}".split())[:1000]
                progress.write(json.dumps({"failed": name, "why": text}) + "\n")
                raise SystemExit(1) from None
            progress.write(json.dumps({"done": name, "seconds": time.perf_counter() - begin}) + "\n")
            return result

        path = request["model"]
        if request["checker"]:
            stage("checker", lambda: check(path, request["checker"] == "full"))
        if request["run"]:
            session = stage("load", lambda: start(path))
            if request["feeds"] is not None:
                with np.load(os.path.join(folder, "feeds.npz")) as arrays:
                    feeds = {entry["name"]: (arrays[entry["key"]], entry["type"]) for entry in request["feeds"]}
                results = stage("run", lambda: run(session, feeds))
                stage("answer", lambda: _save(os.path.join(folder, "results.npz"), results))


def limit_resources(memory: int, seconds: float) -> None:
    """The address space this process may take, and a time on the processor after which nobody can be waiting."""
    try:
        import resource
    except ImportError:  # Windows
        return
    for kind, amount in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CPU, math.ceil(seconds) + 10)):
        try:
            hard = resource.getrlimit(kind)[1]
            amount = amount if hard == resource.RLIM_INFINITY else min(amount, hard)
            resource.setrlimit(kind, (amount, hard))
        except (ValueError, OSError):  # the system refuses; the time-out of the other process remains
            continue


def check(path: str, full: bool) -> None:
    """The checker of the onnx package, with or without shape inference."""
    import onnx

    onnx.checker.check_model(path, full_check=full)


def start(model: str | bytes, folder: str | None = None) -> Any:
    """An onnxruntime session for a file, or for a model's bytes (`folder`: where its weights lie)."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # what it would say about the model is in the exception
    options.intra_op_num_threads = 1  # a check, not a race: no pool of threads that spin
    if isinstance(model, str):
        folder = os.path.dirname(os.path.abspath(model))
        model = _with_running_outputs(model) or model
    if folder is not None and isinstance(model, bytes):
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _with_running_outputs(path: str) -> bytes | None:
    """The model with the running statistics of training BatchNormalizations as outputs; None if they are.

    Where nobody fetches them, onnxruntime updates the statistics in place, over initializers that it may have merged
    with scale and bias because they were equal: y is then wrong.
    """
    if os.path.getsize(path) > 1 << 30:
        return None
    import onnx

    model = onnx.load(path, load_external_data=False)
    outputs = {entry.name for entry in model.graph.output}
    found = [
        name
        for node in model.graph.node
        if node.op_type == "BatchNormalization"
        for name in node.output[1:3]
        if name and name not in outputs
    ]
    if not found:
        return None
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in found)
    return bytes(model.SerializeToString())


def run(session: Any, feeds: Mapping[str, tuple[Any, int]]) -> list[tuple[Any, int]]:
    """(array, element type) of every output. Feeds are copied: onnxruntime may write to what it is given."""
    import onnxruntime

    feeds = {name: (np.array(array), kind) for name, (array, kind) in feeds.items()}
    kinds = [entry.type for entry in session.get_outputs()]
    if not any(kind == BFLOAT16 for _, kind in feeds.values()) and "tensor(bfloat16)" not in kinds:
        results = session.run(None, {name: array for name, (array, _) in feeds.items()})
        return [(np.asarray(result), 0) for result in results]
    values = {
        name: onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16), BFLOAT16)
        if kind == BFLOAT16
        else onnxruntime.OrtValue.ortvalue_from_numpy(array)
        for name, (array, kind) in feeds.items()
    }
    names = [entry.name for entry in session.get_outputs()]
    return [_from_ort(value) for value in session.run_with_ort_values(names, values)]


def _from_ort(value: Any) -> tuple[Any, int]:
    if value.element_type() != BFLOAT16:
        return value.numpy(), 0
    shape = value.shape()
    bits = (ctypes.c_uint16 * math.prod(shape)).from_address(value.data_ptr())  # numpy() does not know bfloat16
    return np.array(bits, np.uint16).reshape(shape), BFLOAT16


def _save(path: str, results: list[tuple[Any, int]]) -> None:
    if any(array.dtype == object for array, _ in results):
        raise TypeError("an output is no tensor of numbers")
    np.savez(path, **{f"{i}_{kind}": array for i, (array, kind) in enumerate(results)})


if __name__ == "__main__":
    main(sys.argv[1])
