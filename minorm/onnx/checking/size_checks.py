"""Compare a new file with the correct results at several sizes, to find nodes that work only for the example's lengths.

A source gives the correct results. It is the old file in onnxruntime, or the model from which the file was written. If
the source refuses a size, we take another size. We also compare the lengths that the file declares with the lengths of
the results.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import onnx

from minorm.onnx.checking import declared, randomness, sandbox
from minorm.onnx.checking.sandbox import Stage, Trial
from minorm.onnx.checking.trial_sizes import Size
from minorm.onnx.checking.verification import (
    TOLERANCE,
    Report,
    checked,
    difference_of,
    how_to_check,
    wrong_in_onnxruntime,
)
from minorm.onnx.graph import encoding
from minorm.onnx.graph.errors import VerifyError
from minorm.onnx.graph.lengths import length_of
from minorm.onnx.graph.names import drop
from minorm.onnx.graph.node_rewriter import in_words


class Source(Protocol):
    """Computes the correct results."""

    name: str  # in messages: "the old model", "the model"
    training: bool  # True if it may be in training mode, in which Dropout drops
    looks_inside: bool  # True to ask `where` even if results are random and cannot be compared

    def try_all(self, groups: Sequence[Sequence[Size]]) -> list[Trial] | Stage:
        """Try each group's sizes in turn until the source accepts one; return a Stage if the source cannot run."""

    def where(self, new: Any, size: Size, folder: str | None) -> str:
        """Return the end of a sentence that names the new model's first wrong node; "" if this node is unknown."""


@dataclass(frozen=True)
class Run:
    """Holds a size that the source accepted, and the correct results at this size."""

    size: Size
    outputs: tuple[Any, ...]  # None if unknown

    def __str__(self) -> str:
        return str(self.size)


