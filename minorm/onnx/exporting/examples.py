"""Inputs for a model that nobody gave an input for: random numbers of the shapes that its file declares."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.graph.grad_mode import no_grad
from minorm.onnx.exporting.runs import same_random_numbers_after, untouched
from minorm.onnx.graph.lengths import NAMELESS, Shapes, listed, settle
from minorm.onnx.graph.step import converted
from minorm.onnx.loading.graph_inputs import Input
from minorm.onnx.loading.graph_module import GraphModule
from minorm.tensor.tensor import Tensor

MOST = 1 << 26  # elements of an input

# Lengths to try for free axes: of the first axis, and of others (height, width, positions of a sequence).
LENGTHS = ((2, 8), (2, 32), (2, 64), (2, 224), (1, 32), (1, 224), (2, 299), (1, 1))


def with_lengths(inputs: Sequence[Input], shapes: Shapes) -> list[Input]:
    """The inputs with the lengths that `shapes` gives them; ValueError where these do not fit the file's."""
    settled = settle({entry.name: entry.shape for entry in inputs}, shapes)
    return [replace(entry, shape=settled[entry.name]) for entry in inputs]


def free_axes(inputs: Sequence[Input]) -> dict[str, dict[int, str]]:
    """input -> axis -> the name of its length, for axes that are free.

    An axis without a name is `batch` if it is the first, else it is called after the input.
    """
    return {
        entry.name: {
            axis: length if length not in NAMELESS else "batch" if axis == 0 else f"{entry.name}_axis_{axis}"
            for axis, length in enumerate(entry.shape or ())
            if isinstance(length, str)
        }
        for entry in inputs
    }


def example(model: GraphModule, shapes: Shapes | None = None) -> tuple[Tensor, ...]:
    """Inputs that the model runs on; ValueError where none of the usual lengths of its free axes fit.

    Floats are drawn from a normal distribution, always the same ones; integers are 0, which is an index and a class of
    everything. shapes: lengths where guessing fails, of inputs or of free axes by name.
    """
    inputs = with_lengths(model.inputs, shapes or {})
    for entry in inputs:
        if entry.shape is None:
            raise ValueError(f"input {entry.name!r} has no shape in the file; give one, such as {entry.name}=1,3,8,8")
    free = free_axes(inputs)
    first: Exception | None = None
    for batch, other in LENGTHS if any(free.values()) else LENGTHS[:1]:
        lengths = {label: other for axes in free.values() for label in axes.values()}
        lengths |= {axes[0]: batch for axes in free.values() if 0 in axes}
        shapes_ = [_shape(entry, free, lengths) for entry in inputs]
        if (most := max(map(math.prod, shapes_), default=0)) > MOST:
            first = first or ValueError(f"an input would have {most} elements; expected at most {MOST}")
            continue
        args = tuple(_random(entry, shape) for entry, shape in zip(inputs, shapes_, strict=True))
        if (dtype := model.converted_to()) is not None:
            args = tuple(converted(x, dtype) for x in args)
        try:
            with same_random_numbers_after(model), untouched(model, None), no_grad():
                model(*args)
            return args
        except (ValueError, TypeError, IndexError, RuntimeError, ArithmeticError) as error:
            first = first or error
    assert first is not None
    tried = listed({entry.name: _shape(entry, free, {}) for entry in inputs})
    raise ValueError(f"the model does not run on random inputs of the shapes it declares ({tried}): {first}") from first


def exact(inputs: Sequence[Input], shapes: Shapes) -> tuple[Tensor, ...] | None:
    """Inputs of the shapes that are declared or given; None where an axis is free, or there are too many elements."""
    given = with_lengths(inputs, shapes)
    if any(entry.shape is None for entry in given) or any(free_axes(given).values()):
        return None
    found = [_shape(entry, {entry.name: {}}, {}) for entry in given]
    if any(math.prod(shape) > MOST for shape in found):
        return None
    return tuple(_random(entry, shape) for entry, shape in zip(given, found, strict=True))


def _shape(entry: Input, free: Mapping[str, Mapping[int, str]], lengths: Mapping[str, int]) -> tuple[Any, ...]:
    labels = free[entry.name]
    return tuple(lengths.get(labels[i], labels[i]) if i in labels else n for i, n in enumerate(entry.shape or ()))


def _random(entry: Input, shape: tuple[int, ...]) -> Tensor:
    if dtypes.is_float(entry.dtype):
        return Tensor(np.asarray(np.random.default_rng(0).standard_normal(shape)).astype(entry.dtype))
    return Tensor(np.zeros(shape, entry.dtype))
