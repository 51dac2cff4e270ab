"""`convert`: a model at another opset, its nodes rewritten one by one.

Nothing is run and nothing guessed, so lengths that are free stay free, and nodes that need no change stay as they
are. Operators that minorm does not know are copied. `rewriting.py` walks the graph, `steps.py` knows the way of a
node, the rules of operators stand beside their readers and writers, and `comparing.py` holds old against new.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterator, Mapping
from typing import Any

import onnx
from onnx import TensorProto

from minorm.mistakes import checked
from minorm.onnx.checking import sandbox
from minorm.onnx.conversion.comparing import Comparison, Shapes, inputs_of
from minorm.onnx.conversion.folding import folded, with_constants
from minorm.onnx.conversion.rewriting import Kinds, Rewriter
from minorm.onnx.exporting import external
from minorm.onnx.exporting.export import Path
from minorm.onnx.exporting.external import Weights
from minorm.onnx.graph import encoding, tensors, versions
from minorm.onnx.graph.draft import Kind
from minorm.onnx.graph.errors import ExportError
from minorm.onnx.graph.tensors import Budget
from minorm.onnx.loading import validation
from minorm.onnx.loading.load import Source, parse

SMALL = 1 << 16  # elements of a tensor whose contents shape inference, or a rule, may want


@checked
def convert(
    source: Source,
    path: Path = None,
    *,
    opset_version: int,
    shapes: Shapes | None = None,
    external_data: bool | None = None,
    verify: bool = False,
    max_bytes: int = 2 << 30,
) -> onnx.ModelProto:
    """Write the model in `source` at another opset, 7 to the newest, to `path`; returns it.

    source         a path, the file's bytes, or an onnx.ModelProto, of any opset
    shapes         lengths of inputs, {"x": (1, 3, 224, 224)}, which fixes them: for `verify`, and in the file.
                   Default: what the file declares; axes that it leaves free stay free
    external_data  as in `export`; default: weights that lie outside stay outside
    verify         run old and new in onnxruntime on random inputs, at three lengths of every free axis, and compare;
                   nothing is written where they differ. Where onnxruntime does not run the old file, a warning says so
    max_bytes      what the file and its weights may take

    A node whose operator has the same version at both opsets is copied, the others are changed in place, and one whose
    operator the opset lacks becomes several. Names, order, metadata, functions and the mode of each layer stay.
    Raises LoadError for a damaged file, ExportError that names all nodes without a form at the opset, VerifyError
    with the size and the node where old and new differ.
    """
    if (
        isinstance(opset_version, bool)
        or not isinstance(opset_version, int)
        or not (versions.OLDEST_EXPORT <= opset_version <= min(versions.NEWEST, onnx.defs.onnx_opset_version()))
    ):
        newest = min(versions.NEWEST, onnx.defs.onnx_opset_version())
        raise ValueError(
            f"convert: opset_version is {opset_version!r}; expected an int from {versions.OLDEST_EXPORT} to {newest}"
        )
    if isinstance(max_bytes, bool) or not isinstance(max_bytes, int) or max_bytes < 1:
        raise ValueError(f"convert: max_bytes is {max_bytes!r}; expected a number of bytes, at least 1")
    old, folder = parse(source, max_bytes)
    validation.opsets_of(old)
    encoding.reserve(3 * sum(len(tensor.raw_data) for tensor in old.graph.initializer), "convert: a copy of the model")
    new = onnx.ModelProto()
    new.CopyFrom(old)
    _fix(new.graph, shapes or {})
    bare = _skeleton(new)
    fixed = functools.cache(functools.partial(folded, bare))
    find = functools.cache(lambda: _kinds(with_constants(bare, fixed())))
    Rewriter(new, opset_version, find, fixed).rewrite()
    new.ir_version = _ir_version(new, opset_version)
    if shapes:
        _describe_anew(new)
    if not all(entry.type.tensor_type.HasField("shape") for entry in new.graph.output):
        _describe_outputs(new.graph, find().get("", {}))
    comparison = Comparison(old, folder, shapes or {}) if verify else None
    if comparison is not None:
        comparison.correct(new)
    weights = _weights(new, path, folder, external_data, Budget(max_bytes))
    _save(new, path, weights, comparison)
    return new


# Lengths that are fixed


def _fix(graph: Any, shapes: Shapes) -> None:
    """Give the inputs these lengths, and their names of lengths everywhere."""
    inputs = {entry.name: entry for entry in inputs_of(graph)}
    for name in set(shapes) - set(inputs):
        raise ValueError(f"convert: there is no input {name!r}; the model has {', '.join(inputs)}")
    bound: dict[str, int] = {}
    for name, lengths in shapes.items():
        kind = inputs[name].type.tensor_type
        dims = kind.shape.dim
        if kind.HasField("shape") and len(dims) != len(lengths):
            raise ValueError(f"convert: shapes gives {name!r} {len(lengths)} axes; the file says {len(dims)}")
        for axis, n in enumerate(lengths):
            dim = dims[axis] if axis < len(dims) else dims.add()
            if dim.HasField("dim_value") and dim.dim_value != n:
                raise ValueError(
                    f"convert: shapes gives axis {axis} of {name!r} length {n}; the file says {dim.dim_value}"
                )
            if dim.dim_param:
                bound[dim.dim_param] = int(n)
            dim.dim_value = int(n)
    for entry in (*graph.input, *graph.output) if bound else ():
        for dim in entry.type.tensor_type.shape.dim:
            if dim.dim_param in bound:
                dim.dim_value = bound[dim.dim_param]


def _describe_anew(model: Any) -> None:
    """What follows from the lengths of the inputs: of the outputs, and of the values between."""
    del model.graph.value_info[:]
    made = {name for node in model.graph.node for name in node.output}
    ends = {entry.name: entry for entry in model.graph.output}
    for entry in ends.values():
        for dim in entry.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.Clear()
    for name, kind in _kinds(_skeleton(model)).get("", {}).items():
        if name in ends:
            shape = ends[name].type.tensor_type.shape
            for dim, n in zip(shape.dim, kind.shape or (), strict=False):
                if isinstance(n, int):
                    dim.dim_value = n
        elif name in made and kind.shape is not None:
            model.graph.value_info.append(onnx.helper.make_tensor_value_info(name, kind.elem, kind.shape))


def _describe_outputs(graph: Any, kinds: Mapping[str, Kind]) -> None:
    """Shapes of outputs that the file leaves out, and that onnx's checker wants."""
    for entry in graph.output:
        kind = kinds.get(entry.name, Kind())
        if entry.type.WhichOneof("value") in (None, "tensor_type") and not entry.type.tensor_type.HasField("shape"):
            elem = entry.type.tensor_type.elem_type or kind.elem
            entry.CopyFrom(onnx.helper.make_tensor_value_info(entry.name, elem, kind.shape))


