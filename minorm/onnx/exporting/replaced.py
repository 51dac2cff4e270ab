"""Write layers that have replaced nodes of a loaded graph: the layer's nodes are put where the replaced nodes were.

We run the graph once to record each layer's inputs, and trace each layer separately on these inputs. The layer's nodes
replace the node that stands for the layer, and their names begin with the layer's path. The rest of the file stays,
except for lengths that the layers change.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from onnx import helper

from minorm.graph.grad_mode import no_grad
from minorm.nn import Module, Parameter
from minorm.onnx.conversion import describing
from minorm.onnx.exporting.embedding import bring_functions
from minorm.onnx.exporting.examples import example
from minorm.onnx.exporting.inlining import renamed, scope_of_names
from minorm.onnx.exporting.runs import same_random_numbers_after, untouched
from minorm.onnx.exporting.trace_lengths import REFUSALS
from minorm.onnx.exporting.translating import translate
from minorm.onnx.graph import encoding, tensors
from minorm.onnx.graph.errors import ExportError
from minorm.onnx.graph.lengths import declared_of
from minorm.onnx.graph.names import names_of
from minorm.onnx.graph.node_rewriter import Kind
from minorm.onnx.graph.tensors import Budget
from minorm.onnx.loading.exchange.stand_in import is_layer
from minorm.onnx.loading.graph_module import GraphModule
from minorm.onnx.loading.judging.naming import KIND, PARAMETER, Origin
from minorm.tensor.tensor import Tensor

Axes = dict[int, str]


def write(
    module: GraphModule,
    model: Any,
    contents: dict[str, Any],
    examples: Sequence[Tensor] | None,
    training: bool | None,
    opset: int,
) -> None:
    """Put the nodes of the layers in the model, and the elements of their tensors in `contents`."""
    given, batch = _given(module, examples)
    for node in [node for node in model.graph.node if is_layer(node)]:
        args = given[node.name]
        free = _free_axes(model, node, args, batch)
        layer = module.layers_put_in[node.name]
        part = _traced(layer, node.name, args, free, opset, training)
        _put(model, node, part, layer, contents, training is not None)


def _given(module: GraphModule, examples: Sequence[Tensor] | None) -> tuple[dict[str, list[Tensor]], int]:
    """Return each layer's arguments in a run, and the batch size of the first input (0 if this axis is fixed)."""
    try:
        examples = example(module) if examples is None else examples
    except ValueError as error:
        raise ExportError(f"export: the inputs of the inserted layers are not known: {error}") from error
    seen: dict[str, list[Tensor]] = {}
    handles = []
    for path, layer in module.layers_put_in.items():

        def see(_: Module, args: Any, path: str = path) -> None:
            seen[path] = list(args)

        handles.append(layer.register_forward_pre_hook(see))
    try:
        with same_random_numbers_after(module), untouched(module, None), no_grad():
            module(*examples)
    except REFUSALS as error:
        raise ExportError(f"export: the graph does not run with the inserted layers: {error}") from error
    finally:
        for handle in handles:
            handle.remove()
    shape = module.inputs[0].shape if module.inputs else None
    first: Any = examples[0] if examples else None
    return seen, first.shape[0] if isinstance(first, Tensor) and shape and isinstance(shape[0], str) else 0


def _free_axes(model: Any, node: Any, args: Sequence[Tensor], batch: int) -> list[Axes]:
    """Return a dict for each argument; the dict maps each axis that the graph leaves free to the axis's name."""
    known = _declared(model, node.input) or describing.kinds(_in_front(model, node, args)).get("", {})
    found: list[Axes] = []
    for number, (name, x) in enumerate(zip(node.input, args, strict=True)):
        shape = known[name].shape if name in known else None
        free = [axis for axis, n in enumerate(shape or ()) if not isinstance(n, int)]
        labels = {axis: str(shape[axis] or f"input_{number}_axis_{axis}") for axis in free} if shape else {}
        if batch and x.ndim and x.shape[0] == batch:  # even if the file says otherwise about an inner value
            labels.setdefault(0, "batch")
        found.append(labels if shape is None or len(shape) == x.ndim else {})
    return found


def _declared(model: Any, names: Sequence[str]) -> Mapping[str, Kind]:
    """Return the shapes that the file declares for these values; return {} if a shape is missing."""
    described = {entry.name: entry for entry in (*model.graph.value_info, *model.graph.input)}
    if not all(name in described and described[name].type.tensor_type.HasField("shape") for name in names):
        return {}
    return {name: Kind(0, declared_of(described[name])) for name in names}


