"""Write a loaded graph that is part of a traced module: use the nodes of its file, not the traced operations.

During the walk through the trace, one node stands for the loaded graph (`stand_in`). The inputs of this node are the
loaded graph's inputs and initializers. In the finished model, `unfold` replaces the node by the loaded graph's nodes,
under new names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from onnx import helper

from minorm.onnx.exporting.inlining import renamed, scope_of_names
from minorm.onnx.exporting.writing_back import restored
from minorm.onnx.graph import tensors
from minorm.onnx.graph.errors import ExportError
from minorm.onnx.graph.model_graph import Graph, Node, Value
from minorm.onnx.graph.node_rewriter import graphs_of
from minorm.onnx.graph.scope import Embedded
from minorm.onnx.graph.tensors import Budget
from minorm.onnx.loading.metadata import OURS
from minorm.onnx.loading.updates import ENDING

DOMAIN, OPERATOR = "minorm", "Embedded"


def piece(target: Embedded, training: bool | None, opset: int) -> tuple[Any, dict[str, Any]] | None:
    """Return the loaded graph of `target` at this opset, and the arrays of its initializers.

    Return None if the nodes of the file cannot express the graph, so that only a trace can.
    """
    if target.module.layers_put_in:
        return None
    try:
        model, contents, _ = restored(target.module, training, opset, embedded=True)
    except ExportError:
        return None
    own = [tensor for tensor in model.graph.initializer if tensor.name not in contents]
    return model, {t.name: tensors.read(t, f"initializer {t.name!r}", None, Budget()) for t in own} | contents


def stand_in(
    graph: Graph,
    target: Embedded,
    model: Any,
    arrays: dict[str, Any],
    inputs: list[Value],
    types: Sequence[Any],
    value_of: Callable[..., Any],
) -> list[Value]:
    """Add one node for the whole loaded graph; return its results, but not the new values of buffers.

    types       the types of the module's results, which may differ from the types in the file
    value_of    a function that returns the Value of one of the module's Tensors
    """
    path, module = target.path, target.module
    state = module.tensors_by_name()
    values = list(inputs)
    for name, array in arrays.items():
        home = f"{path}.{name}" if path else name
        if name in state and state[name].shape == array.shape and state[name].dtype == array.dtype:
            values.append(graph.current(value_of(state[name])))
        elif name in state:  # the file repeats it for each sample, or holds it as integers
            values.append(Value(array.shape, array.dtype, home, array, home))
        else:
            values.append(Value(array.shape, array.dtype, f"{path}/{name}", array))
    results = [Value(None, dtype) for dtype in types]
    for entry in model.graph.output[len(results) :]:
        buffer = state[entry.name.removesuffix(ENDING)]
        results.append(Value(buffer.shape, buffer.dtype))
        graph.update(value_of(buffer), results[-1])
    graph.embedded.append((model, [*module.input_names, *arrays]))
    number = len(graph.embedded) - 1
    graph.nodes.append(Node(OPERATOR, list(values), list(results), {"number": number}, path))
    return results[: len(types)]


def unfold(model: Any, pieces: list[tuple[Any, list[str]]]) -> None:
    """Replace the stand-in node of each piece by the piece's nodes."""
    for index in range(len(model.graph.node) - 1, -1, -1):
        node = model.graph.node[index]
        if node.domain != DOMAIN or node.op_type != OPERATOR:
            continue
        part, formal = pieces[node.attribute[0].i]
        bring_functions(model, part)
        del model.graph.node[index]
        for place, inner in enumerate(_nodes(node, part, formal), start=index):
            model.graph.node.insert(place, inner)


def _nodes(node: Any, part: Any, formal: list[str]) -> list[Any]:
    graph, context = part.graph, node.name.replace(f"/{OPERATOR}", "")
    names = dict(zip(formal, node.input, strict=True))
    ends = [(entry.name, actual) for entry, actual in zip(graph.output, node.output, strict=False) if actual]
    passed = [(names[inner], actual) for inner, actual in ends if inner in names]
    for inner, actual in ends:
        names.setdefault(inner, actual)
    body = renamed(graph.node, context, scope_of_names(names, context))
    for inner in body if part.producer_name == OURS else ():  # their names begin with a module's path, `1/Conv`
        if inner.name.count("/") > 1:
            inner.name = inner.name.replace("/", ".", 1)
    return body + [helper.make_node("Identity", [source], [actual], actual) for source, actual in passed]


def bring_functions(model: Any, part: Any) -> None:
    """Add the functions of `part` to the model.

    If the model already has another function with the same name, the new function is renamed.
    """
    known = {(f.domain, f.name, f.overload): f for f in model.functions}
    for function in part.functions:
        key = (function.domain, function.name, function.overload)
        if key in known and known[key] != function:
            number = 2
            while (function.domain, f"{function.name}_{number}", function.overload) in known:
                number += 1
            _call_it(part, key, f"{function.name}_{number}")
            function.name = f"{function.name}_{number}"
        elif key in known:
            continue
        model.functions.append(function)
    have = {entry.domain for entry in model.opset_import}
    model.opset_import.extend(entry for entry in part.opset_import if entry.domain not in {*have, "", "ai.onnx"})
    model.ir_version = max(model.ir_version, part.ir_version)


def _call_it(part: Any, key: tuple[str, str, str], name: str) -> None:
    pending = [part.graph, *part.functions]
    while pending:
        holder = pending.pop()
        for node in holder.node:
            if (node.domain, node.op_type, node.overload) == key:
                node.op_type = name
            pending += [graph for _, graph in graphs_of(node)]
