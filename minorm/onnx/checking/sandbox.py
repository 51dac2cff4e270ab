"""Run onnxruntime and the onnx checker in a separate process, with a limit on memory and a time-out.

These libraries are C++ code that reads foreign files. Such a file can crash these libraries, make them divide by zero,
keep them busy for ever, or make them allocate a terabyte. Then the answer has a text that says what happened, and this
process continues.

    answer = ask("model.onnx", {"x": array})
    answer["checker"].passed, answer["run"].text, answer.outputs
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from minorm.devices import dtypes
from minorm.onnx.graph import encoding
from minorm.onnx.graph.errors import LoadError
from minorm.serialization.opening import in_words
from minorm.support import subprocesses
from minorm.support.safe_names import quoted

SECONDS = 300.0
MEMORY = 4 << 30  # bytes of address space, in addition to the needs of model and inputs
WORKER = (sys.executable, "-P", os.path.join(os.path.dirname(__file__), "sandbox_worker.py"))
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}  # without this, NumPy starts threads; that takes longer than its work
_NO_MEMORY = ("bad_alloc", "bad allocation", "Failed to allocate memory", "MemoryError", "Cannot allocate memory",
              "failed to map segment")  # fmt: skip
_NO_KERNEL = ("NOT_IMPLEMENTED", "ValidateOpsetForDomain", "Unsupported model IR version")


@dataclass(frozen=True)
class Stage:
    """Says how one stage ended: passed, failed, or absent.

    A stage is absent if onnxruntime is missing, or lacks something that the model needs.
    """

    state: str
    text: str = ""
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Return whether the stage passed."""
        return self.state == "passed"


@dataclass(frozen=True)
class Answer:
    """Holds a Stage for each stage that began (checker, load, run), and the outputs in the order of the graph."""

    stages: dict[str, Stage] = field(default_factory=dict)
    outputs: tuple[Any, ...] | None = None

    def __getitem__(self, stage: str) -> Stage:
        """Return how a stage ended; the state of a stage that never began is "absent"."""
        return self.stages.get(stage, Stage("absent", "was not run"))

    @property
    def failure(self) -> tuple[str, Stage] | None:
        """Return the name and the Stage of the stage that failed; None if no stage failed."""
        return next(((name, stage) for name, stage in self.stages.items() if stage.state == "failed"), None)


def ask(
    model: onnx.ModelProto | str | os.PathLike[str],
    feeds: Mapping[str, Any] | None = None,
    *,
    checker: str = "full",
    run: bool = True,
    seconds: float = SECONDS,
    memory: int | None = None,
    worker: Sequence[str] = WORKER,
) -> Answer:
    """Check the model and run it on `feeds` (arrays by name) in another process; if `feeds` is None, only load it.

    checker    "full", "plain" (without shape inference) or "" (no check)
    seconds    the time limit for all stages together
    memory     the bytes that the process may take; by default, 4 GiB more than the model and the inputs need
    """
    with tempfile.TemporaryDirectory(prefix="minorm-") as folder:
        try:
            path = _write_model(folder, model) if isinstance(model, onnx.ModelProto) else os.path.abspath(model)
            if memory is None:
                memory = MEMORY + 4 * (_size(path) + sum(a.nbytes for a in (feeds or {}).values()))
            entries = None if feeds is None else _write_feeds(folder, feeds)
            request = {"model": path, "checker": checker, "run": run, "feeds": entries}
            with open(os.path.join(folder, "request.json"), "w", encoding="utf-8") as text:
                json.dump({**request, "memory": memory, "seconds": seconds}, text)
        except OSError as error:
            raise in_words(error, f"verify: cannot write into {quoted(folder)}: {error.strerror}") from error
        ended = _start([*worker, folder], os.path.join(folder, "errors"), seconds)
        stages = _stages(
            os.path.join(folder, "progress"), ended, memory, "checker" if checker else "load" if run else ""
        )
        return Answer(stages, _read_results(folder) if "answer" in stages and stages["answer"].passed else None)


