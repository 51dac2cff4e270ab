"""One model in every way: load, run, differentiate, write back, check and convert; or the models of kept/, all of them.

`python tests/onnx/fuzz/trial.py [FILES]`: a failure is an AssertionError with its cause. Random choices, such as the
opset to convert to, follow from the bytes of the model, so each has one end."""

from __future__ import annotations

import collections
import functools
import os
import random
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[3]))  # a checkout need not be installed

import case as cases
import corpus
import mutations
import onnx
from google.protobuf.message import DecodeError

import minorm as mn
import minorm.onnx as mo
from minorm.onnx.checking import sandbox

KEPT = Path(__file__).parent / "kept"
OPSETS = (7, 9, 11, 13, 14, 17, 18, 21, 26)


class Trial:
    """The settings that models are tried with: a folder for the files that `check` reads, and the seeds for new
    ones."""

    def __init__(self, folder: str) -> None:
        self.path = os.path.join(folder, "model.onnx")
        mn.set_num_threads(1)
        warnings.simplefilter("ignore")
        # No processes for shape inference and for trials, which would take hours: no types are known, which is refused.
        absent: Any = lambda *given, **options: sandbox.Stage("absent", "not asked")  # noqa: E731
        nothing: Any = lambda model: {}  # noqa: E731
        sandbox.infer, sandbox.try_all = nothing, absent

    @functools.cached_property
    def seeds(self) -> list[corpus.Seed]:
        """The sound models; onnx takes seconds to make its own."""
        return corpus.seeds()

    def __call__(self, contents: bytes) -> str:
        """Try a model; return how it ended, and raise AssertionError for a bug."""
        rng = random.Random(contents)
        path = self.path if rng.random() < 0.3 else ""
        if path:
            Path(path).write_bytes(contents)
        end = cases.run(cases.Case("", contents, {}, None, rng.choice((None, True, False)), path, rng))
        try:
            model = onnx.ModelProto.FromString(contents)
        except DecodeError:
            return end
        try:
            mo.convert(model, opset_version=rng.choice(OPSETS), max_bytes=cases.MAX_BYTES)
        except Exception as error:  # noqa: BLE001  what it is, is the question
            cases.judge(error, (mo.LoadError, mo.ExportError))
        return end

    def changed(self, contents: bytes, largest: int, number: int) -> bytes:
        """Draw a changed model with this number as the seed; return the same one if the change would be too large."""
        rng = random.Random(number)
        model = onnx.ModelProto()
        try:
            model.ParseFromString(contents)
        except DecodeError:
            model.CopyFrom(rng.choice(self.seeds).model)
        in_bytes = rng.random() < 0.1
        try:
            mutations.mutate(rng, model, [rng.choice(self.seeds).model for _ in range(2)])
        except (UnicodeError, ValueError, TypeError, IndexError):  # it is broken already, in what this change reads
            in_bytes = True
        found = model.SerializeToString()
        if in_bytes:
            found = mutations.bytes_of(rng, found)
        return found if len(found) <= largest else contents


def main() -> None:
    files = [Path(argument) for argument in sys.argv[1:]] or sorted(KEPT.iterdir())
    ends: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(folder)
        for file in files:
            try:
                ends[trial(file.read_bytes())] += 1
            except AssertionError as error:
                raise AssertionError(f"{file.name}: {error}") from error
    print(f"{len(files)} models: " + ", ".join(f"{n} {end}" for end, n in sorted(ends.items())))


if __name__ == "__main__":
    main()
