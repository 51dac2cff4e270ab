"""SequenceMap applies a graph to every element of a sequence; we read it as the equivalent Loop."""

from __future__ import annotations

from typing import Any

from onnx import GraphProto, helper

from minorm.onnx.operators.expansions import Call, expands, parsed, refuse


@expands("", "SequenceMap")
def sequence_map(call: Call) -> Any:
    """Write the Loop; each turn reads the next element of every sequence.

    An input that is a Tensor, not a sequence, is the same in every turn.
    """
    body = call.get("body", None)
    if not isinstance(body, GraphProto) or len(body.input) != len(call.inputs) or not all(call.inputs):
        raise refuse("SequenceMap", "no body, or a body whose number of inputs differs from the node's")
    own = _unused_prefix(body)
    inputs = [f"{own}_in{i}" for i in range(len(call.inputs))]
    outputs = [f"{own}_out{i}" for i in range(len(body.output))]
    kept = [f"{own}_kept{i}" for i in range(len(body.output))]
    written = " ".join(f"{name}_empty = SequenceEmpty()" for name in kept)
    function = parsed(
        f'<domain: "", opset_import: ["" : {call.opset}]> SequenceMap <body> ({", ".join(inputs)}) => '
        f"({', '.join(outputs)}) {{\n{own}_length = SequenceLength({inputs[0]})  {written}\n"
        f"{', '.join(outputs)} = Loop <body = each ({own}_turn, {own}_going, {', '.join(kept)}) => "
        f"({own}_goes_on, {', '.join(f'{name}_on' for name in kept)}) {{ {own}_goes_on = Identity({own}_going) }}> "
        f'({own}_length, "", {", ".join(f"{name}_empty" for name in kept)}) }}'
    )
    function = type(function).FromString(function.SerializeToString())  # a copy, as the parsed one is shared
    graph = function.node[-1].attribute[0].g
    for name, entry, several in zip(inputs, body.input, call.sequences, strict=True):
        element = ("SequenceAt", [name, f"{own}_turn"]) if several else ("Identity", [name])
        graph.node.append(helper.make_node(*element, [entry.name]))
    graph.node.extend(body.node)
    graph.initializer.extend(body.initializer)
    for name, entry in zip(kept, body.output, strict=True):
        graph.node.append(helper.make_node("SequenceInsert", [name, entry.name], [f"{name}_on"]))
    return function


def _unused_prefix(body: GraphProto) -> str:
    """Return a prefix that no name in the graph starts with."""
    taken = [entry.name for entry in (*body.input, *body.output, *body.initializer)]
    taken += [name for node in body.node for name in (*node.input, *node.output)]
    own = "map"
    while any(name.startswith(own) for name in taken):
        own += "s"
    return own
