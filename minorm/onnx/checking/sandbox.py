"""onnxruntime and the onnx checker in a process of their own, with a limit on memory and a time-out.

They are C++ that reads foreign files: one can crash them, divide by zero in them, keep them busy for ever or have them
ask for a terabyte. Then the answer is a sentence, and this process goes on.

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
from minorm.support.masking import quoted

SECONDS = 300.0
MEMORY = 4 << 30  # bytes of address space, besides what model and inputs need
WORKER = (sys.executable, "-P", os.path.join(os.path.dirname(__file__), "sandbox_worker.py"))
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}  # NumPy would start a pool, which takes longer than all else it does there
_NO_MEMORY = ("bad_alloc", "bad allocation", "Failed to allocate memory", "MemoryError", "Cannot allocate memory",
              "failed to map segment")  # fmt: skip
_NO_KERNEL = ("NOT_IMPLEMENTED", "ValidateOpsetForDomain", "Unsupported model IR version")


@dataclass(frozen=True)
class Stage:
    """How one stage ended: passed, failed, or absent, where onnxruntime does not have what the model needs."""

    state: str
    text: str = ""
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether nothing was wrong."""
        return self.state == "passed"


@dataclass(frozen=True)
class Answer:
    """The stages that were begun, of checker, load and run; the outputs in the order of the graph."""

    stages: dict[str, Stage] = field(default_factory=dict)
    outputs: tuple[Any, ...] | None = None

    def __getitem__(self, stage: str) -> Stage:
        """How a stage ended; absent where it was never begun."""
        return self.stages.get(stage, Stage("absent", "was not run"))

    @property
    def failure(self) -> tuple[str, Stage] | None:
        """The stage that failed, if one did."""
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
    """Check the model and run it on `feeds` (arrays by name; None: only load it) in another process.

    checker    "full", "plain" (without shape inference) or "" (not at all)
    seconds    the whole may take
    memory     bytes the process may take; default 4 GiB more than model and inputs need
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
    """Element type and lengths of the values of each graph, by the shape inference of onnx; {} where it fails.

    model    its large tensors may be empty: only lengths and types are asked for
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
    """Of some inputs the first that the model took: its place, the outputs; and what it said of those before."""

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
    """Run the model in onnxruntime, in one process, on the first size of each group that it takes.

    groups    sizes: {"arrays": {name: array}}, or for the worker to draw
              {"inputs": {name: (element type, shape)}, "high": below which integers are drawn}
    weights   the folder where a ModelProto's external data lies
    checker   as in `ask`

    A Stage where it does not come so far: absent, where onnxruntime does not have what the model needs.
    """
    with tempfile.TemporaryDirectory(prefix="minorm-") as folder:
        size = _size(os.path.abspath(model)) if isinstance(model, str) else model.ByteSize()
        written = [[_stored(folder, f"feeds_{i}_{j}.npz", s) for j, s in enumerate(g)] for i, g in enumerate(groups)]
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
    """Write down what is to be done, and the model if it is no file yet."""
    path = model if isinstance(model, str) else os.path.join(folder, "model.onnx")
    if not isinstance(model, str):
        with open(path, "wb") as file:
            file.write(model.SerializeToString())
    request = {"model": os.path.abspath(path), "checker": "", "run": True, "feeds": None, **what}
    with open(os.path.join(folder, "request.json"), "w", encoding="utf-8") as text:
        json.dump({**request, "memory": memory, "seconds": seconds}, text)


def version(package: str) -> str:
    """`onnxruntime 1.25.0`, or the bare name where the version is not to be found."""
    for name in (package, f"{package}-gpu"):
        try:
            return f"{package} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    return package


def _who(stage: str) -> str:
    return f"the checker of {version('onnx')}" if stage == "checker" else version("onnxruntime")


def _size(path: str) -> int:
    """Bytes of the model and of all that lies beside it under its name."""
    if not os.path.isfile(path):
        return 0
    try:
        tensors = encoding.read(path, "verify", 2**28).graph.initializer
    except (LoadError, OSError):  # too large to look into, or the worker will say what it is
        tensors = ()
    locations = {entry.value for tensor in tensors for entry in tensor.external_data if entry.key == "location"}
    paths = [path, *(os.path.join(os.path.dirname(path), location) for location in locations)]
    return sum(os.path.getsize(p) for p in paths if os.path.isfile(p))


def _write_model(folder: str, model: onnx.ModelProto) -> str:
    path = os.path.join(folder, "model.onnx")
    with open(path, "wb") as file:
        file.write(encoding.encode(model, "verify"))
    return path


def _stored(folder: str, name: str, size: Mapping[str, Any]) -> dict[str, Any]:
    """A size as it goes into the request; arrays lie in a file of their own."""
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
    """Run the worker; what became of it: "" where it ended by itself."""
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
    """What the worker wrote down; the stage that it did not come out of failed."""
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
    """What an exception of a stage means."""
    if any(mark in why for mark in _NO_MEMORY):
        return Stage("failed", f"{_who(name)} needs more than the {memory / 2**30:.3g} GiB of memory it may take")
    if "No module named 'onnxruntime'" in why:
        return Stage("absent", "onnxruntime is not installed")
    if name == "load" and any(mark in why for mark in _NO_KERNEL):
        return Stage("absent", f"{_who(name)} does not run this model: {why[:200]}")
    verb = "rejects the model" if name in ("checker", "load") else "fails on this model"
    return Stage("failed", f"{_who(name)} {verb}: {why}")
