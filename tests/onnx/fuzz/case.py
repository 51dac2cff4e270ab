"""One case: a seed number makes a file; loading, running and differentiating it must work or say in an error why not.

An error is one of minorm's when it is a ValueError (LoadError is one), or a TypeError that minorm raised itself, with a
message; what Python or NumPy throw where something was not thought of is a bug (`judge`).
"""

from __future__ import annotations

import linecache
import os
import random
import traceback
from dataclasses import dataclass
from typing import Any

import mutations
import numpy as np
import onnx
from corpus import Seed
from google.protobuf.message import DecodeError

import minorm as mn
import minorm.onnx as mo
from minorm.autograd import no_grad
from minorm.devices import dtypes
from minorm.onnx.checking import inspection
from minorm.tensor.tensor import Tensor

MAX_BYTES = 256 << 20


@dataclass
class Case:
    """The model that is loaded, and its inputs."""

    name: str
    source: Any  # bytes, or a path
    arrays: dict[str, Any]
    outputs: list[str] | None
    train: bool | None
    path: str  # where the file is for `minorm check`, "" where it does not look
    rng: random.Random


def make(number: int, seeds: list[Seed], folder: str) -> Case:
    """The case of this number."""
    rng = random.Random(number)
    seed = rng.choice(seeds)
    model = onnx.ModelProto()
    model.CopyFrom(seed.model)
    arrays = {entry.name: np.asarray(a) for entry, a in zip(model.graph.input, seed.arrays, strict=False)}
    if rng.random() < 0.75:
        mutations.hold(rng, model, arrays)
    raw = rng.random() < 0.1
    if not raw:
        mutations.mutate(
            rng, model, [other.model for other in seeds[-120::5] if not other.files] + [rng.choice(seeds).model]
        )
    outputs = None
    if rng.random() < 0.1:
        outputs = [rng.choice(mutations.names(model)) for _ in range(rng.choice((1, 1, 2)))]
    contents = model.SerializeToString()
    if raw:
        contents = mutations.bytes_of(rng, contents)
    source: Any = contents
    if seed.files or rng.random() < 0.01:
        source = os.path.join(folder, "model.onnx")
        for name, data in {**seed.files, "model.onnx": contents}.items():
            with open(os.path.join(folder, name), "wb") as file:
                file.write(data)
    path = source if isinstance(source, str) else ""
    if not path and rng.random() < 0.1:
        path = os.path.join(folder, "checked.onnx")
        with open(path, "wb") as file:
            file.write(contents)
    return Case(seed.name, source, arrays, outputs, rng.choice((None, True, False)), path, rng)


def run(case: Case) -> str:
    """Run a case; return the stage that refused it, or "ran", or "differentiated". A bug raises AssertionError."""
    try:
        if case.path:
            inspection.inspect(case.path, MAX_BYTES)
    except Exception as error:  # noqa: BLE001  what it is, is the question
        judge(error, mo.LoadError)
    try:
        model = mo.load(case.source, outputs=case.outputs, max_bytes=MAX_BYTES)
    except Exception as error:  # noqa: BLE001  what it is, is the question
        judge(error, mo.LoadError)
        return "load"
    if case.outputs is None:  # of a cut graph shape inference tells the outputs, in a separate process
        write_back(model, case.train)
    if case.train is not None:
        model.train(case.train)
    inputs = [feed(case, entry) for entry in model.inputs]
    try:
        if case.rng.random() < 0.3:
            with no_grad():
                results = model(*inputs)
        else:
            results = model(*inputs)
    except Exception as error:  # noqa: BLE001  what it is, is the question
        judge(error, (ValueError, TypeError))
        return "run"
    results = results if isinstance(results, tuple) else (results,)
    wanted = [y for y in results if isinstance(y, Tensor) and y.requires_grad]
    if not wanted:
        return "ran"
    try:
        with np.errstate(all="ignore"):
            for i, y in enumerate(wanted):
                y.backward(mn.ones(y.shape, dtype=y.dtype), retain_graph=i + 1 < len(wanted))
    except Exception as error:  # noqa: BLE001  what it is, is the question
        judge(error, (ValueError, TypeError))
        return "backward"
    return "differentiated"


def write_back(model: Any, train: bool | None) -> None:
    """A loaded model is exported and loaded again with the same tensors."""
    try:
        proto = mo.export(model, None, training=train)
    except Exception as error:  # noqa: BLE001  what it is, is the question
        judge(error, mo.ExportError)
        return
    try:
        again = mo.load(proto, max_bytes=MAX_BYTES)
    except Exception as error:
        raise AssertionError(f"written back, it does not load: {error}") from error
    if train is None:  # in another mode gradient may reach more, or less
        assert again.state_dict().keys() == model.state_dict().keys(), "written back, it has other tensors"


def feed(case: Case, entry: Any) -> Any:
    """Return an array as the graph declares it, of a size that a caller would pass."""
    given = case.arrays.get(entry.name)
    if given is not None and given.dtype == entry.dtype and case.rng.random() < 0.8:
        array = given
    else:
        shape = [3] if entry.shape is None else [n if isinstance(n, int) else 2 for n in entry.shape]
        if len(shape) > 32 or np.prod(shape, dtype=float) > 10_000:
            shape = [min(n, 2) for n in shape][:6]
        if case.rng.random() < 0.05 and shape:
            shape[case.rng.randrange(len(shape))] = case.rng.choice((0, 1, 2, 5))
        numbers = np.random.default_rng(case.rng.randrange(2**32)).normal(0, 3, shape)
        array = (abs(numbers) if entry.dtype.kind == "u" else numbers).astype(entry.dtype)
    return Tensor(np.array(array), requires_grad=dtypes.is_float(array.dtype) and case.rng.random() < 0.5)


def judge(error: BaseException, kinds: Any) -> None:
    """Assert that the error and its causes are minorm's own or ValueErrors, and have a message."""
    assert isinstance(error, kinds), f"a raw {trail(error)}"
    link: BaseException | None = error
    while link is not None:
        allowed = isinstance(link, (ValueError, OSError, DecodeError)) or ours(link)
        assert allowed, f"a raw {trail(link)}"
        assert str(link).strip(), f"no message: {trail(link)}"
        link = link.__cause__


def ours(error: BaseException) -> bool:
    """Whether a `raise` in minorm made it."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    line = linecache.getline(last.filename, last.lineno or 0).strip()
    library = os.path.dirname(os.path.dirname(os.path.abspath(mo.__file__)))
    return last.filename.startswith(library) and line.startswith("raise")


def trail(error: BaseException) -> str:
    """The error and where it came from."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    where = " < ".join(f"{os.path.basename(f.filename)}:{f.lineno} {f.name}" for f in reversed(frames))
    return f"{type(error).__name__}: {str(error)[:300]} [{where}]"