def infer(model: onnx.ModelProto, seconds: float = SECONDS) -> dict[str, dict[str, Any]]:
    """Infer the types and lengths of all values in each graph with onnx's shape inference; return {} on failure.

    model    the model; its large tensors may be empty, since only lengths and types matter
    """
    with tempfile.TemporaryDirectory(prefix="minorm-") as folder:
        _request(folder, model, MEMORY, seconds, infer=True)
        _start([*WORKER, folder], os.path.join(folder, "errors"), seconds)
        try:
            with open(os.path.join(folder, "kinds.json"), encoding="utf-8") as file:
                return dict(json.load(file))
        except (OSError, ValueError):
            return {}


@dataclass(frozen=True)
class Trial:
    """The result for a group of sizes.

    taken      the index of the first size that works; None if no size works
    errors     the errors of the sizes that were tried before
    outputs    the outputs of the model at the size that works
    """

    taken: int | None
    errors: list[str]
    outputs: tuple[Any, ...] = ()


def try_all(
    model: onnx.ModelProto | str,
    groups: Sequence[Sequence[Mapping[str, Any]]],
    weights: str | None = None,
    checker: str = "",
    seconds: float = SECONDS,
) -> list[Trial] | Stage:
    """Try each group's sizes in turn, in onnxruntime in a separate process, until the model accepts one.

    groups    lists of sizes. A size is {"arrays": {name: array}}, or, if the worker draws random inputs,
              {"inputs": {name: (element type, shape)}, "high": the bound for integers}
    weights   the folder with a ModelProto's external data
    checker   as in `ask`

    If onnxruntime cannot run the model at all, return a Stage instead. The Stage's state is "absent" if onnxruntime is
    missing or lacks a kernel for the model.
    """
    with tempfile.TemporaryDirectory(prefix="minorm-") as folder:
        size = _size(os.path.abspath(model)) if isinstance(model, str) else model.ByteSize()
        written = [
            [_with_arrays_in_file(folder, f"feeds_{i}_{j}.npz", s) for j, s in enumerate(g)]
            for i, g in enumerate(groups)
        ]
        fed = max((s.get("bytes", 0) for group in written for s in group), default=0)
        memory = MEMORY + 4 * (size + fed)
        _request(folder, model, memory, seconds, groups=written, weights=weights, checker=checker)
        ended = _start([*WORKER, folder], os.path.join(folder, "errors"), seconds)
        stages = _stages(os.path.join(folder, "progress"), ended, memory, "checker" if checker else "load")
        bad = next((stage for stage in stages.values() if not stage.passed), None)
        if bad is not None:
            return bad
        with open(os.path.join(folder, "report.json"), encoding="utf-8") as file:
            report = json.load(file)
        return [
            Trial(**entry, outputs=() if entry["taken"] is None else _read_results(folder, f"results_{i}.npz"))
            for i, entry in enumerate(report)
        ]


def _request(folder: str, model: onnx.ModelProto | str, memory: int, seconds: float, **what: Any) -> None:
    """Write the file request.json, which tells the worker what to do.

    If the model is a ModelProto, write the model to a file too.
    """
    path = model if isinstance(model, str) else os.path.join(folder, "model.onnx")
    if not isinstance(model, str):
        with open(path, "wb") as file:
            file.write(model.SerializeToString())
    request = {"model": os.path.abspath(path), "checker": "", "run": True, "feeds": None, **what}
    with open(os.path.join(folder, "request.json"), "w", encoding="utf-8") as text:
        json.dump({**request, "memory": memory, "seconds": seconds}, text)


def version(package: str) -> str:
    """Return a package's name and version, such as `onnxruntime 1.25.0`; only the name if the version is unknown."""
    for name in (package, f"{package}-gpu"):
        try:
            return f"{package} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    return package


def _who(stage: str) -> str:
    return f"the checker of {version('onnx')}" if stage == "checker" else version("onnxruntime")


def _size(path: str) -> int:
    """Return the size in bytes of the model and its external data."""
    if not os.path.isfile(path):
        return 0
    try:
        tensors = encoding.read(path, "verify", 2**28).graph.initializer
    except (LoadError, OSError):  # too large to read here, or damaged: the worker will say so
        tensors = ()
    locations = {entry.value for tensor in tensors for entry in tensor.external_data if entry.key == "location"}
    paths = [path, *(os.path.join(os.path.dirname(path), location) for location in locations)]
    return sum(os.path.getsize(p) for p in paths if os.path.isfile(p))


