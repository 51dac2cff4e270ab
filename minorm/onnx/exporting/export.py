"""`export`: a model and an example of its input in, an ONNX model out."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any

import onnx

from minorm.mistakes import checked
from minorm.nn import Module
from minorm.onnx.checking.verification import verify as check_against
from minorm.onnx.exporting import external
from minorm.onnx.exporting.external import Weights
from minorm.onnx.exporting.inputs import Axes
from minorm.onnx.exporting.tracing import Traced, trace
from minorm.onnx.graph import encoding
from minorm.tensor import Tensor

Path = str | os.PathLike[str] | IO[bytes] | None


@checked
def export(
    model: Callable[..., Any],
    args: Any,
    path: Path = None,
    *,
    opset_version: int | None = None,
    training: bool | None = False,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    dynamic_axes: Axes | None = None,
    external_data: bool | None = None,
    verify: bool = False,
) -> onnx.ModelProto:
    """Write `model(*args)` as ONNX to `path` (a file name, a binary file, or None for no file); returns the model.

    model          an nn.Module, or a function of Tensors. It is run a few times on the CPU and left exactly as it was.
    args           a Tensor, or a tuple of the arguments; Tensors become inputs, everything else is fixed
    opset_version  7 to the newest; default: the newest that onnxruntime runs
    training       False writes the inference form whatever mode the model is in. True keeps training behaviour:
                   BatchNorm normalizes with the batch's statistics and its updated running statistics are further
                   outputs, named `<key>.updated`; frozen layers stay in their inference form. None leaves every
                   layer in the mode it is in, and gives a loaded graph the outputs of its file alone
    input_names, output_names
                   default: the names of forward's parameters; `output`, or `output_0`, `output_1` ... A loaded graph
                   keeps the names of its file
    dynamic_axes   as in PyTorch: {"x": {0: "batch", 2: "height"}} or {"x": [0, 2]}. Default: axis 0 of every input
                   that has the length of the first input's axis 0 is free and called `batch`; {} fixes all.
                   A free height or width is only as free as the operations allow.
    external_data  None: weights lie in a file of their own beside `path`, `<path>.data`, if together with the graph
                   they exceed the 2 GiB that one file can hold. True: always; False: never
    verify         run the checker, and onnxruntime on `args`, and compare (see minorm.onnx.verify);
                   nothing is written where they differ

    Parameters and buffers are initializers under their state_dict keys. BatchNormalization stays itself, never
    folded into a convolution. Raises ExportError that lists everything that cannot be written.
    """
    weights = Weights(path if isinstance(path, (str, os.PathLike)) else None, external_data)
    with _on_the_cpu(model):
        traced = trace(
            model,
            tuple(map(_host, args)) if isinstance(args, tuple) else _host(args),
            opset_version=opset_version,
            training=training,
            input_names=input_names,
            output_names=output_names,
            dynamic_axes=dynamic_axes,
            weights=weights,
        )
    save(traced, path, weights, verify)
    return traced.proto


@contextmanager
def _on_the_cpu(model: Any) -> Iterator[None]:
    """Inside, what a module keeps on a GPU is on the CPU."""
    kept = [*model.parameters(), *model.buffers()] if isinstance(model, Module) else []
    there = [(tensor, tensor.data) for tensor in kept if tensor.is_cuda]
    for tensor, _ in there:
        tensor.set_array(tensor.detach().cpu().data)
    try:
        yield
    finally:
        for tensor, array in there:
            tensor.set_array(array)


def _host(argument: Any) -> Any:
    return argument.cpu() if isinstance(argument, Tensor) else argument


def save(traced: Traced, path: Path, weights: Weights, verify: bool) -> None:
    """Write the traced model where it is wanted; with `verify`, only if onnxruntime computes what minorm computed."""

    def check(model: onnx.ModelProto | str) -> None:
        report = check_against(model, traced.inputs, traced.results, training=traced.training)
        if not report.compared:
            warnings.warn(f"export: the file was not compared with the model: {report.runtime}", stacklevel=4)

    if verify and not weights.arrays:
        check(traced.proto)
    if path is None:
        return
    contents = encoding.encode(traced.proto)
    if isinstance(path, (str, os.PathLike)):
        external.save(contents, weights, check if verify else None)
    else:
        path.write(contents)
