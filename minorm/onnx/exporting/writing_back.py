"""Export a module that `load` returned: write its file again, with the user's changes (restoring.py).

First the types change, then the opset, the lengths and the names; each of these changes only if the module or the
caller requires it. The elements of large tensors are written last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import onnx

from minorm.graph.grad_mode import no_grad
from minorm.onnx.checking import sandbox
from minorm.onnx.conversion import convert, describing
from minorm.onnx.exporting import integers_again, norm_fusion
from minorm.onnx.exporting.example_inputs import Axes
from minorm.onnx.exporting.examples import example
from minorm.onnx.exporting.restoring import Restorer
from minorm.onnx.exporting.retyping import retype
from minorm.onnx.exporting.runs import same_random_numbers_after, untouched
from minorm.onnx.exporting.trace_lengths import REFUSALS
from minorm.onnx.graph import encoding
from minorm.onnx.graph.errors import ExportError
from minorm.onnx.graph.external import Weights
from minorm.onnx.graph.lengths import length_of
from minorm.onnx.graph.names import names_of
from minorm.onnx.graph.node_rewriter import graphs_of
from minorm.onnx.loading import metadata
from minorm.onnx.loading.graph_module import GraphModule
from minorm.tensor.tensor import Tensor

WriteLayers = Callable[..., None]  # (module, model, contents, examples, training, opset)


def write_back(
    module: GraphModule,
    examples: Sequence[Tensor] | None,
    *,
    opset_version: int | None,
    training: bool | None,
    input_names: Sequence[str] | None,
    output_names: Sequence[str] | None,
    dynamic_axes: Axes | None,
    fuse_norms: bool,
    weights: Weights,
    write_layers: WriteLayers,
) -> onnx.ModelProto:
    """Return the ModelProto; raise NeedsExample if only tracing can express the module in its present state.

    write_layers    a function that traces and writes the inserted layers (replaced.py)
    """
    layers = partial(write_layers, module=module, examples=examples, training=training)
    model, contents, reshaped = restored(module, training, opset_version, layers)
    if reshaped:
        _run_again(module, examples, reshaped)
    metadata.rewrite(model, module, training)
    if fuse_norms:
        norm_fusion.fuse(model)
    if dynamic_axes is not None:
        _limit(model, module, examples, dynamic_axes)
    for given, entries, what in (
        (input_names, module.input_names, "input"),
        (output_names, module.output_names, "output"),
    ):
        if given is not None:
            _rename(model, entries, given, what)
    _fill(model, contents, weights)
    return model


def restored(
    module: GraphModule,
    training: bool | None,
    opset: int | None,
    write_layers: WriteLayers | None = None,
    embedded: bool = False,
) -> tuple[Any, dict[str, Any], list[str]]:
    """Restore the ModelProto, with the types of the module and the wanted opset.

    The result is a tuple (model, contents, names). The model lacks the elements of large tensors, which are in
    `contents`, by name. The names are those of tensors whose shape differs from that in the file.

    write_layers    a function with the arguments `model`, `contents` and `opset` that writes the inserted layers
    embedded        True if the model becomes a part of another graph; then the new values of all buffers are outputs
    """
    restorer = Restorer(module, training, lambda model: describing.kinds(describing.skeleton(model)), embedded)
    model = restorer.restore()
    contents = restorer.state.contents
    own = [tensor for tensor in model.graph.initializer if tensor.name in contents]
    encoding.fill((t, contents[t.name]) for t in own if contents[t.name].size <= describing.SMALL)
    dtype = module.converted_to()
    if dtype is not None:
        retype(model, dtype, {}, {*restorer.state.arrays, *contents})
    if write_layers is not None and module.layers_put_in:
        write_layers(model=model, contents=contents, opset=restorer.original.opset)
    if restorer.state.reshaped or module.layers_put_in:
        _infer_again(model, restorer.state.reshaped)
    if any(entry.type.WhichOneof("value") is None for entry in model.graph.output):  # in a cut graph
        describing.describe_outputs(model.graph, describing.kinds(describing.skeleton(model)).get("", {}))
    if module.stores_integers:
        integers_again.store(model.graph, contents)
    if opset is not None and opset != restorer.original.opset:
        convert.rewrite(model, opset)
    return model, contents, restorer.state.reshaped


def _fill(model: Any, contents: Mapping[str, Any], weights: Weights) -> None:
    """Write the elements of large initializers into the model or a weights file; small ones are written already."""
    tensors = {tensor.name: tensor for tensor in model.graph.initializer if tensor.name in contents}
    weights.decide([contents[name] for name in tensors])
    for name, tensor in tensors.items():
        if weights.take(contents[name], tensor):
            tensor.ClearField("raw_data")
        elif contents[name].size > describing.SMALL:
            encoding.fill([(tensor, contents[name])])


def _infer_again(model: Any, reshaped: Sequence[str]) -> None:
    """Infer lengths again, after a tensor has changed its shape or a layer was inserted. If a node does not fit a new
    shape, raise ExportError with the name of the first such node.
    """
    for entry in model.graph.output:
        for dim in entry.type.tensor_type.shape.dim:
            dim.Clear()
    describing.describe_anew(model, ranks=True)
    if not reshaped:  # the layers have run with the graph
        return
    answer = sandbox.ask(describing.skeleton(model), None, checker="full")
    if answer.failure is not None:
        raise ExportError(f"export: {_misfit(reshaped)}: {answer.failure[1].text}")


def _run_again(module: GraphModule, examples: Sequence[Tensor] | None, reshaped: Sequence[str]) -> None:
    """Run the module to check a Conv's channels and a Gemm's bias, which onnx's checker does not check."""
    try:
        if examples is None:
            examples = example(module)
        with same_random_numbers_after(module), untouched(module, None), no_grad():
            module(*examples)
    except REFUSALS as error:
        raise ExportError(f"export: {_misfit(reshaped)}: {error}") from error


