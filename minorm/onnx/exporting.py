"""`export`: a model and an example of its input in, an ONNX model out."""

from __future__ import annotations

import inspect
import json
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import IO, Any

import onnx

from minorm import atomic
from minorm.nn import Module
from minorm.onnx import proto, versions
from minorm.onnx.checking import verify as check_against
from minorm.onnx.errors import ExportError, Unstable
from minorm.onnx.graph import ELEMENT_TYPES, Graph, Value
from minorm.onnx.recording import Run, disturbed, record, resized, tensors_of, untouched
from minorm.onnx.sizes import Symbols, size_of
from minorm.onnx.writer import Writer
from minorm.tensor import Tensor

Path = str | os.PathLike[str] | IO[bytes] | None
Axes = Mapping[str, Mapping[int, str] | Sequence[int]]


def export(
    model: Callable[..., Any],
    args: Any,
    path: Path = None,
    *,
    opset_version: int | None = None,
    training: bool = False,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    dynamic_axes: Axes | None = None,
    verify: bool = False,
) -> onnx.ModelProto:
    """Write `model(*args)` as ONNX to `path` (a file name, a binary file, or None for no file); returns the model.

    model          an nn.Module, or a function of Tensors. It is run a few times and left exactly as it was.
    args           a Tensor, or a tuple of the arguments; Tensors become inputs, everything else is fixed
    opset_version  7 to the newest; default: the newest that onnxruntime runs
    training       False writes the inference form whatever mode the model is in. True keeps training behaviour:
                   BatchNorm normalizes with the batch's statistics and its updated running statistics are further
                   outputs, named `<key>.updated`; frozen layers stay in their inference form
    input_names, output_names
                   default: the names of forward's parameters; `output`, or `output_0`, `output_1` ...
    dynamic_axes   as in PyTorch: {"x": {0: "batch", 2: "height"}} or {"x": [0, 2]}. Default: axis 0 of every input
                   that has the length of the first input's axis 0 is free and called `batch`; {} fixes all.
                   A free height or width is only as free as the operations allow.
    verify         run the checker, and onnxruntime on `args`, and compare (see minorm.onnx.verify)

    Parameters and buffers are initializers under their state_dict keys. BatchNormalization stays itself, never
    folded into a convolution. Raises ExportError that lists everything that cannot be written.
    """
    opset = _opset(opset_version)
    args = args if isinstance(args, tuple) else (args,)
    places = [i for i, arg in enumerate(args) if isinstance(arg, Tensor)]
    tensors = [args[i] for i in places]
    names = _input_names(model, places, input_names)
    symbols, axes = _free_axes(tensors, names, dynamic_axes)

    base = _run(model, args, training)
    probe = _probe(model, args, training) if places else []
    try:
        sized = [base] + [
            _run(model, _other_lengths(args, places, axes, symbols, i), training) for i in range(len(symbols.names))
        ]
        graph, outputs = _write(model, opset, training, symbols, names, places, sized, probe)
    except (Unstable, ValueError, TypeError, IndexError, RuntimeError) as error:
        if isinstance(error, ExportError) or not symbols.names or (dynamic_axes and not isinstance(error, Unstable)):
            raise
        if dynamic_axes:
            raise ExportError(f"export: {error}; leave that axis out of dynamic_axes to fix its length") from error
        warnings.warn(
            f"export: the batch size is fixed at {symbols.base[0]}; tried with {symbols.other[0]}: {error}",
            stacklevel=2,
        )
        symbols = Symbols()
        graph, outputs = _write(model, opset, training, symbols, names, places, [base], probe)

    for message in graph.warnings:
        warnings.warn(f"export: {message}", stacklevel=2)
    wanted = _output_names(base.result, len(outputs), output_names)
    updates = [(f"{buffer.home}.updated", new) for buffer, new in graph.updated.values()]
    finished = proto.build(
        graph,
        [*zip(wanted, outputs, strict=True), *updates],
        type(model).__name__ if isinstance(model, Module) else getattr(model, "__name__", "model"),
        _metadata(model, training),
        fixed=[*(input_names or ()), *(output_names or ())],
    )
    if verify:
        check_against(finished, [t.data for t in tensors], [t.data for t in tensors_of(base.result)], training=training)
    _save(finished, path)
    return finished


def _opset(asked: int | None) -> int:
    newest = min(versions.NEWEST, onnx.defs.onnx_opset_version())
    if asked is None:
        return min(versions.DEFAULT, newest)
    if isinstance(asked, bool) or not isinstance(asked, int) or not versions.OLDEST_EXPORT <= asked <= newest:
        raise ValueError(
            f"export: opset_version is {asked!r}; expected an int from {versions.OLDEST_EXPORT} to {newest}, the "
            f"newest that onnx {onnx.__version__} and minorm know"
        )
    return asked


def _input_names(model: Callable[..., Any], places: Sequence[int], given: Sequence[str] | None) -> list[str]:
    """A name for each Tensor among the arguments."""
    if given is not None:
        if len(given) != len(places):
            raise ValueError(f"export: input_names has {len(given)} names; args has {len(places)} Tensors")
        return list(given)
    parameters = inspect.signature(model.forward if isinstance(model, Module) else model).parameters.values()
    names = []
    for place in places:
        named = [p for p in parameters if p.kind is not p.KEYWORD_ONLY]
        if place < len(named) and named[place].kind is not inspect.Parameter.VAR_POSITIONAL:
            names.append(named[place].name)
        else:
            names.append(f"input_{place}" if len(places) > 1 else "input")
    return names