# What is known of values


def _kinds(skeleton: Any) -> Kinds:
    """By shape inference, in a process of its own; by what the file says itself where that fails."""
    found = sandbox.infer(skeleton)
    return {
        path: {name: Kind(elem, None if shape is None else tuple(shape)) for name, (elem, shape) in values.items()}
        for path, values in found.items()
    }


def _skeleton(model: Any) -> Any:
    """The model without the contents of its large tensors."""
    bare = onnx.ModelProto(ir_version=model.ir_version)
    bare.opset_import.extend(model.opset_import)
    bare.functions.extend(model.functions)
    bare.graph.name = "skeleton"
    bare.graph.node.extend(model.graph.node)
    for field in ("input", "output", "value_info"):
        getattr(bare.graph, field).extend(getattr(model.graph, field))
    for tensor in model.graph.initializer:
        if math.prod(tensor.dims) <= SMALL and tensor.data_location != TensorProto.EXTERNAL:
            bare.graph.initializer.append(tensor)
        elif tensor.name not in {entry.name for entry in bare.graph.input}:
            bare.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    return bare


def _ir_version(model: Any, opset: int) -> int:
    """The least that may carry the opset, and functions, if the model has some."""
    least = 10 if any(f.overload for f in model.functions) else 8 if model.functions else 4
    return max(versions.ir_version(opset), least)


# Weights and files


def _tensors(graph: Any) -> Iterator[Any]:
    """All tensors but the initializers of the graph itself."""
    for node in graph.node:
        for attribute in node.attribute:
            yield from [attribute.t] if attribute.HasField("t") else []
            yield from attribute.tensors
            for inner in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
                yield from inner.initializer
                yield from _tensors(inner)


def _weights(model: Any, path: Path, folder: str | None, asked: bool | None, budget: Budget) -> Weights:
    """Bring in what lies in other files, and give the new file beside `path` what is to lie there."""
    named = isinstance(path, (str, os.PathLike))
    if asked is None and named:
        asked = any(t.data_location == TensorProto.EXTERNAL for t in model.graph.initializer) or None
    try:
        weights = Weights(path if isinstance(path, (str, os.PathLike)) else None, asked, "convert")
    except ValueError as error:
        raise ValueError(f"convert: {str(error).removeprefix('export: ')}") from error
    others = [*_tensors(model.graph), *(t for function in model.functions for t in _tensors(function))]
    own = list(model.graph.initializer)
    outside = [t for t in (*own, *others) if t.data_location == TensorProto.EXTERNAL]
    if not outside and not asked:
        return weights
    there = {id(tensor) for tensor in outside}
    arrays = [
        (tensor, tensors.read(tensor, f"initializer {tensor.name!r}", folder, budget))
        for tensor in [*own, *others]
        if id(tensor) in there or (asked and tensor.data_type in tensors.DTYPES)
    ]
    try:
        weights.decide([array for _, array in arrays])
    except ExportError as error:
        raise ExportError(f"convert: {str(error).removeprefix('export: ')}") from error
    mine = {id(tensor) for tensor in own}
    for tensor, array in arrays:
        goes = weights.active and id(tensor) in mine and array.nbytes >= external.LEAST
        if not goes and id(tensor) not in there:
            continue
        tensor.ClearField("data_location")
        for field in ("raw_data", "float_data", "double_data", "int32_data", "int64_data", "uint64_data"):
            tensor.ClearField(field)
        del tensor.external_data[:]
        if not (goes and weights.take(array, tensor)):
            tensor.raw_data = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    return weights


def _save(model: Any, path: Path, weights: Weights, comparison: Comparison | None) -> None:
    if comparison is not None and not weights.arrays:
        comparison.check(model)
    if path is None:
        return
    contents = encoding.encode(model, "convert")
    if isinstance(path, (str, os.PathLike)):
        external.save(contents, weights, comparison.check if comparison is not None else None)
    else:
        path.write(contents)
