"""Read the example with which a model is exported: which arguments are inputs, their names and their free axes.

We also run the model on examples that we make from this example: one has other values, and in each of the others a free
axis has another length. `trace_lengths.py` chooses the lengths.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minorm import devices
from minorm.devices import dtypes
from minorm.nn import Module
from minorm.onnx.graph.model_graph import ELEMENT_TYPES
from minorm.onnx.graph.sizes import Shape, Symbols
from minorm.onnx.loading.graph_module import GraphModule
from minorm.tensor.tensor import Tensor

Axes = Mapping[str, Mapping[int, str] | Sequence[int]]


@dataclass
class Inputs:
    """Holds all arguments: input i of the graph is `args[places[i]]`, and its axis a is the free axis `axes[i][a]`."""

    args: tuple[Any, ...]
    places: list[int]
    names: list[str]
    symbols: Symbols = field(default_factory=Symbols)
    axes: list[dict[int, int]] = field(default_factory=list)
    leading: frozenset[int] = frozenset()  # free axes that are only ever axis 0 of inputs: batches

    @property
    def tensors(self) -> list[Tensor]:
        """Return the arguments that are inputs."""
        return [self.args[place] for place in self.places]

    def shapes(self) -> list[Shape]:
        """Return the inputs' shapes, with free axes as Sizes."""
        return [
            tuple(self.symbols.size(axes[i]) if i in axes else n for i, n in enumerate(tensor.shape))
            for tensor, axes in zip(self.tensors, self.axes, strict=True)
        ]

    def fixed(self) -> Inputs:
        """Return the same example without free axes."""
        return Inputs(self.args, self.places, self.names, Symbols(), [{} for _ in self.places])

    def disturbed(self) -> tuple[Any, ...]:
        """Return arguments with other values."""
        return self.given([disturbed(tensor) for tensor in self.tensors])

    def resized(self, lengths: Mapping[int, int]) -> tuple[Any, ...]:
        """Return arguments in which free axes have these lengths."""
        changed = [
            resized(tensor, {axis: lengths[own] for axis, own in axes.items() if own in lengths})
            for tensor, axes in zip(self.tensors, self.axes, strict=True)
        ]
        return self.given(changed)

    def given(self, tensors: Sequence[Tensor]) -> tuple[Any, ...]:
        """Return the arguments, with these Tensors instead of the example's inputs."""
        args = list(self.args)
        for place, tensor in zip(self.places, tensors, strict=True):
            args[place] = tensor
        return tuple(args)


def inputs_of(
    model: Callable[..., Any],
    args: Any,
    names: Sequence[str] | None,
    output_names: Sequence[str] | None,
    dynamic_axes: Axes | None,
) -> Inputs:
    """Check the arguments of `export` and return them as Inputs."""
    args = args if isinstance(args, tuple) else (args,)
    for i, arg in enumerate(args):
        if not isinstance(arg, Tensor) and _holds_tensors(arg):
            raise TypeError(
                f"export: argument {i} is {type(arg).__name__}; expected a Tensor, or a value that contains no "
                "Tensors and no arrays; wrap arrays with minorm.tensor(array), and pass several inputs as args=(x, "
                "y)"
            )
    places = [i for i, arg in enumerate(args) if isinstance(arg, Tensor)]
    if not places:
        raise TypeError("export: args holds no Tensor; expected at least one, an example of the model's input")
    # New Tensors, because a caller may pass the same Tensor twice, or a parameter of the model.
    args = tuple(Tensor(devices.copied(arg.array)) if isinstance(arg, Tensor) else arg for arg in args)
    if names is not None and len(names) != len(places):
        raise ValueError(f"export: input_names has {len(names)} names; args has {len(places)} Tensors")
    inputs = Inputs(args, places, _names(model, places) if names is None else list(names))
    for name, tensor in zip(inputs.names, inputs.tensors, strict=True):
        if tensor.dtype not in ELEMENT_TYPES:
            raise TypeError(f"export: input {name!r} is {tensor.dtype}, for which ONNX has no type")
    if dynamic_axes is None:
        labels = _batch_axes(inputs.tensors)
    else:
        _check_known(dynamic_axes, inputs.names, output_names or ("output",))
        labels = [
            _labels(name, tensor, dynamic_axes.get(name, ()))
            for name, tensor in zip(inputs.names, inputs.tensors, strict=True)
        ]
    _set_symbols(inputs, labels)
    return inputs


