"""Translate a model to a ModelProto: run the model on an example, walk through the recorded calls, and name all values.

This module uses neither files nor runtimes; `export.py` uses both.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx

from minorm.nn import Module
from minorm.onnx.exporting import proto, trace_lengths
from minorm.onnx.exporting.agreement import Agreement
from minorm.onnx.exporting.default_opset import Choice, Pieces, choose
from minorm.onnx.exporting.example_inputs import Axes, Inputs, inputs_of
from minorm.onnx.exporting.runs import Run, record, same_random_numbers_after, tensors_of, untouched
from minorm.onnx.exporting.writer import Writer
from minorm.onnx.graph import encoding, versions
from minorm.onnx.graph.errors import ExportError, Unstable
from minorm.onnx.graph.external import Weights
from minorm.onnx.graph.model_graph import Graph, Node, Value
from minorm.onnx.loading import metadata
from minorm.onnx.loading.graph_module import GraphModule
from minorm.onnx.loading.updates import ENDING
from minorm.support.argument_errors import kind_of
from minorm.tensor.tensor import Tensor

LEAST = 16 << 20  # bytes of memory that must be free at the start: with less, even system libraries fail


class Translated:
    """Holds a translated model: the file, and the correct results for it.

    inputs, results    the example, and the model's results for it in the order of the file's outputs: first the values
                       that the model returned, then the new values of its buffers
    training           True if a layer was in training mode
    example            the free axes of the inputs, and the lengths at which they were traced
    nodes              the nodes of the graph, with their names in the file; "" for nodes that the file leaves out
    why                a text that says why the opset below was not chosen; "" if no opset is below or the caller chose
                       the opset
    """

    def __init__(
        self, model: Callable[..., Any], opset: int, training: bool | None, example: Inputs, why: str = ""
    ) -> None:
        self.model, self.opset, self.mode, self.example, self.why = model, opset, training, example, why
        self.inputs = example.tensors
        self.training = training is not False
        self.proto: onnx.ModelProto
        self.results: list[Tensor]
        self.nodes: list[Node]
        self.became: list[str] = []  # the buffers of modules whose new contents are outputs

    def follow(self, args: tuple[Any, ...], at: Mapping[str, int]) -> Writer:
        """Trace the model again, with one more run in which the free axes have the lengths `at`.

        This run is called the follower. Raise Unstable if its operations differ from the operations of the other runs.
        """
        with same_random_numbers_after(self.model):
            symbols, example = self.example.symbols, self.example
            others = [example.resized({symbol: n}) for symbol, n in symbols.runs]
            runs = [_run(self.model, own, self.mode) for own in (example.args, *others, args)]
            return _walk(self.model, self.opset, self.mode, example, runs, probe=False, follower=at)[0]


def translate(
    model: Callable[..., Any],
    args: Any,
    *,
    opset_version: int | None,
    training: bool | None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    dynamic_axes: Axes | None = None,
    weights: Weights | None = None,
) -> Translated:
    """Translate `model(*args)` to a ModelProto; all other arguments have the same meaning as in `export`.

    weights    collects the contents of large initializers, if these go to a separate file
    """
    opset = _opset(opset_version)
    if not callable(model):
        raise TypeError(f"export: model is {type(model).__name__}; expected an nn.Module or a function of Tensors")
    encoding.reserve(LEAST, "export: running the model and writing it down")
    inputs = inputs_of(model, args, input_names, output_names, dynamic_axes)
    with same_random_numbers_after(model):
        try:
            inputs, runs = trace_lengths.runs_of(inputs, lambda own: _run(model, own, training))
            probe = _probe(model, inputs, training)
            choice = _write(model, opset, training, inputs, [*runs, *probe], bool(probe))
        except Unstable as reason:
            if dynamic_axes:
                raise ExportError(
                    f"export: {reason}; leave that axis out of dynamic_axes to fix its length"
                ) from reason
            size, inputs = inputs.symbols.base[0], inputs.fixed()
            runs, probe = [_run(model, inputs.args, training)], _probe(model, inputs, training)
            choice = _write(model, opset, training, inputs, [*runs, *probe], bool(probe))
            choice.found[0].graph.warn(f"the batch size is fixed at {size}: {reason}")

    writer, outputs = choice.found
    graph, base = writer.graph, runs[0]
    if not tensors_of(base.result):
        raise TypeError(f"export: the model returned {kind_of(base.result)}; expected a Tensor, or a tuple, list "
                        "or dict of Tensors")  # fmt: skip
    for message in graph.warnings:
        warnings.warn(f"export: {message}", stacklevel=3)
    wanted = _output_names(model, base.result, len(outputs), output_names)
    new = _updates(graph, outputs, wanted)
    if training is None and isinstance(model, GraphModule):  # it has the outputs of its file
        new = [(name, value) for name, value in new if name in model.updated_names]
    translated = Translated(model, choice.opset, training, inputs, choice.why)
    translated.proto = proto.build(
        graph,
        [*zip(wanted, outputs, strict=True), *new],
        type(model).__name__ if isinstance(model, Module) else getattr(model, "__name__", "model"),
        metadata.written(model, training) if isinstance(model, Module) else {},
        fixed=[*(input_names or ()), *(output_names or ())],
        weights=weights,
    )
    buffers = [name.removesuffix(ENDING) for name, _ in new]
    translated.became = list(itertools.takewhile(lambda name: name in base.buffers, buffers))
    translated.results = [*tensors_of(base.result), *(base.buffers[name] for name in translated.became)]
    translated.nodes = graph.nodes
    return translated


def _updates(graph: Graph, outputs: Sequence[Value], taken: Sequence[str]) -> list[tuple[str, Value]]:
    """Return pairs (name, new value) of the buffers, except for values that the model itself returns."""
    same = {id(node.outputs[0]): node.inputs[0] for node in graph.nodes if node.operator == "Identity"}
    returned = set()
    for output in outputs:
        value: Value | None = output
        while value is not None:
            returned.add(id(value))
            value = same.get(id(value))
    found = [(f"{buffer.home or buffer.name}{ENDING}", v) for buffer, v in graph.updated.values()]
    return [(name, value) for name, value in found if name not in taken and id(value) not in returned]


def _newest() -> int:
    return min(versions.NEWEST, onnx.defs.onnx_opset_version())


def _opset(asked: int | None) -> int | None:
    newest = _newest()
    if asked is None:
        return None
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


def _run(model: Callable[..., Any], args: tuple[Any, ...], training: bool | None) -> Run:
    with untouched(model, training):
        return record(model, args)


def _probe(model: Callable[..., Any], inputs: Inputs, training: bool | None) -> list[Run]:
    """Run the model with other input values; return the run in a list, or an empty list if the model refuses them."""
    try:
        return [_run(model, inputs.disturbed(), training)]
    except trace_lengths.REFUSALS:
        return []


Written = tuple[Writer, list[Value]]  # the Writer, and the Values of the results


def _write(
    model: Callable[..., Any],
    opset: int | None,
    training: bool | None,
    inputs: Inputs,
    runs: Sequence[Run],
    probe: bool,
) -> Choice[Written]:
    """Write the graph at this opset; if `opset` is None, choose one."""

    def walk(at: int, pieces: Pieces) -> Written:
        return _walk(model, at, training, inputs, runs, probe, pieces=pieces)

    return choose(walk, _newest()) if opset is None else Choice(opset, walk(opset, Pieces()))


def _walk(
    model: Callable[..., Any],
    opset: int,
    training: bool | None,
    inputs: Inputs,
    runs: Sequence[Run],
    probe: bool,
    follower: Mapping[str, int] | None = None,
    pieces: Pieces | None = None,
) -> Written:
    graph = Graph(opset, inputs.symbols)
    for name, tensor, shape in zip(inputs.names, inputs.tensors, inputs.shapes(), strict=True):
        graph.inputs.append(Value(shape, tensor.dtype, name))
    writer = Writer(Agreement(graph, probe, follower), _homes(model), _labels(model), training, pieces)
    try:
        return writer, writer.write(runs, graph.inputs, inputs.places)
    except Unstable as reason:
        raise Unstable(f"{reason}{_layer(model, graph.scope)}") from reason


def _layer(model: Callable[..., Any], path: str) -> str:
    """Return the end of a sentence that names the layer at which a walk stopped; "" for a plain function."""
    module = dict(model.named_modules()).get(path) if isinstance(model, Module) else None
    name = f"{path!r}, a " if path else "the "
    return "" if module is None else f"; the layer is {name}{type(module).__name__}"


def _homes(model: Callable[..., Any]) -> dict[int, str]:
    """Map the id of each parameter's or buffer's array to its state_dict key."""
    if not isinstance(model, Module):
        return {}
    named = [*model.named_parameters(), *model.named_buffers()]
    return {id(tensor.array): key for key, tensor in reversed(named)}


def _labels(model: Callable[..., Any]) -> dict[int, str]:
    """Map the id of each array that a module holds to the name of its attribute, or of its constant in the file."""
    if not isinstance(model, Module):
        return {}
    labels = (
        {id(value.array): name for name, value in model.constants.items()} if isinstance(model, GraphModule) else {}
    )
    return labels | {
        id(value.array): f"{path}.{name}" if path else name
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, Tensor)
    }
