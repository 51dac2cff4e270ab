"""Change and infer the lengths and types that a file declares for its inputs, outputs and inner values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import onnx
from onnx import TensorProto

from minorm.onnx.checking import sandbox
from minorm.onnx.conversion.equivalence import inputs_of
from minorm.onnx.graph import versions
from minorm.onnx.graph.lengths import Shapes, declared_of, length_of, settle
from minorm.onnx.graph.node_rewriter import Kind, Kinds, graphs_of

SMALL = 1 << 16  # the most elements of a tensor whose contents shape inference, or a rule, may need

# Fixed lengths


def tried(graph: Any, sizes: Shapes) -> dict[str, tuple[int | str, ...]]:
    """Return the shapes of the inputs with the lengths in `sizes`, for a run of the model; do not change the graph."""
    return _settled(inputs_of(graph), sizes) if sizes else {}


def _settled(inputs: Iterable[Any], shapes: Shapes) -> dict[str, tuple[int | str, ...]]:
    try:
        settled = settle({entry.name: declared_of(entry) for entry in inputs}, shapes)
    except ValueError as error:
        raise ValueError(f"convert: {error}") from error
    return {name: lengths for name, lengths in settled.items() if lengths is not None}


def fix(graph: Any, shapes: Shapes) -> dict[str, tuple[int | str, ...]]:
    """Fix the lengths in `shapes` in the graph's declarations, and return the shapes of the inputs.

    If a free axis with a name gets a length, all axes with this name get the length, in inputs and outputs.
    """
    if not shapes:
        return {}
    inputs = {entry.name: entry for entry in inputs_of(graph)}
    settled = _settled(inputs.values(), shapes)
    bound: dict[str, int] = {}
    for name, lengths in settled.items():
        dims = inputs[name].type.tensor_type.shape.dim
        for axis, n in enumerate(lengths):
            dim = dims[axis] if axis < len(dims) else dims.add()
            if isinstance(n, int):
                if dim.dim_param:
                    bound[dim.dim_param] = n
                dim.dim_value = n
    for entry in (*graph.input, *graph.output) if bound else ():
        for dim in entry.type.tensor_type.shape.dim:
            if dim.dim_param in bound:
                dim.dim_value = bound[dim.dim_param]
    return settled


def describe_anew(model: Any, ranks: bool = False) -> None:
    """Infer the lengths of outputs and inner values again, from the lengths of the inputs.

    ranks    True if outputs may have a number of axes that differs from the declared number
    """
    del model.graph.value_info[:]
    made = {name for node in model.graph.node for name in node.output}
    ends = {entry.name: entry for entry in model.graph.output}
    free = {dim.dim_param for entry in model.graph.input for dim in entry.type.tensor_type.shape.dim}
    for entry in ends.values():
        for dim in entry.type.tensor_type.shape.dim:
            if dim.dim_param and dim.dim_param not in free:
                dim.Clear()
    for name, kind in kinds(skeleton(model)).get("", {}).items():
        if ranks and name in ends and kind.shape is not None and _rank(ends[name]) != len(kind.shape):
            ends[name].CopyFrom(onnx.helper.make_tensor_value_info(name, kind.elem, kind.shape))
        elif name in ends:
            shape = ends[name].type.tensor_type.shape
            for dim, n in zip(shape.dim, kind.shape or (), strict=False):
                if isinstance(n, int):
                    dim.dim_value = n
                elif n is not None and isinstance(length_of(dim), str):
                    dim.dim_param = n
        elif name in made and kind.shape is not None:
            model.graph.value_info.append(onnx.helper.make_tensor_value_info(name, kind.elem, kind.shape))


def _rank(entry: Any) -> int:
    """Return the number of axes that a value declares; -1 if it declares no shape."""
    declared = entry.type.tensor_type
    return len(declared.shape.dim) if declared.HasField("shape") else -1


def describe_outputs(graph: Any, kinds: Mapping[str, Kind]) -> None:
    """Add the shape of each output whose shape the file does not declare, because onnx's checker needs these shapes."""
    for entry in graph.output:
        kind = kinds.get(entry.name, Kind())
        if entry.type.WhichOneof("value") in (None, "tensor_type") and not entry.type.tensor_type.HasField("shape"):
            elem = entry.type.tensor_type.elem_type or kind.elem
            entry.CopyFrom(onnx.helper.make_tensor_value_info(entry.name, elem, kind.shape))


# Types and lengths of values


def kinds(skeleton: Any) -> Kinds:
    """Infer the types and lengths of all values with shape inference, in a separate process; return {} if it fails."""
    found = sandbox.infer(skeleton)
    return {
        path: {name: Kind(elem, None if shape is None else tuple(shape)) for name, (elem, shape) in values.items()}
        for path, values in found.items()
    }


def skeleton(model: Any) -> Any:
    """Copy the model without the contents of its large tensors."""
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
    _free(bare.graph)
    return bare


def _free(graph: Any) -> None:
    """Make axes free that the file declares as -1, because onnx's shape inference would add -1 to other lengths."""
    for entry in (*graph.input, *graph.value_info, *graph.output):
        for dim in entry.type.tensor_type.shape.dim:
            if length_of(dim) == "":
                dim.Clear()
    for node in graph.node:
        for _, inner in graphs_of(node):
            _free(inner)


def ir_version(model: Any, opset: int) -> int:
    """Return the lowest IR version that supports the opset and the model's functions."""
    least = 10 if any(f.overload for f in model.functions) else 8 if model.functions else 4
    return max(versions.ir_version(opset), least)
