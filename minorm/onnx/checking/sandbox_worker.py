"""The separate process that `sandbox.py` starts: it checks and runs a model, and records its progress.

    python sandbox_worker.py FOLDER

FOLDER/request.json says what to do, and FOLDER/feeds.npz holds the inputs. A line goes to FOLDER/progress before and
after each stage, so that the parent process knows in which stage the worker died. The results go to FOLDER/results.npz.
The worker imports nothing of minorm, so that it starts quickly. bfloat16 arrays are passed as their bits.
"""

from __future__ import annotations

import ctypes
import json
import math
import mmap
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

BFLOAT16 = 16  # TensorProto.BFLOAT16
MAX_RANK = 64  # NumPy's limit: a shape in the file may claim millions of axes


def main(folder: str) -> None:
    """Run the stages of the request until a stage fails."""
    with open(os.path.join(folder, "request.json"), encoding="utf-8") as file:
        request = json.load(file)
    limit_resources(request["memory"], request["seconds"])
    with open(os.path.join(folder, "progress"), "w", encoding="utf-8", buffering=1) as progress:

        def stage(name: str, work: Callable[[], Any]) -> Any:
            progress.write(json.dumps({"begin": name}) + "\n")
            begin = time.perf_counter()
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001  any exception is the answer
                text = " ".join(f"{type(error).__name__}: {error}".split())[:1000]
                progress.write(json.dumps({"failed": name, "why": text}) + "\n")
                raise SystemExit(1) from None
            progress.write(json.dumps({"done": name, "seconds": time.perf_counter() - begin}) + "\n")
            return result

        path = within_reach(request["model"])
        if request.get("infer"):
            kinds = stage("infer", lambda: infer(path))
            with open(os.path.join(folder, "kinds.json"), "w", encoding="utf-8") as file:
                json.dump(kinds, file)
            return
        if request["checker"]:
            stage("checker", lambda: check(path, request["checker"] == "full"))
        if "groups" in request:
            session, own = stage("load", lambda: opened(path, request["weights"]))
            stage("answer", lambda: _try_all(session, own, request["groups"], folder))
            return
        if request["run"]:
            session, own = stage("load", lambda: opened(path))
            if request["feeds"] is not None:
                feeds = _fed(os.path.join(folder, "feeds.npz"), request["feeds"])
                results = stage("run", lambda: run(session, feeds))
                stage("answer", lambda: _save(os.path.join(folder, "results.npz"), results[:own]))


def limit_resources(memory: int, seconds: float) -> None:
    """Limit this process to `memory` bytes of address space, and its processor time to a bit more than `seconds`."""
    try:
        import resource
    except ImportError:  # Windows
        return
    for kind, amount in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CPU, math.ceil(seconds) + 10)):
        try:
            hard = resource.getrlimit(kind)[1]
            amount = amount if hard == resource.RLIM_INFINITY else min(amount, hard)
            resource.setrlimit(kind, (amount, hard))
        except (ValueError, OSError):  # the system refuses; the parent's time-out still holds
            continue


def is_utf8(path: str) -> bool:
    """Return True if a path is UTF-8. File names may be any bytes, but the C++ libraries accept only UTF-8."""
    return not any("\udc80" <= c <= "\udcff" for c in path)


def within_reach(path: str) -> str:
    """Return the path; if the path is not UTF-8, change to its folder and return only the file's name."""
    if is_utf8(path):
        return path
    folder, name = os.path.split(path)
    os.chdir(folder)
    return name


def check(path: str, full: bool) -> None:
    """Run the checker of the onnx package, with or without shape inference."""
    import onnx

    onnx.checker.check_model(path if is_utf8(path) else _bytes(path), full_check=full)


def opened(path: str, folder: str | None = None) -> tuple[Any, int]:
    """Start a session for a file; return the session, and the number of outputs that the file declares.

    The session may have further outputs: the running statistics of `_with_running_outputs`.

    folder    the folder of the external weights; None for the folder of the file
    """
    here = os.path.dirname(path) or os.curdir
    beside = here if folder is None else folder if is_utf8(folder) else within_reach(os.path.join(folder, ""))
    data, more = _with_running_outputs(path)
    model = data or (path if beside == here and is_utf8(path) else _bytes(path))
    session = start(model, beside or os.curdir, exact=_has(path, b"DequantizeLinear"))
    return session, len(session.get_outputs()) - more


