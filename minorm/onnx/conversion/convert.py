"""`convert`: a model at another opset, by loading it and writing it again.

The converter of the onnx package rewrites node by node, and has no word for most normalizations: it makes a training
BatchNormalization 6 or 13 an inference one, and leaves GroupNormalization 20 invalid at 21. Here every operator is
understood by `load` and written by `export` in the words of the new opset, each layer in the mode its node says.
"""

from __future__ import annotations

import os
from typing import Any

import onnx

from minorm.mistakes import checked
from minorm.onnx.conversion import examples
from minorm.onnx.exporting.export import Path, save
from minorm.onnx.exporting.external import Weights
from minorm.onnx.exporting.tracing import trace
from minorm.onnx.graph import encoding
from minorm.onnx.graph.errors import ExportError
from minorm.onnx.loading.load import Source, load_whole

OURS = "minorm."  # what our metadata keys begin with


@checked
def convert(
    source: Source,
    path: Path = None,
    *,
    opset_version: int,
    shapes: examples.Shapes | None = None,
    external_data: bool | None = None,
    verify: bool = False,
    max_bytes: int = 2 << 30,
) -> onnx.ModelProto:
    """Write the model in `source` at another opset, 7 to the newest, to `path`; returns it.

    source         a path, the file's bytes, or an onnx.ModelProto, of any opset
    shapes         inputs to run it on, {"x": (1, 3, 224, 224)}, whose axes are then fixed. Default: what the file
                   declares; axes that it leaves free stay free
    external_data, verify    as in `export`; max_bytes as in `load`

    Kept: the names of inputs, outputs, parameters and running statistics, which layer trains and which is frozen, the
    name of the graph, and what metadata says. Nodes get new names, and operators that the opset does not have become
    several. Raises LoadError or ExportError, with all nodes that cannot be read, or written.
    """
    weights = Weights(path if isinstance(path, (str, os.PathLike)) else None, external_data, "convert")
    module = load_whole(source, max_bytes)
    try:
        args = examples.example(module, shapes)
        traced = trace(
            module,
            args,
            opset_version=opset_version,
            training=None,
            input_names=module.input_names,
            output_names=module.output_names,
            dynamic_axes=examples.free_axes(module.inputs, shapes or {}),
            weights=weights,
        )
    except ExportError as error:
        raise ExportError(_advice(str(error))) from error
    except ValueError as error:
        raise ValueError(f"convert: {str(error).removeprefix('export: ')}") from error
    _carry_over(_header(source), traced.proto)
    save(traced, path, weights, verify)
    return traced.proto


def _advice(message: str) -> str:
    """The message of `export`, about axes that were not chosen by hand here."""
    found = "; leave that axis out of dynamic_axes to fix its length"
    return f"convert: {message.removeprefix('export: ').replace(found, '; give shapes, which fixes all lengths')}"


def _header(source: Source) -> Any:
    """The model as it lies in the file; `load` has accepted it."""
    if isinstance(source, onnx.ModelProto):
        return source
    if isinstance(source, (str, os.PathLike)):
        return encoding.read(source, "convert")
    return encoding.parse(bytes(source), "convert: this")


def _carry_over(old: Any, new: Any) -> None:
    """What a file says about itself, besides its graph."""
    new.graph.name = old.graph.name or new.graph.name
    for key in ("doc_string", "domain", "model_version"):
        setattr(new, key, getattr(old, key))
    new.graph.doc_string = old.graph.doc_string
    said = {entry.key for entry in new.metadata_props}
    new.metadata_props.extend(
        entry for entry in old.metadata_props if entry.key not in said and not entry.key.startswith(OURS)
    )
