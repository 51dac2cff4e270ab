"""Compare the results of the old file and the new file in onnxruntime; the old file's results count as correct."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import onnx

from minorm.onnx.checking import declared, sandbox, sandbox_worker, trial_sizes
from minorm.onnx.checking.required import Required
from minorm.onnx.checking.sandbox import Stage, Trial
from minorm.onnx.checking.size_checks import Comparison, first_difference
from minorm.onnx.checking.trial_sizes import Size
from minorm.onnx.graph.lengths import declared_of

Lengths = Mapping[str, Sequence[int | str]]  # input -> its lengths; a str is an axis that stays free


def inputs_of(graph: Any) -> list[Any]:
    """Return the inputs that a caller must give."""
    held = {tensor.name for tensor in graph.initializer}
    return [entry for entry in graph.input if entry.name not in held]


class OldFile:
    """Computes the correct results with the old model; `folder` is the folder with the model's external weights."""

    name = "the old model"
    training = False
    looks_inside = False  # if a node became several, a value may keep its name and change its meaning

    def __init__(self, model: Any, folder: str | None) -> None:
        self.model, self.folder = declared.bare(model), folder

    def try_all(self, groups: Sequence[Sequence[Size]]) -> list[Trial] | Stage:
        """Run the old model in onnxruntime."""
        for entry in inputs_of(self.model.graph):
            if entry.type.tensor_type.elem_type not in sandbox_worker.DTYPES:
                return Stage("absent", f"input {entry.name!r} is not a tensor of numbers")
        return sandbox.try_all(self.model, [[size.request() for size in group] for group in groups], self.folder)

    def where(self, new: Any, size: Size, folder: str | None) -> str:
        """Find the first node whose result exists in both models, but differs."""
        kept = {name for node in new.graph.node for name in node.output if name}
        names = [name for node in self.model.graph.node for name in node.output if name in kept]
        copy = declared.bare(self.model)
        del copy.graph.output[:]
        copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
        trials = sandbox.try_all(copy, [[size.request()]], self.folder) if names else []
        if isinstance(trials, Stage) or not trials or trials[0].taken is None:
            return ""
        return first_difference(new, size, dict(zip(names, trials[0].outputs, strict=True)), folder)


def against(old: Any, folder: str | None, shapes: Lengths) -> Comparison:
    """Return a Comparison with the old model at usual sizes.

    `shapes` has the input shapes that are known. The shapes of all other inputs are guessed.
    """
    labels = {entry.name: labels_of(entry, shapes) for entry in inputs_of(old.graph)}
    elems = {entry.name: entry.type.tensor_type.elem_type for entry in inputs_of(old.graph)}
    required = Required(old.graph).lengths(labels)
    if required != labels:
        with suppress(ValueError):  # the required lengths are only a guess
            return Comparison(OldFile(old, folder), trial_sizes.usual(required, elems), "convert")
    try:
        return Comparison(OldFile(old, folder), trial_sizes.usual(labels, elems), "convert")
    except ValueError as error:
        tried = ", ".join(f"{name} {tuple(lengths)}" for name, lengths in labels.items())
        raise ValueError(
            f"convert: the model does not run on random inputs of the shapes it declares ({tried}): {error}; "
            "give sizes (--shape) with which the model runs, or shapes, which also fix these lengths in the file"
        ) from error


def labels_of(entry: Any, shapes: Lengths, operation: str = "convert") -> list[int | str]:
    """Return the lengths of an input: numbers, or names of free lengths; axes with the same name are equally long."""
    lengths = shapes.get(entry.name, declared_of(entry))
    if lengths is None:
        raise ValueError(
            f"{operation}: input {entry.name!r} has no shape in the file; give one, such as {entry.name}=1,3,8,8"
        )
    return [n if n != "" else f"{entry.name}_axis_{axis}" for axis, n in enumerate(lengths)]