class Comparison:
    """Holds the correct results, and compares the results of a new file with the correct results.

    groups       groups of sizes; the comparison uses the first size of each group that the source accepts
    operation    the caller, for messages
    """

    def __init__(self, source: Source, groups: Sequence[Sequence[Size]], operation: str) -> None:
        self.source, self.operation = source, operation
        self.note = ""  # why nothing is compared
        self.runs: list[Run] = []
        self._seen: tuple[Any, list[declared.Shapes]] = (None, [])  # a new model, the shapes of its values in each run
        trials = source.try_all(groups)
        if isinstance(trials, Stage):
            self.note = trials.text
            return
        for number, (group, trial) in enumerate(zip(groups, trials, strict=True)):
            if trial.taken is not None:
                self.runs.append(Run(group[trial.taken], trial.outputs))
                if number and trial.taken:
                    self._warn(
                        f"{source.name} does not run with {group[0]}, so the comparison uses {self.runs[-1]} "
                        f"({trial.errors[0]})"
                    )
            elif number and group:
                self._warn(
                    f"{source.name} runs with none of {len(group)} other sizes that were tried, such as {group[0]}"
                )
            elif not number:
                raise ValueError(trial.errors[0] if trial.errors else "the inputs are too large")

    def _warn(self, message: str) -> None:
        warnings.warn(f"{self.operation}: {message}", stacklevel=5)

    def correct(self, new: Any, folder: str | None = None) -> None:
        """Correct the lengths that the new model declares wrongly.

        For an output, a wrong length becomes free. For a value between nodes, the whole declaration is removed.
        """
        for place, entry in enumerate(new.graph.output):
            found = [(run.size, run.outputs[place]) for run in self.runs if place < len(run.outputs)]
            self._correct_output(entry, [(size, array.shape) for size, array in found if array is not None])
        untrue = {name: why for _, name, why in self._untrue(new, folder)}
        if untrue:
            name, why = next(iter(untrue.items()))
            rest = f", and so {len(untrue) - 1} more" if len(untrue) > 1 else ""
            self._warn(f"value {name!r} {why}{rest}; wrong declarations of lengths are left out of the new file")
        drop(new.graph.value_info, lambda entry: entry.name in untrue)
        for entry in new.graph.output if untrue else ():  # names that no input has mean several lengths
            for dim in entry.type.tensor_type.shape.dim if entry.name in untrue else ():
                if dim.dim_param and all(dim.dim_param not in run.size.bound for run in self.runs):
                    dim.Clear()

    def _correct_output(self, entry: Any, found: Sequence[tuple[Size, tuple[int, ...]]]) -> None:
        kind = entry.type.tensor_type
        if found and not kind.HasField("shape"):
            rank = len(found[0][1])
            entry.CopyFrom(onnx.helper.make_tensor_value_info(entry.name, kind.elem_type, [None] * rank))
        dims = kind.shape.dim
        for size, got in found:
            if len(got) != len(dims):
                if kind.HasField("shape"):
                    self._warn(
                        f"output {entry.name!r} has {len(got)} axes, but the file declares {len(dims)}; the new file "
                        "leaves this declaration out"
                    )
                    kind.ClearField("shape")
                return
            for axis, (dim, n) in enumerate(zip(dims, got, strict=True)):
                length = length_of(dim)
                said = length if isinstance(length, int) else size.bound.get(length, n)
                if said != n:
                    self._warn(
                        f"axis {axis} of output {entry.name!r} has length {n}, but the file declares {said}; the new "
                        "file leaves this length free"
                    )
                    dim.Clear()

    def _untrue(self, new: Any, folder: str | None) -> Iterator[tuple[Run, str, str]]:
        """Yield values whose declared lengths are wrong; the real lengths come from a run without declarations."""
        if new is not self._seen[0]:
            self._seen = new, declared.shapes_of(new, [run.size for run in self.runs], folder)
        for run, shapes in zip(self.runs, self._seen[1], strict=True):
            for name, why in declared.contradictions(new, shapes, run.size.bound):
                yield run, name, why

    def check(self, new: Any) -> Report:
        """Run the new model, a ModelProto or a path; raise VerifyError if it fails or its results differ."""
        folder = os.path.dirname(os.path.abspath(new)) if isinstance(new, str) else None
        proto = encoding.read(new, self.operation) if isinstance(new, str) else new
        described = all(entry.type.tensor_type.HasField("shape") for entry in proto.graph.output)
        how = how_to_check(proto) if described else ""
        if self.note:  # nothing to compare with; the new file need not load either
            answer = sandbox.ask(new, None, checker=how)
            if answer.failure is not None and answer.failure[0] != "load":
                raise VerifyError(f"{self.operation}: {answer.failure[1].text}")
            return self._not_compared(how)
        trials = sandbox.try_all(new, [[run.size.request()] for run in self.runs], checker=how)
        if isinstance(trials, Stage):
            if trials.state == "failed":
                raise VerifyError(f"{self.operation}: {trials.text}")
            self.note = trials.text
            return self._not_compared(how)
        found = [self._compare(proto, *pair, folder) for pair in zip(self.runs, trials, strict=True)]
        for run, name, why in self._untrue(proto, folder):
            node = declared.maker(proto, name)
            raise VerifyError(f"{self.operation}: with {run}, value {name!r} of {node} {why}")
        worst, relative = (max(numbers) for numbers in zip(*found, strict=True))
        sizes = tuple(str(run) for run in self.runs)
        return Report(checked(how), sandbox.version("onnxruntime"), worst, relative, trials[0].outputs, sizes)

    def _not_compared(self, how: str) -> Report:
        self._warn(f"the file was not compared with the model: {self.note}")
        return Report(checked(how), self.note)

    def _compare(self, proto: Any, run: Run, trial: Trial, folder: str | None) -> tuple[float, float]:
        """Return the largest difference at one size, and this difference divided by max(1, max |expected|)."""
        if trial.taken is None:
            why = f"{self.source.name} runs, but the file fails: {trial.errors[0]}"
            raise VerifyError(f"{self.operation}: with {run}, {why}{self.source.where(proto, run.size, folder)}")
        random, wrong = randomness.drawn(proto, self.source.training), wrong_in_onnxruntime(proto)
        worst, relative = 0.0, 0.0
        for entry, want, got in zip(proto.graph.output, run.outputs, trial.outputs, strict=False):
            if entry.name in wrong or want is None:
                continue
            difference, scale = (0.0, 1.0) if entry.name in random else _difference(got, want)
            allowed = TOLERANCE.get(want.dtype, 0.0) * scale
            why = ""
            if got.shape != want.shape or got.dtype != want.dtype:
                why = f"is {got.dtype}{got.shape} in the file, {want.dtype}{want.shape} in {self.source.name}"
            elif not difference <= allowed:
                runtime = sandbox.version("onnxruntime")
                why = f"differs by {difference:.3g} between {runtime} and {self.source.name}; allowed: {allowed:.3g}"
            if why:
                place = self.source.where(proto, run.size, folder)
                raise VerifyError(f"{self.operation}: with {run}, output {entry.name!r} {why}{place}")
            worst, relative = max(worst, difference), max(relative, difference / scale)
        if random and self.source.looks_inside and (place := self.source.where(proto, run.size, folder)):
            raise VerifyError(f"{self.operation}: with {run}, the file and the model compute different values{place}")
        return worst, relative


def _difference(got: Any, want: Any) -> tuple[float, float]:
    return difference_of(got, want) if got.shape == want.shape else (0.0, 1.0)


def first_difference(
    model: Any, size: Size, right: Mapping[str, Any], folder: str | None, training: bool = False
) -> str:
    """Return the end of a sentence that names the first node with a wrong result; "" if there is no such node.

    right    correct values by name; values that are missing are not compared
    """
    unsure = randomness.drawn(model, training) | wrong_in_onnxruntime(model)
    nodes = {name: node for node in model.graph.node for name in node.output if name in right and name not in unsure}
    copy = declared.bare(model)
    del copy.graph.output[:]
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in nodes)
    trials = sandbox.try_all(copy, [[size.request()]], folder) if nodes else []
    if isinstance(trials, Stage) or not trials or trials[0].taken is None:
        return ""
    for (name, node), got in zip(nodes.items(), trials[0].outputs, strict=False):
        want = right[name]
        difference, scale = _difference(got, want)
        near = difference <= TOLERANCE.get(want.dtype, 0.0) * scale
        if got.shape != want.shape or got.dtype != want.dtype or not near:
            return f"; the first value that differs is {name!r}, the result of {in_words(node)}"
    return ""
