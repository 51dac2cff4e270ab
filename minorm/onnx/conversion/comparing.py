"""Old against new in onnxruntime, at several sizes: what only fits the lengths of one example is found out.

Every free axis gets three lengths, one of them no multiple of any stride. A size that the old model refuses is no
disagreement: another one is taken. What the file declares of its outputs is held against what comes out, because
onnxruntime plans its memory by it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from minorm.onnx.checking import sandbox, sandbox_worker
from minorm.onnx.checking.verification import TOLERANCE, difference_of, how_to_check, wrong_in_onnxruntime
from minorm.onnx.graph.errors import VerifyError

Shapes = Mapping[str, Sequence[int]]
Size = dict[str, Any]  # as sandbox.try_all takes it

# What free axes are tried with, the first axis and the others: what models usually take, multiples of 16, odd lengths.
USUAL = ((2, (8,)), (2, (32,)), (2, (64,)), (2, (224,)), (1, (32,)), (1, (224,)), (2, (299,)), (1, (1,)), (1, (8,)))
EVEN = tuple((n, lengths) for n in (3, 1) for lengths in ((16,), (48,), (96,), (160,), (256,), (6,), (4,)))
_ODD = ((13, 19), (37, 43), (37,), (71, 83), (71,), (227, 239), (227,), (7, 5), (5,), (3,))
_OTHERS = ((96, 128), (64, 128), (320, 288), (12,), (2,))
ODD = tuple((n, lengths) for n in (5, 1) for lengths in (*_ODD, *_OTHERS))
MOST = 1 << 26  # elements of an input
RANDOM = {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}


def inputs_of(graph: Any) -> list[Any]:
    """The inputs that a caller must give."""
    held = {tensor.name for tensor in graph.initializer}
    return [entry for entry in graph.input if entry.name not in held]


@dataclass(frozen=True)
class Run:
    """A size that the old model took, and what it computed."""

    size: Size
    outputs: tuple[Any, ...]

    def __str__(self) -> str:
        return ", ".join(f"{name} {tuple(shape)}" for name, (_, shape) in self.size["inputs"].items())


class Comparison:
    """What the old model computes, to hold the new one against.

    old      the model in the file; folder: where its weights may lie
    shapes   of inputs, where they are given and not guessed
    """

    def __init__(self, old: Any, folder: str | None, shapes: Shapes) -> None:
        self.note = ""  # why nothing is compared
        self.runs: list[Run] = []
        self.old, self.folder = _bare(old), folder
        self.random = bool(_operators(old.graph) & RANDOM) or _drops(old.graph)
        self.labels: dict[str, list[int | str]] = {}
        for entry in inputs_of(old.graph):
            kind = entry.type.tensor_type
            if kind.elem_type not in sandbox_worker.DTYPES:
                self.note = f"input {entry.name!r} is no tensor of numbers"
                return
            self.labels[entry.name] = _labels(entry, shapes)
        self.elems = {entry.name: entry.type.tensor_type.elem_type for entry in inputs_of(old.graph)}
        self._run_old()

    def _run_old(self) -> None:
        free = any(isinstance(n, str) for lengths in self.labels.values() for n in lengths)
        groups = [list(self._sizes(tries)) for tries in ((USUAL, EVEN, ODD) if free else (USUAL[:1],))]
        trials = sandbox.try_all(self.old, groups, self.folder)
        if isinstance(trials, sandbox.Stage):
            self.note = trials.text
            return
        for number, (group, trial) in enumerate(zip(groups, trials, strict=True)):
            if trial.taken is not None:
                self.runs.append(Run(group[trial.taken], trial.outputs))
                if number and trial.taken:
                    warnings.warn(
                        f"convert: the old model refuses {Run(group[0], ())}; compared at {self.runs[-1]}", stacklevel=4
                    )
            elif number:
                warnings.warn(f"convert: the old model takes none of {len(group)} other sizes tried", stacklevel=4)
            else:
                tried = ", ".join(f"{name} {tuple(lengths)}" for name, lengths in self.labels.items())
                raise ValueError(
                    f"convert: the model does not run on random inputs of the shapes it declares ({tried}): "
                    f"{trial.errors[0] if trial.errors else 'they are too large'}; give shapes, which fixes all lengths"
                )

    def _sizes(self, tries: Sequence[tuple[int, tuple[int, ...]]]) -> Iterator[Size]:
        first = {lengths[0] for lengths in self.labels.values() if lengths and isinstance(lengths[0], str)}
        others = list(
            dict.fromkeys(n for ls in self.labels.values() for n in ls if isinstance(n, str) and n not in first)
        )
        seen = []
        for batch, choices in tries:
            bound = dict.fromkeys(first, batch) | {n: choices[i % len(choices)] for i, n in enumerate(others)}
            inputs = {
                name: (self.elems[name], [bound[n] if isinstance(n, str) else n for n in lengths])
                for name, lengths in self.labels.items()
            }
            if inputs in seen or any(math.prod(shape) > MOST for _, shape in inputs.values()):
                continue
            seen.append(inputs)
            whole = any(elem not in (1, 10, 11, 16) for elem, _ in inputs.values())
            for high in (2, 1) if whole else (1,):
                yield {"inputs": inputs, "high": high, "bound": bound}

    def correct(self, new: Any) -> None:
        """Free the lengths that the file declares of an output, and that are not what comes out."""
        for place, entry in enumerate(new.graph.output):
            if self.runs and not entry.type.tensor_type.HasField("shape"):
                rank = self.runs[0].outputs[place].ndim
                elem = entry.type.tensor_type.elem_type
                entry.CopyFrom(onnx.helper.make_tensor_value_info(entry.name, elem, [None] * rank))
            dims = entry.type.tensor_type.shape.dim
            for run in self.runs:
                got = run.outputs[place].shape
                if len(got) != len(dims):
                    if entry.type.tensor_type.HasField("shape"):
                        warnings.warn(
                            f"convert: output {entry.name!r} has {len(got)} axes, not {len(dims)} as the "
                            "file says; what it says is left out",
                            stacklevel=3,
                        )
                        entry.type.tensor_type.ClearField("shape")
                    break
                for axis, (dim, n) in enumerate(zip(dims, got, strict=True)):
                    said = dim.dim_value if dim.HasField("dim_value") else run.size["bound"].get(dim.dim_param, n)
                    if said != n:
                        warnings.warn(
                            f"convert: axis {axis} of output {entry.name!r} has length {n}, not {said} as "
                            "the file says; it is left free",
                            stacklevel=3,
                        )
                        dim.Clear()

    def check(self, new: Any) -> None:
        """Run the new model, a ModelProto or its path; VerifyError where it fails or computes something else."""
        proto = onnx.load(new, load_external_data=False) if isinstance(new, str) else new
        described = all(entry.type.tensor_type.HasField("shape") for entry in proto.graph.output)
        answer = sandbox.ask(new, None, checker=how_to_check(proto) if described else "")
        if answer.failure is not None and not (self.note and answer.failure[0] == "load"):  # neither is taken
            raise VerifyError(f"convert: {answer.failure[1].text}")
        if not self.note and not answer["load"].passed:
            self.note = answer["load"].text
        if self.note:
            warnings.warn(f"convert: the file was not compared with the model: {self.note}", stacklevel=4)
            return
        trials = sandbox.try_all(new, [[run.size] for run in self.runs])
        if isinstance(trials, sandbox.Stage):
            raise VerifyError(f"convert: {trials.text}")
        wrong = wrong_in_onnxruntime(proto) | wrong_in_onnxruntime(self.old)
        for run, trial in zip(self.runs, trials, strict=True):
            if trial.taken is None:
                raise VerifyError(f"convert: with {run} the new model fails where the old one runs: {trial.errors[0]}")
            for entry, want, got in zip(proto.graph.output, run.outputs, trial.outputs, strict=False):
                why = "" if entry.name in wrong else _disagreement(want, got, self.random)
                if why:
                    raise VerifyError(f"convert: with {run} output {entry.name!r} {why}{self._where(proto, run)}")

    def _where(self, new: Any, run: Run) -> str:
        """The first node whose result differs, where that can be found out."""
        old_names = {name for node in self.old.graph.node for name in node.output if name}
        makers = {name: node for node in new.graph.node for name in node.output if name in old_names}
        found = []
        for model, weights in ((self.old, self.folder), (new, None)):
            copy = _bare(model)
            del copy.graph.output[:]
            copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in makers)
            trials = sandbox.try_all(copy, [[run.size]], weights)
            if isinstance(trials, sandbox.Stage) or trials[0].taken is None:
                return ""
            found.append(trials[0].outputs)
        for (name, node), want, got in zip(makers.items(), *found, strict=False):
            if _disagreement(want, got, False):
                return f"; the first value that differs is {name!r}, of node {node.name!r} ({node.op_type})"
        return ""


def _disagreement(want: Any, got: Any, random: bool) -> str:
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"is {got.dtype}{got.shape} in the new model, {want.dtype}{want.shape} in the old one"
    if random:
        return ""
    difference, scale = difference_of(got, want)
    allowed = TOLERANCE.get(want.dtype, 0.0) * scale
    return "" if difference <= allowed else f"differs by {difference:.3g}; allowed: {allowed:.3g}"


def _labels(entry: Any, shapes: Shapes) -> list[int | str]:
    """Each length of an input: a number, or a name under which equal ones are equal."""
    if entry.name in shapes:
        return [int(n) for n in shapes[entry.name]]
    kind = entry.type.tensor_type
    if not kind.HasField("shape"):
        raise ValueError(
            f"convert: input {entry.name!r} has no shape in the file; give one, such as {entry.name}=1,3,8,8"
        )
    return [
        d.dim_value if d.HasField("dim_value") else d.dim_param or f"{entry.name}_axis_{axis}"
        for axis, d in enumerate(kind.shape.dim)
    ]


def _bare(model: Any) -> Any:
    """The model without what it says of values that it computes, which need not be true."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.value_info[:]
    for entry in copy.graph.output:
        entry.type.tensor_type.ClearField("shape")
    return copy


def _operators(graph: Any) -> set[str]:
    found = set()
    for node in graph.node:
        found.add(node.op_type)
        for attribute in node.attribute:
            for inner in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
                found |= _operators(inner)
    return found


def _drops(graph: Any) -> bool:
    """Whether a Dropout may drop: it has a mode that is not known to be false."""
    known = {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer if np.prod(t.dims) <= 1}
    known |= {
        n.output[0]: onnx.helper.get_attribute_value(n.attribute[0])
        for n in graph.node
        if n.op_type == "Constant" and n.attribute and n.attribute[0].HasField("t")
    }
    for node in graph.node:
        if node.op_type == "Dropout" and len(node.input) > 2 and node.input[2]:
            value = known.get(node.input[2])
            array = onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value
            if array is None or np.any(array):
                return True
    return False
