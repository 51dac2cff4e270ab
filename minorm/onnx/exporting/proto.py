"""Turn a finished Graph into a ModelProto with names, shapes and contents; leave out nodes that no result needs."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
from onnx import helper

from minorm.config import __version__
from minorm.devices import dtypes
from minorm.onnx.exporting import embedding
from minorm.onnx.graph import encoding, versions
from minorm.onnx.graph.errors import ExportError
from minorm.onnx.graph.external import Weights
from minorm.onnx.graph.model_graph import ELEMENT_TYPES, Graph, Node, Value

NODE_BYTES = 8192  # bytes of memory; a node with its names and shapes takes less


class Names:
    """Hands out each name only once: a second `Relu` becomes `Relu_1`."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def take(self, wanted: str) -> str:
        """Return `wanted`, or `wanted_1`, `wanted_2` ... if it is taken."""
        name, number = wanted, self._next.get(wanted, 0)
        while name in self._taken:
            number += 1
            name = f"{wanted}_{number}"
        self._next[wanted] = number
        self._taken.add(name)
        return name


def build(
    graph: Graph,
    outputs: Sequence[tuple[str, Value]],
    name: str,
    metadata: dict[str, str],
    fixed: Sequence[str] = (),
    weights: Weights | None = None,
) -> onnx.ModelProto:
    """Build the model whose outputs are the pairs (name, value); raise ExportError if a name in `fixed` is taken.

    weights    collects the contents of large initializers, if these go to a separate file
    """
    results = _separate(graph, outputs)
    nodes = _needed(graph.nodes, results)
    used = list({id(v): v for node in nodes for v in node.inputs if v is not None}.values())
    initializers = [value for value in used if value.array is not None]
    _give_names(graph, nodes, initializers, [n for n, _ in outputs], results, set(fixed))
    ends = {id(value) for value in results}
    # Programs that load the file train float initializers, so fixed floats become Constants.
    fixed_numbers = [v for v in initializers if v.home is None and not v.trained and dtypes.is_float(v.dtype)]
    unchanging = {id(v) for v in fixed_numbers}
    held = [v for v in initializers if id(v) not in unchanging]
    weights = weights or Weights(None)
    weights.decide([value.array for value in initializers])
    # Large arrays are put into the model at the end, so that each is copied only once.
    large = sorted(held, key=lambda value: value.home is None)
    encoding.reserve(NODE_BYTES * len(nodes), "export: the graph")
    proto = helper.make_graph(
        [_constant(value) for value in fixed_numbers] + [_node(node) for node in nodes],
        name,
        [_info(graph, value) for value in graph.inputs],
        [_info(graph, value) for value in results],
        initializer=[_tensor(value) for value in large],
        value_info=[_info(graph, value) for value in fixed_numbers]
        + [
            _info(graph, value)
            for node in nodes
            for value in node.outputs
            if value is not None and id(value) not in ends
        ],
    )
    model = helper.make_model(
        proto,
        opset_imports=[helper.make_opsetid("", graph.opset)],
        ir_version=versions.ir_version(graph.opset),
        producer_name="minorm",
        producer_version=__version__,
    )
    helper.set_model_props(model, metadata)
    embedding.unfold(model, graph.embedded)
    constants = [node.attribute[0].t for node in model.graph.node[: len(fixed_numbers)]]
    encoding.fill((tensor, value.array) for tensor, value in zip(constants, fixed_numbers, strict=True))
    encoding.fill(
        (tensor, value.array)
        for tensor, value in zip(model.graph.initializer, large, strict=True)
        if not weights.take(value.array, tensor)
    )
    return model


def _separate(graph: Graph, outputs: Sequence[tuple[str, Value]]) -> list[Value]:
    """Make sure that each output has a separate value and that a node computes it; add an Identity if necessary."""
    results: list[Value] = []
    taken = {id(value) for value in graph.inputs}
    for _, value in outputs:
        if id(value) in taken or value.array is not None:
            value = graph.add("Identity", value)
        taken.add(id(value))
        results.append(value)
    return results


def _needed(nodes: Sequence[Node], results: Sequence[Value]) -> list[Node]:
    """Return the nodes on which a result depends, in the order of `nodes`."""
    wanted = {id(value) for value in results}
    kept = []
    for node in reversed(nodes):
        if any(id(value) in wanted for value in node.outputs if value is not None):
            wanted.update(id(value) for value in node.inputs if value is not None)
            kept.append(node)
    return kept[::-1]


def _give_names(
    graph: Graph,
    nodes: Sequence[Node],
    initializers: Sequence[Value],
    output_names: Sequence[str],
    results: Sequence[Value],
    fixed: set[str],
) -> None:
    """Name parameters by their state_dict keys, then inputs and outputs, and other values by module and operator."""
    names = Names()
    for value in initializers:
        if value.home is not None:
            value.name = names.take(value.home)
    for value, wanted in [
        *[(value, value.name or "input") for value in graph.inputs],
        *zip(results, output_names, strict=True),
    ]:
        value.name = names.take(wanted)
        if value.name != wanted and wanted in fixed:
            raise ExportError(
                f"export: the name {wanted!r} is taken by a parameter, an input or an output; choose another"
            )
    named = {id(value) for value in results}
    for value in initializers:
        if value.home is None:
            value.name = names.take(value.name or "constant")
    for node in nodes:
        scope = f"{node.scope}/" if node.scope else ""
        node.name = names.take(scope + node.operator)
        for output in node.outputs:
            if output is not None and id(output) not in named:
                output.name = names.take(f"{node.name}_output")


def _tensor(value: Value) -> onnx.TensorProto:
    """Make a TensorProto with a name, a type and a shape; the elements are filled in later."""
    return onnx.TensorProto(name=value.name, data_type=ELEMENT_TYPES[value.dtype][0], dims=value.array.shape)


def _constant(value: Value) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [value.name], value.name, value=_tensor(value))


def _node(node: Node) -> onnx.NodeProto:
    inputs = ["" if value is None else value.name for value in node.inputs]
    outputs = ["" if value is None else value.name for value in node.outputs]
    domain = embedding.DOMAIN if node.operator == embedding.OPERATOR else None
    return helper.make_node(node.operator, inputs, outputs, node.name, domain=domain, **node.attributes)


def _info(graph: Graph, value: Value) -> onnx.ValueInfoProto:
    shape = [graph.symbols.describe(length) for length in value.known_shape]
    return helper.make_tensor_value_info(value.name, ELEMENT_TYPES[value.dtype][0], shape)