def _has(path: str, name: bytes) -> bool:
    """Return True if the operator's name occurs in the bytes of the file, in a node or elsewhere."""
    if not os.path.getsize(path):
        return False
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as contents:
        return contents.find(name) >= 0


def start(model: str | bytes, folder: str | None = None, exact: bool = False) -> Any:
    """Start an onnxruntime session for a file, or for a model's bytes.

    folder    the folder of the model's external weights
    exact     True to turn off optimizations that change results, such as integer products for dequantized weights
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # no log: the exception has the same text about the model
    options.intra_op_num_threads = 1  # no thread pool: a check does not need speed
    if exact:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    if folder is not None and isinstance(model, bytes):
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _bytes(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _with_running_outputs(path: str) -> tuple[bytes, int]:
    """Add the new running statistics of BatchNormalizations in training mode to the outputs of a model.

    Return the bytes of the changed model, and the number of outputs added. Without these outputs, onnxruntime updates
    the statistics in place. Then the normalized values are wrong if onnxruntime has merged the statistics with an equal
    scale or bias.
    """
    if os.path.getsize(path) > 1 << 30 or not _has(path, b"BatchNormalization"):
        return b"", 0
    import onnx  # takes longer than onnxruntime

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
        return b"", 0
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in found)
    return bytes(model.SerializeToString()), len(found)


def run(session: Any, feeds: Mapping[str, tuple[Any, int]]) -> list[tuple[Any, int]]:
    """Return (array, element type) for every output. The feeds are copied, because onnxruntime may write to them."""
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


DTYPES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    BFLOAT16: "float32",
}


def drawn(elem: int, shape: list[int], high: int) -> Any:
    """Draw random numbers, which are the same in each call: normal floats, or integers from 0 to below `high`."""
    random = np.random.default_rng(0)
    if elem not in (1, 10, 11, BFLOAT16):
        return random.integers(0, high, shape).astype(DTYPES[elem])
    array = np.asarray(random.standard_normal(shape)).astype(DTYPES[elem])
    return (array.view(np.uint32) >> 16).astype(np.uint16) if elem == BFLOAT16 else array


def _drawn(size: dict[str, Any]) -> dict[str, tuple[Any, int]]:
    return {
        name: (drawn(elem, shape, size["high"]), elem if elem == BFLOAT16 else 0)
        for name, (elem, shape) in size["inputs"].items()
    }


def _fed(path: str, entries: list[dict[str, Any]]) -> dict[str, tuple[Any, int]]:
    with np.load(path) as arrays:
        return {entry["name"]: (arrays[entry["key"]], entry["type"]) for entry in entries}


def _try_all(session: Any, own: int, groups: list[list[dict[str, Any]]], folder: str) -> None:
    """Try each group's sizes in turn until the model accepts a size.

    Report the index of this size, and the errors of the sizes that were tried before.

    own    the number of the session's outputs to keep
    """
    report = []
    for number, group in enumerate(groups):
        entry: dict[str, Any] = {"taken": None, "errors": []}
        for index, size in enumerate(group):
            given = _fed(os.path.join(folder, size["file"]), size["feeds"]) if "file" in size else _drawn(size)
            try:
                results = run(session, given)[:own]
            except Exception as error:  # noqa: BLE001  any exception means that the model does not take this size
                entry["errors"].append(" ".join(f"{error}".split())[:1000])
                continue
            _save(os.path.join(folder, f"results_{number}.npz"), results)
            entry["taken"] = index
            break
        report.append(entry)
    with open(os.path.join(folder, "report.json"), "w", encoding="utf-8") as file:
        json.dump(report, file)


Known = dict[str, tuple[int, list[Any] | None]]  # value -> element type, lengths


def infer(path: str) -> dict[str, Known]:
    """Return the types and lengths of the values in each graph and each function.

    The keys are the paths of graphs, such as `/3.then_branch`, and the names of functions.
    """
    import onnx

    model = onnx.load(path, load_external_data=False)
    found: dict[str, Known] = {}
    _collect(_inferred(model).graph, "", found)
    pending = [(model.graph.node, "")]
    known = {(f.domain, f.name, f.overload): f for f in model.functions}
    while pending:
        nodes, path = pending.pop()
        for key, function in known.items():
            here = [node for node in nodes if (node.domain, node.op_type, node.overload) == key]
            label = ":".join(key)
            if not here or label in found:
                continue
            body = _as_model(model, function, here, found.get(path, {}))
            _collect(_inferred(body).graph, label, found)
            pending.append((function.node, label))
    return found


def _inferred(model: Any) -> Any:
    import onnx

    return onnx.shape_inference.infer_shapes(model, data_prop=True)


def _as_model(model: Any, function: Any, calls: list[Any], values: Known) -> Any:
    """Turn a function into a model; its inputs get the types and lengths that are the same in all calls."""
    import onnx

    body = onnx.ModelProto(ir_version=model.ir_version, opset_import=function.opset_import, functions=model.functions)
    for place, name in enumerate(function.input):
        kinds = [values.get(call.input[place], (0, None)) for call in calls if place < len(call.input)]
        elems, shapes = {elem for elem, _ in kinds}, [shape for _, shape in kinds]
        if len(elems) != 1 or 0 in elems:
            continue
        entry = onnx.helper.make_tensor_value_info(name, elems.pop(), None)
        if None not in shapes and len({len(shape) for shape in shapes if shape is not None}) == 1:
            axes = zip(*[shape for shape in shapes if shape is not None], strict=True)
            agreed = [lengths[0] if len(set(map(str, lengths))) == 1 else None for lengths in axes]
            entry = onnx.helper.make_tensor_value_info(name, entry.type.tensor_type.elem_type, agreed)
        body.graph.input.append(entry)
    given = {a.name: a for a in (*function.attribute_proto, *calls[0].attribute)}
    body.graph.node.extend(function.node)
    for node in body.graph.node:
        for attribute in [a for a in node.attribute if a.ref_attr_name]:
            name, source = attribute.name, given.get(attribute.ref_attr_name)
            node.attribute.remove(attribute)
            if source is not None:
                node.attribute.add().CopyFrom(source)
                node.attribute[-1].name = name
    body.graph.name = "body"
    return body


def _collect(graph: Any, path: str, found: dict[str, Known]) -> None:
    """Collect the types and lengths of the values of a graph, and of graphs inside it."""
    values = found.setdefault(path, {})
    for entry in (*graph.input, *graph.value_info, *graph.output):
        kind = entry.type.tensor_type
        if not kind.elem_type:
            continue
        lengths = None
        if kind.HasField("shape") and len(kind.shape.dim) <= MAX_RANK:
            lengths = [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in kind.shape.dim]
        values[entry.name] = (kind.elem_type, lengths)
    for index, node in enumerate(graph.node):
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _collect(attribute.g, f"{path}/{index}.{attribute.name}", found)
            for place, inner in enumerate(attribute.graphs):
                _collect(inner, f"{path}/{index}.{attribute.name}.{place}", found)


def _from_ort(value: Any) -> tuple[Any, int]:
    if value.element_type() != BFLOAT16:
        return value.numpy(), 0
    shape = value.shape()
    bits = (ctypes.c_uint16 * math.prod(shape)).from_address(value.data_ptr())  # numpy() does not know bfloat16
    return np.array(bits, np.uint16).reshape(shape), BFLOAT16


def _save(path: str, results: list[tuple[Any, int]]) -> None:
    if any(array.dtype == object for array, _ in results):
        raise TypeError("an output is not a tensor of numbers")
    np.savez(path, **{f"{i}_{kind}": array for i, (array, kind) in enumerate(results)})


if __name__ == "__main__":
    main(sys.argv[1])
