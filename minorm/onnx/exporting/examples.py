"""Make inputs for a model if there is no example: random numbers in the shapes that the model's file declares."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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

MOST = 1 << 26  # the most elements of an input

# Pairs of lengths to try for free axes: of the first axis, and of others (height, width, positions in a sequence).
LENGTHS = ((2, 8), (2, 32), (2, 64), (2, 224), (1, 32), (1, 224), (2, 299), (1, 1), (1, 8), (1, 16), (2, 128), (1, 512),
           (1, 1024), (1, 4096), (1, 16000))  # fmt: skip


def with_lengths(inputs: Sequence[Input], shapes: Shapes) -> list[Input]:
    """Return the inputs with the lengths in `shapes`; raise ValueError if these contradict the file's lengths."""
    settled = settle({entry.name: entry.shape for entry in inputs}, shapes)
    return [replace(entry, shape=settled[entry.name]) for entry in inputs]


def free_axes(inputs: Sequence[Input]) -> dict[str, dict[int, str]]:
    """Map each input to a dict that maps its free axes to the names of their lengths.

    A first axis without a name is called `batch`; another axis without a name is named after its input.
    """
    return {
        entry.name: {
            axis: length if length not in NAMELESS else "batch" if axis == 0 else f"{entry.name}_axis_{axis}"
            for axis, length in enumerate(entry.shape or ())
            if isinstance(length, str)
        }
        for entry in inputs
    }


@dataclass(frozen=True)
class Guess:
    """Says how to guess inputs.

    shapes      known lengths, which need no guess: the shape of an input, or the length of a free axis, by name
    values      known values of inputs, by name: a number for all elements, an array, or nested lists
    required    a function that replaces free lengths of the inputs by the lengths that the model's weights require
    """

    shapes: Shapes = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    required: Callable[[dict[str, list[int | str]]], dict[str, list[int | str]]] | None = None


def example(model: GraphModule, shapes: Shapes | None = None) -> tuple[Tensor, ...]:
    """Return inputs on which the model runs; raise ValueError if the model refuses all usual lengths of free axes.

    Floats come from a normal distribution, and are the same in each call. Integers are 0, which is always a valid index
    or class, or 1 if the model refuses 0. If guessing fails, pass `shapes`: the shapes of inputs, or the lengths of
    free axes, by name.
    """
    first: Exception | None = None
    dtype = model.converted_to()
    for args in guesses(model.inputs, Guess(shapes or {})):
        args = args if dtype is None else tuple(converted(x, dtype) for x in args)
        error = fails(model, args)
        if error is None:
            return args
        first = first or error
    tried = listed({entry.name: entry.shape for entry in with_lengths(model.inputs, shapes or {})})
    raise ValueError(f"the model does not run on random inputs of the shapes it declares ({tried}): {first}") from first


def fails(model: GraphModule, args: Sequence[Tensor]) -> Exception | None:
    """Return the error that the model raises for these inputs, or None."""
    try:
        with same_random_numbers_after(model), untouched(model, None), no_grad():
            model(*args)
    except (ValueError, TypeError, IndexError, RuntimeError, ArithmeticError) as error:
        return error
    return None


def guesses(inputs: Sequence[Input], guess: Guess) -> Iterator[tuple[Tensor, ...]]:
    """Yield inputs to try, the likeliest first; raise ValueError if an input has no shape or `guess` contradicts it."""
    filled = {name: np.asarray(value) for name, value in guess.values.items()}
    given = settled(inputs, guess)
    for entry in given:
        if entry.shape is None:
            raise ValueError(f"input {entry.name!r} has no shape in the file; give one, such as {entry.name}=1,3,8,8")
    free = free_axes(given)
    labels = {e.name: [free[e.name].get(i, n) for i, n in enumerate(e.shape or ())] for e in given}
    required = labels if guess.required is None else guess.required(labels)
    whole = any(not dtypes.is_float(entry.dtype) and entry.name not in filled for entry in given)
    seen: list[Any] = []
    most = 0
    for number in (0, 1) if whole else (0,):
        for lengths in (required, labels) if required != labels else (labels,):
            for shapes in _sizes(lengths):
                large = max(map(math.prod, shapes), default=0)
                most = max(most, large)
                if (number, shapes) not in seen and large <= MOST:
                    seen.append((number, shapes))
                    yield tuple(
                        _filled(entry, shape, filled.get(entry.name), number)
                        for entry, shape in zip(given, shapes, strict=True)
                    )

    if not seen:
        raise ValueError(f"an input would have {most} elements; expected at most {MOST}")


def settled(inputs: Sequence[Input], guess: Guess) -> list[Input]:
    """Return the inputs with the lengths that `guess` gives; raise ValueError if these contradict the file."""
    names = {entry.name: entry.shape for entry in inputs}
    shapes = dict(guess.shapes)
    for name, value in guess.values.items():
        if name not in names:
            raise ValueError(f"there is no input {name!r}; the model has {listed(names)}")
        try:
            array = np.asarray(value)
        except ValueError as error:  # lists of different lengths
            raise ValueError(f"the value of input {name!r} contains lists of different lengths") from error
        if array.dtype.kind not in "biuf":
            raise ValueError(f"the value of input {name!r} is neither a number nor a list of numbers")
        if array.ndim:
            shapes.setdefault(name, array.shape)
    return with_lengths(inputs, shapes)


def is_guessed(inputs: Sequence[Input], guess: Guess) -> bool:
    """Return True if something must be guessed: a length, or integers, for which 0 may be wrong."""
    given = settled(inputs, guess)
    return any(
        entry.name not in guess.values
        and (entry.shape is None or any(isinstance(n, str) for n in entry.shape) or not dtypes.is_float(entry.dtype))
        for entry in given
    )


def _sizes(labels: Mapping[str, Sequence[int | str]]) -> Iterator[list[tuple[int, ...]]]:
    """Yield lists of the inputs' shapes; in each list, the free axes have one usual batch size and one usual length."""
    names = {n for lengths in labels.values() for n in lengths if isinstance(n, str)}
    first = {lengths[0] for lengths in labels.values() if lengths and isinstance(lengths[0], str)}
    for batch, other in LENGTHS if names else LENGTHS[:1]:
        bound = {n: batch if n in first else other for n in names}
        yield [tuple(bound[n] if isinstance(n, str) else n for n in lengths) for lengths in labels.values()]


def _filled(entry: Input, shape: tuple[int, ...], value: Any, number: int) -> Tensor:
    if value is not None:
        return Tensor(np.broadcast_to(value, shape).astype(entry.dtype))
    if dtypes.is_float(entry.dtype):
        return Tensor(np.asarray(np.random.default_rng(0).standard_normal(shape)).astype(entry.dtype))
    return Tensor(np.full(shape, number, entry.dtype))


def exact(inputs: Sequence[Input], guess: Guess) -> Any:
    """Return inputs whose shapes are all declared or given; None if an axis is free or an input is too large."""
    given = settled(inputs, guess)
    if any(entry.shape is None for entry in given) or any(free_axes(given).values()):
        return None
    if any(math.prod(n for n in entry.shape or () if isinstance(n, int)) > MOST for entry in given):
        return None
    return next(guesses(inputs, guess))
