"""`export`: a model and an example of its input in, an ONNX model out."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Sequence
from typing import IO, Any

import onnx

from minorm import atomic
from minorm.nn import Module
from minorm.onnx import proto, versions
from minorm.onnx.checking import verify as check_against
from minorm.onnx.errors import ExportError, Unstable
from minorm.onnx.graph import Graph, Value
from minorm.onnx.graph_module import GraphModule
from minorm.onnx.inputs import Axes, Inputs, inputs_of
from minorm.onnx.recording import Run, record, same_random_numbers_after, tensors_of, untouched
from minorm.onnx.writer import Writer
from minorm.tensor import Tensor

Path = str | os.PathLike[str] | IO[bytes] | None


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
                   default: the names of forward's parameters; `output`, or `output_0`, `output_1` ... A loaded graph
                   keeps the names of its file
    dynamic_axes   as in PyTorch: {"x": {0: "batch", 2: "height"}} or {"x": [0, 2]}. Default: axis 0 of every input
                   that has the length of the first input's axis 0 is free and called `batch`; {} fixes all.
                   A free height or width is only as free as the operations allow.
    verify         run the checker, and onnxruntime on `args`, and compare (see minorm.onnx.verify)

    Parameters and buffers are initializers under their state_dict keys. BatchNormalization stays itself, never
    folded into a convolution. Raises ExportError that lists everything that cannot be written.
    """
    opset = _opset(opset_version)
    if not callable(model):
        raise TypeError(f"export: model is {type(model).__name__}; expected an nn.Module or a function of Tensors")
    inputs = inputs_of(model, args, input_names, output_names, dynamic_axes)
    with same_random_numbers_after():
        base = _run(model, inputs.args, training)
        probe = _probe(model, inputs, training)
        try:
            sized = [base] + [_resized_run(model, inputs, i, training) for i in range(len(inputs.symbols.names))]
            graph, outputs = _write(model, opset, training, inputs, sized, probe)
        except Unstable as reason:
            if dynamic_axes:
                raise ExportError(
                    f"export: {reason}; leave that axis out of dynamic_axes to fix its length"
                ) from reason
            symbols, inputs = inputs.symbols, inputs.fixed()
            graph, outputs = _write(model, opset, training, inputs, [base], probe)
            graph.warn(f"the batch size is fixed at {symbols.base[0]}; tried with {symbols.other[0]}: {reason}")

    for message in graph.warnings:
        warnings.warn(f"export: {message}", stacklevel=2)
    wanted = _output_names(model, base.result, len(outputs), output_names)
    updates = [(f"{buffer.home or buffer.name}.updated", new) for buffer, new in graph.updated.values()]
    updates = [(name, new) for name, new in updates if name not in wanted]  # a loaded training graph returns them
    finished = proto.build(
        graph,
        [*zip(wanted, outputs, strict=True), *updates],
        type(model).__name__ if isinstance(model, Module) else getattr(model, "__name__", "model"),
        _metadata(model, training),
        fixed=[*(input_names or ()), *(output_names or ())],
    )
    if verify:
        report = check_against(finished, inputs.tensors, tensors_of(base.result), training=training)
        if not report.compared:
            warnings.warn(f"export: the file was not compared with the model: {report.runtime}", stacklevel=2)
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


def _output_names(model: Any, result: Any, count: int, given: Sequence[str] | None) -> list[str]:
    if given is not None:
        if len(given) != count:
            raise ValueError(f"export: output_names has {len(given)} names; the model returns {count} Tensors")
        return list(given)
    if isinstance(model, GraphModule):
        return list(model.output_names)
    if isinstance(result, dict) and all(isinstance(value, Tensor) for value in result.values()):
        return [str(key) for key in result]
    return ["output"] if count == 1 else [f"output_{i}" for i in range(count)]


def _run(model: Callable[..., Any], args: tuple[Any, ...], training: bool) -> Run:
    with untouched(model, training):
        return record(model, args)


_FAILURES = (ValueError, TypeError, IndexError, RuntimeError, ArithmeticError)


def _probe(model: Callable[..., Any], inputs: Inputs, training: bool) -> list[Run]:
    """A run on other values; none where the model does not take these."""
    try:
        return [_run(model, inputs.disturbed(), training)]
    except _FAILURES:
        return []


def _resized_run(model: Callable[..., Any], inputs: Inputs, symbol: int, training: bool) -> Run:
    try:
        return _run(model, inputs.resized(symbol), training)
    except ExportError:
        raise
    except _FAILURES as error:
        raise Unstable(str(error)) from error


def _write(
    model: Callable[..., Any],
    opset: int,
    training: bool,
    inputs: Inputs,
    sized: Sequence[Run],
    probe: Sequence[Run],
) -> tuple[Graph, list[Value]]:
    graph = Graph(opset, inputs.symbols, training)
    for name, tensor, shape in zip(inputs.names, inputs.tensors, inputs.shapes(), strict=True):
        graph.inputs.append(Value(shape, tensor.dtype, name))
    writer = Writer(graph, len(sized), _homes(model), _labels(model))
    return graph, writer.write([*sized, *probe], graph.inputs, inputs.places)


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