def _output_names(result: Any, count: int, given: Sequence[str] | None) -> list[str]:
    if given is not None:
        if len(given) != count:
            raise ValueError(f"export: output_names has {len(given)} names; the model returns {count} Tensors")
        return list(given)
    if isinstance(result, dict) and all(isinstance(value, Tensor) for value in result.values()):
        return [str(key) for key in result]
    return ["output"] if count == 1 else [f"output_{i}" for i in range(count)]


def _free_axes(
    tensors: Sequence[Tensor], names: Sequence[str], asked: Axes | None
) -> tuple[Symbols, list[dict[int, int]]]:
    """The free axes, and for each input which of them lies on which axis."""
    found: dict[str, int] = {}
    axes: list[dict[int, int]] = []
    for name, tensor in zip(names, tensors, strict=True):
        own: dict[int, str] = {}
        if asked is None:
            lengths = [t.shape[0] for t in tensors if t.ndim][:1]
            own = {0: "batch"} if tensor.ndim and tensor.shape[0] == lengths[0] and tensor.shape[0] > 0 else {}
        elif name in asked:
            entry = asked[name]
            pairs: Iterable[tuple[int, str]] = (
                entry.items() if isinstance(entry, Mapping) else [(axis, f"{name}_axis_{axis}") for axis in entry]
            )
            for axis, label in pairs:
                if not -tensor.ndim <= axis < tensor.ndim:
                    raise ValueError(
                        f"export: dynamic_axes names axis {axis} of {name!r}, whose shape is {tensor.shape}"
                    )
                own[axis % tensor.ndim] = label
        for axis, label in own.items():
            if found.setdefault(label, tensor.shape[axis]) != tensor.shape[axis]:
                raise ValueError(
                    f"export: dynamic axis {label!r} is {found[label]} long in one input, but {tensor.shape[axis]} "
                    f"in {name!r}"
                )
        order = list(found)
        axes.append({axis: order.index(label) for axis, label in own.items()})
    labels = tuple(found)
    base = tuple(found.values())
    # Two more images, but twice the height: halving layers then still meet whole numbers.
    other = tuple(n + 2 if all(a.get(0) == i for a in axes if i in a.values()) else 2 * n for i, n in enumerate(base))
    return Symbols(labels, base, other), axes


def _other_lengths(
    args: tuple[Any, ...], places: Sequence[int], axes: Sequence[dict[int, int]], symbols: Symbols, index: int
) -> tuple[Any, ...]:
    changed = list(args)
    for place, own in zip(places, axes, strict=True):
        lengths = {axis: symbols.other[index] for axis, symbol in own.items() if symbol == index}
        changed[place] = resized(args[place], lengths)
    return tuple(changed)


def _run(model: Callable[..., Any], args: tuple[Any, ...], training: bool) -> Run:
    with untouched(model, training):
        return record(model, args)


def _probe(model: Callable[..., Any], args: tuple[Any, ...], training: bool) -> list[Run]:
    """A run on other values; none where the model does not take them."""
    try:
        return [_run(model, tuple(disturbed(a) if isinstance(a, Tensor) else a for a in args), training)]
    except (ValueError, TypeError, IndexError, RuntimeError, ArithmeticError):
        return []


def _write(
    model: Callable[..., Any],
    opset: int,
    training: bool,
    symbols: Symbols,
    names: Sequence[str],
    places: Sequence[int],
    sized: Sequence[Run],
    probe: Sequence[Run],
) -> tuple[Graph, list[Value]]:
    graph = Graph(opset, symbols, training)
    for name, place in zip(names, places, strict=True):
        tensor = sized[0].args[place]
        if tensor.dtype not in ELEMENT_TYPES:
            raise TypeError(f"export: input {name!r} is {tensor.dtype}, which ONNX has no type for")
        shape = tuple(size_of(lengths) for lengths in zip(*[run.args[place].shape for run in sized], strict=True))
        graph.inputs.append(Value(shape, tensor.dtype, name))
    writer = Writer(graph, len(sized), _homes(model), _labels(model))
    return graph, writer.write([*sized, *probe], graph.inputs, places)


def _homes(model: Callable[..., Any]) -> dict[int, str]:
    """id of an array -> its state_dict key."""
    if not isinstance(model, Module):
        return {}
    named = [*model.named_parameters(), *model.named_buffers()]
    return {id(tensor.data): key for key, tensor in reversed(named)}


def _labels(model: Callable[..., Any]) -> dict[int, str]:
    """id of an array -> the name of the attribute that holds it, for Tensors that are no parameters."""
    if not isinstance(model, Module):
        return {}
    return {
        id(value.data): f"{path}.{name}" if path else name
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, Tensor)
    }


def _metadata(model: Callable[..., Any], training: bool) -> dict[str, str]:
    if not isinstance(model, Module):
        return {}
    frozen = [path for path, module in model.named_modules() if getattr(module, "frozen", False)]
    return {"minorm.training": json.dumps(training), **({"minorm.frozen": json.dumps(frozen)} if frozen else {})}


def _save(model: onnx.ModelProto, path: Path) -> None:
    if path is None:
        return
    contents = proto.to_bytes(model)
    if hasattr(path, "write"):
        path.write(contents)
        return
    with atomic.replacing(path, "export") as file:
        file.write(contents)