def _misfit(reshaped: Sequence[str]) -> str:
    what = "no longer has the shape" if len(reshaped) == 1 else "no longer have the shapes"
    return f"{', '.join(map(repr, reshaped))} {what} of the file, so the graph no longer fits together"


def _limit(model: Any, module: GraphModule, examples: Sequence[Tensor] | None, asked: Axes) -> None:
    """Give the free axes the names in `asked`, and fix all other free axes at the example's lengths."""
    bound: dict[str, int | str] = {}  # name of a length -> its new name or value
    inputs = {entry.name: entry for entry in model.graph.input}
    for name in asked.keys() - inputs.keys() - {entry.name for entry in model.graph.output}:
        raise ValueError(
            f"export: dynamic_axes names {name!r}; the graph has the inputs {', '.join(module.input_names)}"
        )
    for place, name in enumerate(module.input_names):
        labels = asked.get(name, {})
        dims = inputs[name].type.tensor_type.shape.dim
        named = dict(labels) if isinstance(labels, Mapping) else {axis: f"{name}_axis_{axis}" for axis in labels}
        named = {axis % max(1, len(dims)): label for axis, label in named.items()}
        for axis, dim in enumerate(dims):
            fixed = isinstance(length_of(dim), int)
            if axis in named and fixed:
                raise ValueError(
                    f"export: dynamic_axes names axis {axis} of {name!r}, which the file fixes at {dim.dim_value}; a "
                    "loaded graph keeps the free axes of its file"
                )
            if fixed:
                continue
            if axis not in named and examples is None:
                raise ValueError(
                    f"export: dynamic_axes does not name axis {axis} of {name!r}, which is free in the file; give an "
                    "example, so that the axis gets the example's length"
                )
            new: int | str = named[axis] if axis in named else examples[place].shape[axis]  # type: ignore[index]
            if dim.dim_param:
                bound[dim.dim_param] = new
            else:
                _say(dim, new)
    for entry in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        for dim in entry.type.tensor_type.shape.dim:
            if dim.dim_param in bound:
                _say(dim, bound[dim.dim_param])
    if any(isinstance(length, int) for length in bound.values()):
        describing.describe_anew(model)


def _say(dim: Any, length: int | str) -> None:
    if isinstance(length, int):
        dim.dim_value = length
    else:
        dim.dim_param = length


def _rename(model: Any, old: Sequence[str], new: Sequence[str], what: str) -> None:
    """Rename the inputs or outputs."""
    if len(new) != len(old):
        raise ValueError(f"export: {what}_names has {len(new)} names; the graph has {len(old)} {what}s")
    names = {before: str(after) for before, after in zip(old, new, strict=True) if before != after}
    taken = set(names_of(model)) & set(names.values())
    if taken or len(set(new)) != len(new):
        raise ExportError(f"export: the name {min(taken or new)!r} is taken in the graph; choose another")
    pending = [model.graph] if names else []
    while pending:
        graph = pending.pop()
        for entry in (*graph.input, *graph.output, *graph.value_info):
            entry.name = names.get(entry.name, entry.name)
        for node in graph.node:
            for values in (node.input, node.output):
                for index, value in enumerate(values):
                    values[index] = names.get(value, value)
            pending += [inner for _, inner in graphs_of(node)]
