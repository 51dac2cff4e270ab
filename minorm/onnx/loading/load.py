"""Load an ONNX model as a Module that runs, differentiates and trains."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import onnx

from minorm.devices import dtypes
from minorm.onnx.graph import encoding, tensors
from minorm.onnx.graph.errors import LoadError
from minorm.onnx.graph.lengths import length_of
from minorm.onnx.graph.storage import sparse
from minorm.onnx.graph.tensors import Budget, text
from minorm.onnx.graph.weights_folder import Folder
from minorm.onnx.loading import metadata, original, recognition, updates, validation, wanted_type, weights
from minorm.onnx.loading.exchange import spots
from minorm.onnx.loading.flattening import Flattener
from minorm.onnx.loading.graph_building import Builder
from minorm.onnx.loading.graph_inputs import Input
from minorm.onnx.loading.graph_module import GraphModule
from minorm.onnx.loading.judging.naming import Origin
from minorm.onnx.loading.quantized import byte_nodes, integer_weights
from minorm.onnx.loading.resolving import resolve
from minorm.onnx.loading.weights import Trainable
from minorm.onnx.loading.wiring import Wiring
from minorm.serialization import limits
from minorm.support.argument_errors import checked
from minorm.support.documented import documented

Source = str | os.PathLike[str] | bytes | bytearray | memoryview | Any  # Any: an onnx.ModelProto


@documented(
    {},
    source="a path, the file's bytes, or an onnx.ModelProto. Weights may lie in other files next to a path",
    outputs=(
        "names of values at which the graph is cut: these values become the outputs, and all nodes and inputs that "
        "they do not need are left out. None takes the graph's outputs"
    ),
    max_bytes="a limit in bytes for the file, for all its weights together, and for the memory that a run takes in "
    "addition to weights and inputs. From 32 MiB to 2 GiB this limit is the same for all inputs; from 2 GiB on, a run "
    "may take 2000 times the bytes of its inputs, or 8000 times while gradients are recorded, if that is more. The "
    "nodes and other parts of a file may together take 36 times the file's length plus 48 MiB; a limit above 2 GiB "
    "replaces this limit too",
    before=(
        "the name of a module, a node, a value or a tensor, as in `GraphModule.replace`: the graph is cut before the "
        "nodes with this name, and the module returns the values that these nodes read from the network. None loads "
        "the whole graph"
    ),
    trainable='which float tensors of the file are Parameters: names and patterns (`["head.*", "onnx::Conv_12"]`), or '
    "a function `(name, array) -> bool`. None takes the weights, as far as the file says which these are",
    external_root=(
        "a folder that you trust: files with weights may be links to files in this folder. With None, links are "
        "refused, unless the model itself is a link and the weights are in the folder to which this link leads, as in "
        "a hub's cache"
    ),
    dtype=(
        "the float type in which the model computes, such as mn.bfloat16, as after `model.to(dtype)`. None takes the "
        "file's types"
    ),
)
@checked
def load(
    source: Source,
    outputs: Sequence[str] | None = None,
    max_bytes: int = limits.ONNX,
    trainable: Trainable = None,
    before: str | None = None,
    external_root: str | os.PathLike[str] | None = None,
    dtype: Any = None,
) -> GraphModule:
    """Load an ONNX model as a Module: `model(*inputs)` returns the output, or a tuple of the outputs.

    `model(*inputs)` takes the inputs that are not initializers, in the order of the graph. A tensor is a weight if it
    has the name of a module's tensor (`layer1.0.conv1.weight`), if an operator reads it as a weight, or if nodes
    combine it with values of the network. But numbers from a formula are not weights. A weight becomes a Parameter
    under its name if a gradient can flow to it from an output. Other numbers, such as an eps or an exponent, are
    constants. `minorm check --trainable` gives the reason for each tensor. The running statistics of a
    BatchNormalization are buffers under their names. A GroupNorm, LayerNorm or RMSNorm that a file writes in other
    operators is one layer, unless another node reads one of the values in between. Each layer starts in the mode of its
    node in the file, training or inference. train() and eval() switch all layers that are not frozen. A layer that was
    frozen when minorm exported the model is frozen again.

    In a training graph that minorm wrote, the outputs `<name>.updated` are the next values of buffers. The module
    copies these outputs to its buffers and returns only the other outputs. If `outputs` names `<name>.updated`, the
    module returns this output too.

    `load(path, dtype=mn.bfloat16)` loads the network in another float type: parameters, buffers, constants, inputs,
    outputs and the results of Casts. The network runs, trains and is exported in this type.

    `load(path, before="fc")` loads the network without its last layer `fc`, so that you can add other layers;
    `model.replace("fc", layer)` puts another layer in its place. `model.metadata` holds the file's own entries, such as
    class names.

    Raise LoadError, a ValueError, for a damaged file, for a path that is not a regular file, and for a name or pattern
    in `trainable` that matches nothing. With `dtype`, raise LoadError also if the graph has only integers or if a
    weight would become infinite. If minorm lacks the operators of some nodes, one LoadError lists all these nodes. It
    also lists the values before these nodes at which you can cut the graph (`error.cuts`). FileNotFoundError and
    PermissionError name the file. Raise MemoryError if the model does not fit.

    Example:
        >>> model = nn.Linear(2, 3)
        >>> loaded = mn.onnx.load(mn.onnx.export(model, mn.ones(1, 2)))
        >>> x = mn.randn(4, 2)
        >>> loaded(x).allclose(model(x)), [name for name, _ in loaded.named_parameters()]
        (True, ['weight', 'bias'])
    """
    if before is not None and outputs is not None:
        raise ValueError(
            f"load: before={before!r} and outputs={outputs!r}; expected only one, because both cut the graph"
        )
    if dtype is not None:
        dtype = dtypes.check_float("load", dtype)
    model = _module(
        source, outputs, max_bytes, whole=False, trainable=trainable, before=before, external_root=external_root,
        dtype=dtype,
    )  # fmt: skip
    return model if dtype is None else wanted_type.converted(model, dtype)


def load_whole(source: Source, max_bytes: int = limits.ONNX, folder: str | None = None) -> GraphModule:
    """Load a model like `load`, but as a module that returns every output, including updated running statistics.

    folder     the folder with the external weights of an onnx.ModelProto, if the model has external weights
    """
    return _module(source, None, max_bytes, whole=True, folder=folder)


def _module(
    source: Source,
    outputs: Sequence[str] | None,
    max_bytes: int,
    whole: bool,
    folder: str | None = None,
    trainable: Trainable = None,
    before: str | None = None,
    external_root: Any = None,
    dtype: Any = None,
) -> GraphModule:
    if isinstance(max_bytes, bool) or not isinstance(max_bytes, int) or max_bytes < 1:
        raise ValueError(f"load: max_bytes is {max_bytes!r}; expected a number of bytes, at least 1")
    model, folder = parse(source, max_bytes, folder, external_root)
    budget = Budget(max_bytes)
    opsets = validation.opsets_of(model)
    model = sparse.densified(model, folder, budget)
    model, stored = integer_weights.as_floats(model, max_bytes)
    initializers = _initializers(model, folder, budget)
    inputs = [_input(entry) for entry in model.graph.input if entry.name not in initializers]
    flattener = Flattener(model, opsets, folder, budget)
    nodes = flattener.nodes()
    ends = _outputs(model, outputs)
    if before is not None:
        ends = outputs = spots.in_front(before, nodes, initializers, [entry.name for entry in inputs], ends)
    given = _unique([entry.name for entry in inputs], initializers)
    if outputs is not None:
        _check_asked(ends, [*given, *(name for node in nodes for name in node.outputs)])
    validation.check_order(nodes, given, ends)
    updated = updates.of(model, initializers)
    if outputs is not None:
        updated = updates.still_computed(nodes, given, ends, updated)
    elif not whole:
        state = set(updated.values())
        ends = [name for name in ends if name not in state] or ends
    nodes = validation.needed(nodes, [*ends, *updated.values()])
    if outputs is not None:
        asked = {name for node in nodes for name in node.inputs} | set(ends)
        inputs = [entry for entry in inputs if entry.name in asked]
    resolve(nodes, [entry.name for entry in inputs], ends)
    for node in nodes:
        validation.check_node(node)
    returned = set(ends)
    blended = updates.adopted(nodes, metadata.statistics(model), initializers, updated, returned)
    if dtype is not None:
        wanted_type.check(dtype, nodes, inputs, initializers, ends)
    goals = [*ends, *blended.values()]
    nodes = validation.needed(nodes, goals)
    read = {name for node in nodes for name in node.inputs}
    origin, trainable = Origin.of(model), weights.listed(trainable)
    nodes = recognition.recognised(nodes, goals, model, inputs, initializers, origin, trainable)
    ours = model.producer_name == metadata.OURS
    types = recognition.types_of(nodes, inputs, initializers)
    wiring = Wiring(nodes, goals, initializers, recognition.learned(origin), {}, types)
    builder = Builder(
        nodes, inputs, ends, initializers, blended, budget, origin, trainable, byte_nodes.groups(nodes, wiring)
    )
    module = builder.build(metadata.frozen(model), ours)
    module.updated_names = [name for name in updated.values() if name not in returned]
    if not whole:
        wanted = None if outputs is None else read
        held = module.held_names() - builder.starts.keys()
        module.original = original.keep(
            model, flattener.layout, folder, Budget(max_bytes), held, wanted, builder.starts, builder.expanded
        )
        module.seal()
    module.metadata, module.stores_integers = metadata.entries_of(model), stored
    return module


# The file


def parse(
    source: Source, max_bytes: int, folder: str | None = None, external_root: Any = None
) -> tuple[Any, str | None]:
    """Return the model, and the folder of its external weights, which are the weights outside the file."""
    if isinstance(source, onnx.ModelProto):
        return source, folder
    if isinstance(source, (bytes, bytearray, memoryview)):
        if memoryview(source).nbytes > max_bytes:
            raise LoadError(
                f"load: the model takes {memoryview(source).nbytes} bytes, more than max_bytes={max_bytes}; pass a "
                "larger max_bytes (--max-bytes) if you trust it"
            )
        return encoding.parse(bytes(source), "load: this", max_bytes), None
    if isinstance(source, (str, os.PathLike)):
        return encoding.read(source, "load", max_bytes), Folder.of(source, external_root)
    raise TypeError(f"load: source is {type(source).__name__}; expected a path, bytes or an onnx.ModelProto")


def _initializers(model: Any, folder: str | None, budget: Budget) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for tensor in model.graph.initializer:
        if not text(tensor.name, "the name of an initializer") or tensor.name in found:
            raise LoadError(f"load: two initializers are called {tensor.name!r}; expected every name once, and not ''")
        found[tensor.name] = tensors.read(tensor, f"initializer {tensor.name!r}", folder, budget)
    return found


def _input(entry: Any) -> Input:
    text(entry.name, "the name of an input")
    given, optional = entry.type, entry.type.HasField("optional_type")
    given = given.optional_type.elem_type if optional else given
    form = "sequence" if given.HasField("sequence_type") else "tensor"
    given = given.sequence_type.elem_type if form == "sequence" else given
    kind = given.WhichOneof("value")
    if kind != "tensor_type":
        came = kind or "value without type"
        raise LoadError(f"load: input {entry.name!r} is a {came}; minorm reads tensors, and sequences of them")
    dtype = tensors.element_type(given.tensor_type.elem_type, f"input {entry.name!r}")
    if not given.tensor_type.HasField("shape"):
        return Input(entry.name, dtype, None, form, optional)
    if len(given.tensor_type.shape.dim) > tensors.MAX_RANK:
        raise LoadError(f"load: input {entry.name!r} declares more than {tensors.MAX_RANK} axes")
    lengths: list[int | str] = []
    for length in given.tensor_type.shape.dim:
        text(length.dim_param, "a length")
        said = length_of(length)
        if isinstance(said, int) and said < 0:
            raise LoadError(
                f"load: input {entry.name!r} declares a length of {said}; expected at least 0, or -1 for a free axis"
            )
        lengths.append("?" if said == "" else said)
    return Input(entry.name, dtype, tuple(lengths), form, optional)


def _outputs(model: Any, asked: Sequence[str] | None) -> list[str]:
    if asked is None:
        names = [text(entry.name, "the name of an output") for entry in model.graph.output]
        if not names:
            raise LoadError("load: the graph has no outputs")
        return names
    if isinstance(asked, str) or not asked:
        raise TypeError(f"load: outputs is {asked!r}; expected a list of names of values of the graph")
    return list(asked)


def _check_asked(names: Sequence[str], known: Sequence[str]) -> None:
    for name in set(names) - set(known):
        near = difflib.get_close_matches(str(name)[:100], [n for n in known[:1000] if 0 < len(n) < 100], n=3)
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "`minorm check` lists the nodes"
        raise LoadError(f"load: outputs asks for {name!r}, which no node computes; {hint}")


def _unique(inputs: Iterable[str], initializers: Mapping[str, Any]) -> list[str]:
    names = [*inputs, *initializers]
    known = {""}
    for name in names:
        if name in known:
            raise LoadError(f"load: two inputs of the graph are called {name!r}; expected every name once, and not ''")
        known.add(name)
    return names