def _write_model(folder: str, model: onnx.ModelProto) -> str:
    path = os.path.join(folder, "model.onnx")
    with open(path, "wb") as file:
        file.write(encoding.encode(model, "verify"))
    return path


def _with_arrays_in_file(folder: str, name: str, size: Mapping[str, Any]) -> dict[str, Any]:
    """Return `size` as the worker's request needs it; if `size` has arrays, write the arrays to a separate file."""
    if "arrays" not in size:
        return dict(size)
    arrays = size["arrays"]
    return {"file": name, "feeds": _write_feeds(folder, arrays, name), "bytes": sum(a.nbytes for a in arrays.values())}


def _write_feeds(folder: str, feeds: Mapping[str, Any], file: str = "feeds.npz") -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    arrays: dict[str, Any] = {}
    for i, (name, given) in enumerate(feeds.items()):
        array, half = np.ascontiguousarray(given).reshape(np.shape(given)), np.asarray(given).dtype == dtypes.bfloat16
        arrays[str(i)] = array.view(np.uint16) if half else array
        entries.append({"name": name, "key": str(i), "type": onnx.TensorProto.BFLOAT16 if half else 0})
    np.savez(os.path.join(folder, file), **arrays)
    return entries


def _read_results(folder: str, name: str = "results.npz") -> tuple[Any, ...]:
    with np.load(os.path.join(folder, name)) as arrays:
        found = {}
        for key in arrays.files:
            place, _, kind = key.partition("_")
            array = arrays[key]
            found[int(place)] = array.view(dtypes.bfloat16) if int(kind) == onnx.TensorProto.BFLOAT16 else array
    return tuple(found[place] for place in sorted(found))


def _start(command: Sequence[str], errors: str, seconds: float) -> str:
    """Run the worker; return "" if the worker ended by itself, or else a text that says how the worker was stopped."""
    code = subprocesses.run(command, errors, seconds, environment=ONE_THREAD)
    if code is None:
        return f"gave no answer in {seconds:g} seconds and was stopped"
    if code == -getattr(signal, "SIGKILL", 9):
        return "was killed (SIGKILL), perhaps because the machine ran out of memory"
    if code < 0:
        return subprocesses.crash(code)
    if code > 1:
        return f"ended the process (exit status {code})"
    said = subprocesses.last_words(errors)
    return f"could not be started: {said}" if code and said else ""


def _stages(path: str, ended: str, memory: int, first: str) -> dict[str, Stage]:
    """Read the stages that the worker recorded; a stage counts as failed if the worker began but did not finish it."""
    stages: dict[str, Stage] = {}
    begun = first
    for line in subprocesses.written(path):
        if "begin" in line:
            begun = line["begin"]
        elif "done" in line:
            stages[line["done"]] = Stage("passed", seconds=line["seconds"])
            begun = ""
        else:
            stages[line["failed"]] = failed(line["failed"], line["why"], memory)
            return stages
    if ended or begun:
        name = begun or "answer"
        stages[name] = Stage("failed", f"{_who(name)} {ended or 'ended without an answer'}")
    return stages


def failed(name: str, why: str, memory: int = MEMORY) -> Stage:
    """Return a Stage for stage `name`, which ended with an exception whose text is `why`."""
    if any(mark in why for mark in _NO_MEMORY):
        return Stage("failed", f"{_who(name)} needs more than the {memory / 2**30:.3g} GiB of memory it may take")
    if "No module named 'onnxruntime'" in why:
        return Stage("absent", "onnxruntime is not installed")
    if name == "load" and any(mark in why for mark in _NO_KERNEL):
        return Stage("absent", f"{_who(name)} does not run this model: {why[:200]}")
    verb = "rejects the model" if name in ("checker", "load") else "fails on this model"
    return Stage("failed", f"{_who(name)} {verb}: {why}")
