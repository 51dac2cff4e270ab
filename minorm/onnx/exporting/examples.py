"""Inputs for a model that nobody gave an input for: random numbers of the shapes that its file declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minorm import dtypes
from minorm.autograd import no_grad
from minorm.onnx.exporting.recording import same_random_numbers_after, untouched
from minorm.onnx.loading.graph_module import GraphModule, Input
from minorm.tensor import Tensor

# Lengths to try for free axes: of the first axis, and of others (height, width, positions of a sequence).
LENGTHS = ((2, 8), (2, 32), (2, 64), (2, 224), (1, 32), (1, 224), (2, 299), (1, 1))

Shapes = Mapping[str, Sequence[int]]


def free_axes(inputs: Sequence[Input], shapes: Shapes) -> dict[str, dict[int, str]]:
    """input -> axis -> the name of its length, for axes that the file leaves free and `shapes` does not fix.

    An axis without a name is `batch` if it is the first, else it is called after the input.
    """
    return {
        entry.name: {
            axis: length if length != "?" else "batch" if axis == 0 else f"{entry.name}_axis_{axis}"
            for axis, length in enumerate(entry.shape or ())
            if isinstance(length, str)
        }
        for entry in inputs
        if entry.name not in shapes
    }


def example(model: GraphModule, shapes: Shapes | None = None) -> tuple[Tensor, ...]:
    """Inputs that the model runs on; ValueError where none of the usual lengths of its free axes fit.

    Floats are drawn from a normal distribution, always the same ones; integers are 0, which is an index and a class of
    everything. shapes: for inputs by name, where guessing fails.
    """
    shapes = dict(shapes or {})
    for name in set(shapes) - {entry.name for entry in model.inputs}:
        raise ValueError(f"there is no input {name!r}; the model has {', '.join(model.input_names)}")
    for entry in model.inputs:
        if entry.shape is None and entry.name not in shapes:
            raise ValueError(f"input {entry.name!r} has no shape in the file; give one, such as {entry.name}=1,3,8,8")
    free = free_axes(model.inputs, shapes)
    first: Exception | None = None
    for batch, other in LENGTHS if any(free.values()) else LENGTHS[:1]:
        lengths = {label: other for axes in free.values() for label in axes.values()}
        lengths |= {axes[0]: batch for axes in free.values() if 0 in axes}
        args = tuple(_random(entry, _shape(entry, shapes, free, lengths)) for entry in model.inputs)
        try:
            with same_random_numbers_after(model), untouched(model, None), no_grad():
                model(*args)
            return args
        except (ValueError, TypeError, IndexError, RuntimeError, ArithmeticError) as error:
            first = first or error
    assert first is not None
    tried = ", ".join(f"{entry.name} {_shape(entry, shapes, free, {})}" for entry in model.inputs)
    raise ValueError(f"the model does not run on random inputs of the shapes it declares ({tried}): {first}") from first


def exact(inputs: Sequence[Input], shapes: Shapes) -> tuple[Tensor, ...] | None:
    """Inputs of the shapes that are declared or given; None where an axis is free: nobody says what it may be."""
    if any(entry.shape is None and entry.name not in shapes for entry in inputs) or any(
        free_axes(inputs, shapes).values()
    ):
        return None
    return tuple(_random(entry, _shape(entry, shapes, {entry.name: {}}, {})) for entry in inputs)


def _shape(
    entry: Input, shapes: Shapes, free: Mapping[str, Mapping[int, str]], lengths: Mapping[str, int]
) -> tuple[Any, ...]:
    if entry.name in shapes:
        return tuple(shapes[entry.name])
    labels = free[entry.name]
    return tuple(lengths.get(labels[i], labels[i]) if i in labels else n for i, n in enumerate(entry.shape or ()))


def _random(entry: Input, shape: tuple[int, ...]) -> Tensor:
    if dtypes.is_float(entry.dtype):
        return Tensor(np.asarray(np.random.default_rng(0).standard_normal(shape)).astype(entry.dtype))
    return Tensor(np.zeros(shape, entry.dtype))