def _in_front(model: Any, node: Any, args: Sequence[Tensor]) -> Any:
    """Return the part of the model before a layer, for shape inference, which does not know the layer's node."""
    front = describing.skeleton(model)
    place = next(place for place, other in enumerate(front.graph.node) if is_layer(other) and other.name == node.name)
    del front.graph.node[place:], front.graph.output[:]
    elems = [helper.np_dtype_to_tensor_dtype(x.dtype) for x in args]
    ends = [helper.make_tensor_value_info(name, elem, None) for name, elem in zip(node.input, elems, strict=True)]
    front.graph.output.extend(ends)
    return front


def _traced(layer: Module, path: str, args: list[Tensor], free: list[Axes], opset: int, training: bool | None) -> Any:
    """Trace the layer with all free axes of the graph.

    If this fails, trace the layer with only the batch as a free axis. If this fails too, trace it without free axes.
    """
    names = [f"input_{number}" for number in range(len(args))]
    axes = {name: labels for name, labels in zip(names, free, strict=True) if labels}
    batch = {name: {0: labels[0]} for name, labels in axes.items() if 0 in labels}
    first: Exception | None = None
    for tried in (axes, batch, {}) if axes != batch else (axes, {}):
        try:
            part = translate(
                layer, tuple(args), opset_version=opset, training=training, input_names=names, dynamic_axes=tried
            ).proto
        except (ExportError, ValueError, TypeError) as error:
            first = first or error
            continue
        if first is not None:
            shapes = ", ".join(str(x.shape) for x in args)
            warnings.warn(
                f"export: the inserted layer {path!r} is written for inputs of shape {shapes} only: {_said(first)}",
                stacklevel=8,
            )
        return part
    assert first is not None
    raise ExportError(f"export: the inserted layer {path!r} cannot be written: {_said(first)}") from first


def _said(error: Exception) -> str:
    return str(error).removeprefix("export: ").partition("; leave that axis out of")[0]


def _put(model: Any, node: Any, part: Any, layer: Module, contents: dict[str, Any], outputs: bool) -> None:
    """Replace the stand-in node of a layer by the layer's nodes.

    outputs    True if the new values of the layer's buffers become outputs of the graph
    """
    path, taken, state = node.name, set(names_of(model)), layer._loadable()
    says_kinds = bool(Origin.of(model).kinds)
    own = {tensor.name: tensor for tensor in part.graph.initializer}
    names = dict(zip((entry.name for entry in part.graph.input), node.input, strict=True))
    first, *updates = part.graph.output
    names[first.name] = node.output[0]
    names |= {name: f"{path}.{name}" if name in state else f"{path}/{name}" for name in own}
    names |= {entry.name: f"{path}.{entry.name}" for entry in updates}
    clash = taken.intersection(names[name] for name in (*own, *(entry.name for entry in updates)))
    if clash:
        raise ExportError(f"export: the name {min(clash)!r} of an inserted layer is taken in the graph")
    nodes = renamed(part.graph.node, path, scope_of_names(names, path))
    for inner in nodes:  # their names begin with a module's path, `fc.1/Gemm`
        if inner.name.removeprefix(f"{path}/").count("/"):
            inner.name = inner.name.replace(f"{path}/", f"{path}.", 1)
    bring_functions(model, part)
    place = next(place for place, other in enumerate(model.graph.node) if is_layer(other) and other.name == path)
    del model.graph.node[place]
    for number, inner in enumerate(nodes):
        model.graph.node.insert(place + number, inner)
    for name, tensor in own.items():
        array = tensors.read(tensor, f"initializer {tensor.name!r}", None, Budget())
        new = model.graph.initializer.add(name=names[name])
        encoding.describe(new, array)
        contents[new.name] = array
        if says_kinds and name in state:  # in such a file a tensor without a mark is not a Parameter
            new.metadata_props.add(key=KIND, value=PARAMETER if isinstance(state[name], Parameter) else "BUFFER")
        if array.size <= describing.SMALL:
            encoding.fill([(new, array)])
    for entry in updates if outputs else ():
        shape = [dim.dim_value for dim in entry.type.tensor_type.shape.dim]
        elem = entry.type.tensor_type.elem_type
        model.graph.output.append(helper.make_tensor_value_info(names[entry.name], elem, shape))