def _holds_tensors(value: Any) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return any(_holds_tensors(part) for part in value)
    return isinstance(value, (Tensor, np.ndarray))


def _names(model: Callable[..., Any], places: Sequence[int]) -> list[str]:
    """Return the names of a loaded graph's inputs, or else the names of forward's positional parameters."""
    if isinstance(model, GraphModule) and len(model.input_names) == len(places):
        return list(model.input_names)
    parameters = list(inspect.signature(model.forward if isinstance(model, Module) else model).parameters.values())
    single = "input" if len(places) == 1 else "input_{}"
    return [
        parameters[place].name
        if place < len(parameters) and parameters[place].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        else single.format(place)
        for place in places
    ]


def _batch_axes(tensors: Sequence[Tensor]) -> list[dict[int, str]]:
    """Label axis 0 as the batch in every input where axis 0 has the same length as in the first input."""
    batch = next((tensor.shape[0] for tensor in tensors if tensor.ndim), 0)
    return [{0: "batch"} if tensor.ndim and tensor.shape[0] == batch > 0 else {} for tensor in tensors]


def _check_known(asked: Axes, names: Sequence[str], output_names: Sequence[str]) -> None:
    unknown = [name for name in asked if name not in names and name not in output_names]
    if unknown:
        raise ValueError(
            f"export: dynamic_axes names {', '.join(map(repr, unknown))}; expected an input ({', '.join(names)}) "
            "or one of output_names"
        )


def _labels(name: str, tensor: Tensor, asked: Mapping[int, str] | Sequence[int]) -> dict[int, str]:
    pairs = asked if isinstance(asked, Mapping) else {axis: f"{name}_axis_{axis}" for axis in asked}
    for axis in pairs:
        if not -tensor.ndim <= axis < tensor.ndim:
            raise ValueError(f"export: dynamic_axes names axis {axis} of {name!r}, whose shape is {tensor.shape}")
    return {axis % tensor.ndim: label for axis, label in pairs.items()}


def _set_symbols(inputs: Inputs, labels: Sequence[dict[int, str]]) -> None:
    """Make one free axis for each label; several inputs may have the same label."""
    lengths: dict[str, int] = {}
    for name, tensor, own in zip(inputs.names, inputs.tensors, labels, strict=True):
        for axis, label in own.items():
            if lengths.setdefault(label, tensor.shape[axis]) != tensor.shape[axis]:
                raise ValueError(
                    f"export: dynamic axis {label!r} has length {lengths[label]} in one input, but length "
                    f"{tensor.shape[axis]} in {name!r}"
                )
    order = list(lengths)
    inputs.symbols = Symbols(tuple(order), tuple(lengths.values()), ((),) * len(order))
    inputs.axes = [{axis: order.index(label) for axis, label in own.items()} for own in labels]
    elsewhere = {own for axes in inputs.axes for axis, own in axes.items() if axis != 0}
    inputs.leading = frozenset(range(len(order))) - elsewhere


def resized(tensor: Tensor, lengths: dict[int, int]) -> Tensor:
    """Return `tensor` with other lengths of some axes; its elements are repeated or cut off."""
    array = tensor.array
    for axis, length in lengths.items():
        array = np.take(array, np.arange(length) % max(1, array.shape[axis]), axis)
    return Tensor(np.ascontiguousarray(array).reshape(array.shape))  # NumPy turns a scalar into a vector


def disturbed(tensor: Tensor) -> Tensor:
    """Return other plausible values: the same values in reverse order, and floats times 0.9."""
    array = np.ascontiguousarray(np.flip(tensor.array)).reshape(tensor.shape)
    return Tensor((array * array.dtype.type(0.9)).astype(array.dtype) if dtypes.is_float(array.dtype) else array)
