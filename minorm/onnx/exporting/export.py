"""Export a model as ONNX, from an example of its input."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import onnx

from minorm.nn import Module
from minorm.onnx.exporting import norm_fusion, replaced, verifying
from minorm.onnx.exporting.example_inputs import Axes
from minorm.onnx.exporting.restoring import NeedsExample
from minorm.onnx.exporting.translating import translate
from minorm.onnx.exporting.writing_back import write_back
from minorm.onnx.graph import external
from minorm.onnx.graph.external import Path, Weights
from minorm.onnx.loading.graph_module import GraphModule
from minorm.onnx.loading.metadata import CLASSES, drop_stale_classes, entries_of, set_entries
from minorm.support.argument_errors import AnyCallable, checked
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor

# Arguments of torch.onnx.export that have no effect here: they say how PyTorch finds the graph and what it prints.
_TAKEN = {
    "artifacts_dir", "autograd_inlining", "do_constant_folding", "dump_exported_program", "dynamo", "fallback",
    "operator_export_type", "optimize", "profile", "report", "verbose",
}  # fmt: skip
# Arguments that change the file: the only value that we accept, and what to write instead of another value.
_ONLY = {
    "export_params": (True, "the parameters are in the file"),
    "keep_initializers_as_inputs": (False, "parameters are no inputs"),
    "dynamic_shapes": (None, 'give the names of the axes: dynamic_axes={"x": {0: "batch"}}'),
    "kwargs": (None, "give the arguments in their order: export(model, (x, y), path)"),
    "custom_opsets": (None, "all operators are ONNX's own"),
    "custom_translation_table": (None, "all operators are ONNX's own"),
    "export_modules_as_functions": (False, "a module is its operators"),
}


def in_pytorchs_words(function: AnyCallable) -> AnyCallable:
    """Decorate `export`, so that calls written for torch.onnx.export work."""

    @functools.wraps(function)
    def run(*given: Any, **options: Any) -> Any:
        if "f" in options and "path" not in options:
            options["path"] = options.pop("f")
        _, args, path = (*given[:3], None, None, None)[:3]
        if isinstance(args, (str, os.PathLike)) and path is not None:
            raise TypeError(
                f"export: args is a {type(args).__name__}, path a {type(path).__name__}; expected the order "
                "export(model, x, path)"
            )
        for name, (taken, instead) in _ONLY.items():
            if (value := options.pop(name, taken)) not in (None, taken, {}, ()):
                raise ValueError(f"export: {name}={value!r}; expected {taken}, or a call without {name}: {instead}")
        return function(*given, **{name: value for name, value in options.items() if name not in _TAKEN})

    return run  # type: ignore[return-value]


@documented(
    {},
    model="an nn.Module, or a function of Tensors. It runs a few times on the CPU and stays exactly as it was. A "
    "model that `load` returned is written back with the nodes, names and free axes of its file; such a model runs "
    "only if a tensor no longer has the shape that it has in the file",
    args=(
        "a Tensor, or a tuple of the arguments; Tensors become inputs, everything else is fixed. None is enough for a "
        "model that `load` returned"
    ),
    path="a file name, or a binary file; None writes no file",
    opset_version="7 to the newest. None is the lowest from 17 on at which no normalization is split into several "
    "nodes: 17 for most models, 21 with GroupNorm, 23 with RMSNorm. For a loaded file, None is the opset of the file",
    training="False writes the inference form, in any mode of the model. True keeps training behaviour: BatchNorm "
    "normalizes with the batch's statistics and its updated running statistics are further outputs, named "
    "`<key>.updated`; frozen layers stay in their inference form. None exports every layer in its present mode, and "
    "gives a loaded graph only the outputs of its file",
    input_names=(
        "names for the inputs; None takes the names of forward's parameters, or for a loaded graph the names in its "
        "file"
    ),
    output_names=(
        "names for the outputs; None is `output`, or `output_0`, `output_1` ..., or for a loaded graph the names in "
        "its file"
    ),
    dynamic_axes='as in PyTorch: {"x": {0: "batch", 2: "height"}} or {"x": [0, 2]}; {} fixes all axes. With None, axis '
    "0 of the first input is free and called `batch`, and so is axis 0 of every other input if it has the same length. "
    "The operations of the model may allow only some lengths of a free height or width. For a loaded graph, "
    "dynamic_axes gives names to free axes, and other free axes get the example's lengths; with None, all axes stay as "
    "in the file",
    external_data=(
        "None: weights go to a separate file beside `path`, `<path>.data`, if graph and weights together exceed the 2 "
        "GiB that one file can hold, or if the loaded file also had a separate file for weights. True: always; False: "
        "never"
    ),
    fuse_norms=(
        "True writes a GroupNorm, LayerNorm or RMSNorm as one node if the loaded file has several simple nodes for it "
        "and the opset has the operator; a warning names the norms that are left unchanged, and why"
    ),
    verify=(
        "True runs the checker, and then the file in onnxruntime: on `args`, and on inputs with two other lengths of "
        "every free axis, one of them odd. A loaded graph without `args` runs on random inputs with three lengths. "
        "The model itself computes the correct results for each length; if the model refuses a length, a warning says "
        "so and another length is taken. Nothing is written if the results differ, or if the file declares a false "
        "length"
    ),
    metadata="entries for the file's metadata, under your own names: texts are stored unchanged, other values as JSON. "
    'The command `predict` reads "classes", the names of the outputs, and "preprocessing", with mean, std, size and '
    "channels. None adds nothing; the entries of a loaded graph's file stay",
)
@in_pytorchs_words
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
    fuse_norms: bool = False,
    verify: bool = False,
    metadata: Mapping[str, Any] | None = None,
) -> onnx.ModelProto:
    """Write `model(*args)` as ONNX to `path`, and return the onnx.ModelProto.

    Parameters and buffers become initializers that are named by their state_dict keys. A BatchNormalization is never
    folded into a convolution. If parts of the model cannot be written, an ExportError lists all these parts. If the
    file and the model differ, a VerifyError names the size of the input and the first wrong node.

    A call written for torch.onnx.export works unchanged: `f` is another name for the path. Arguments that tell PyTorch
    how to find the graph, such as `dynamo` and `do_constant_folding`, have no effect.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
        >>> written = mn.onnx.export(model, mn.ones(1, 2))
        >>> [node.op_type for node in written.graph.node]
        ['Gemm', 'Relu']
    """
    if isinstance(model, GraphModule) and model.original is not None:
        try:
            return _write_back(
                model, args, path, external_data, verify, metadata or {},
                opset_version=opset_version,
                training=training,
                input_names=input_names,
                output_names=output_names,
                dynamic_axes=dynamic_axes,
                fuse_norms=fuse_norms,
            )  # fmt: skip
        except NeedsExample:
            if args is None:
                raise
    if args is None:
        raise TypeError(
            f"export: args is None; expected an example of the input, because {type(model).__name__} is exported by "
            "running it. Only a module that minorm.onnx.load returned needs no example, unless the module is part of "
            "another module"
        )
    weights = _weights(path, external_data)
    with _on_the_cpu(model):
        translated = translate(
            model,
            tuple(map(_host, args)) if isinstance(args, tuple) else _host(args),
            opset_version=opset_version,
            training=training,
            input_names=input_names,
            output_names=output_names,
            dynamic_axes=dynamic_axes,
            weights=weights,
        )
        _carry_metadata(translated.proto, model)
        _add_metadata(translated.proto, metadata or {})
        if fuse_norms:
            norm_fusion.fuse(translated.proto)
        comparison = verifying.against(translated) if verify else None
        external.write(translated.proto, path, weights, comparison.check if comparison else None)
    return translated.proto


def _weights(path: Path, asked: bool | None) -> Weights:
    return Weights(path if isinstance(path, (str, os.PathLike)) else None, asked)


def _write_back(
    model: GraphModule,
    args: Any,
    path: Path,
    external_data: bool | None,
    verify: bool,
    said: Mapping[str, Any],
    **options: Any,
) -> onnx.ModelProto:
    """Write a loaded graph back; weights that were outside of its file go to a separate file again."""
    assert model.original is not None
    if external_data is None and model.original.outside and isinstance(path, (str, os.PathLike)):
        external_data = True
    weights = _weights(path, external_data)
    examples = None if args is None else [*map(_host, model.check(args if isinstance(args, tuple) else (args,)))]
    with _on_the_cpu(model):
        proto = write_back(model, examples, weights=weights, write_layers=replaced.write, **options)
        if model.layers_put_in or model.output_names[0] != model.original.model.graph.output[0].name:
            _drop_stale_classes(proto)
        _add_metadata(proto, said)
        names = options["output_names"] or model.output_names
        comparison = verifying.of_graph(model, proto, options["training"], names, examples) if verify else None
        if comparison is not None and not weights.arrays:
            comparison.correct(proto)
        external.write(proto, path, weights, comparison.check if comparison else None)
    return proto


def _carry_metadata(proto: onnx.ModelProto, model: Any) -> None:
    """Copy the metadata of a loaded graph to the model that contains it, if there is exactly one loaded graph."""
    graphs = [part for part in model.modules() if isinstance(part, GraphModule)] if isinstance(model, Module) else []
    if len(graphs) == 1:
        set_entries(proto, {**entries_of(proto), **graphs[0].metadata})
        _drop_stale_classes(proto)


def _add_metadata(proto: onnx.ModelProto, said: Mapping[str, Any]) -> None:
    """Add the caller's metadata; raise ValueError for class names that do not fit the output."""
    if not said:
        return
    set_entries(proto, {**entries_of(proto), **said})
    if CLASSES in said and (why := drop_stale_classes(proto)):
        raise ValueError(f"export: {why.partition(', so')[0]}; expected one name for each class")


def _drop_stale_classes(proto: onnx.ModelProto) -> None:
    if why := drop_stale_classes(proto):
        warnings.warn(f"export: {why}", stacklevel=5)


@contextmanager
def _on_the_cpu(model: Any) -> Iterator[None]:
    """Inside this context, keep the module's GPU tensors on the CPU."""
    kept = [*model.parameters(), *model.buffers()] if isinstance(model, Module) else []
    there = [(tensor, tensor.array) for tensor in kept if tensor.is_cuda]
    for tensor, _ in there:
        tensor.set_array(tensor.detach().cpu().array)
    try:
        yield
    finally:
        for tensor, array in there:
            tensor.set_array(array)


def _host(argument: Any) -> Any:
    return argument.cpu() if isinstance(argument, Tensor) else argument
