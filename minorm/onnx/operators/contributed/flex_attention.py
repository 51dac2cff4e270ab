"""FlexAttention of ai.onnx.preview: an attention that calls graphs to modify its scores and its weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from onnx import GraphProto, NodeProto, helper

from minorm.onnx.graph.node_rewriter import HALVES, graphs_of
from minorm.onnx.operators.expansions import OPSET, Call, expands, integers, parsed, refuse


@expands("ai.onnx.preview", "FlexAttention")
def flex_attention(call: Call) -> Any:
    """Write the attention as nodes; 16-bit inputs are computed in float32."""
    precision = call.get("softmax_precision", 0)
    widen = "Cast <to = 1>" if call.elements[0] in HALVES else "Identity"
    kind = f"Cast <to = {precision}>" if precision else "Identity"
    nodes = f"flex_q = {widen}(Q)  flex_k = {widen}(K)  flex_v = {widen}(V)\n"
    nodes += _repeated("flex_k", "flex_keys") + _repeated("flex_v", "flex_values")
    if "scale" in call.attributes:
        nodes += f"flex_scale_32 = Constant <value_float: float = {float(call.attributes['scale'])!r}> ()\n"
    else:
        nodes += "flex_size = Shape <start = 3, end = 4> (Q)  flex_size_32 = Cast <to = 1> (flex_size)\n"
        nodes += "flex_root = Sqrt(flex_size_32)  flex_scale_32 = Reciprocal(flex_root)\n"
    nodes += "flex_scale = CastLike(flex_scale_32, flex_q)  flex_scaled = Mul(flex_q, flex_scale)\n"
    nodes += "flex_turned = Transpose <perm = [0, 1, 3, 2]> (flex_keys)  flex_raw = MatMul(flex_scaled, flex_turned)\n"
    nodes += f"flex_scores = {kind}(flex_raw)\n"
    head = f'<domain: "ai.onnx.preview", opset_import: ["" : {call.opsets.get("", OPSET)}]> FlexAttention '
    head += "<scale, score_mod, prob_mod, softmax_precision> (Q, K, V) => (Y)"
    function = parsed(f"{head} {{ {nodes} }}")
    function = type(function).FromString(function.SerializeToString())  # a copy, as the parsed one is shared
    scores = _through(function, call, "score_mod", "flex_scores")
    function.node.append(helper.make_node("Softmax", [scores], ["flex_weights"], axis=-1))
    weights = _through(function, call, "prob_mod", "flex_weights")
    function.node.append(helper.make_node("CastLike", ["flex_values", weights], ["flex_wide"]))
    function.node.append(helper.make_node("MatMul", [weights, "flex_wide"], ["flex_y"]))
    function.node.append(helper.make_node("CastLike", ["flex_y", "V"], ["Y"]))
    return function


def _repeated(x: str, y: str) -> str:
    """Repeat each head for all query heads that use it; the copies of a head are neighbours."""
    n = f"{x}_"
    return (
        integers(f"{n}one", [1]) + integers(f"{n}two", [2])
        + f"{n}wanted = Shape <start = 1, end = 2> (Q)  {n}there = Shape <start = 1, end = 2> ({x})\n"
        + f"{n}times = Div({n}wanted, {n}there)  {n}apart = Unsqueeze({x}, {n}two)\n"
        + f"{n}repeats = Concat <axis = 0> ({n}one, {n}one, {n}times, {n}one, {n}one)\n"
        + f"{n}many = Tile({n}apart, {n}repeats)  {n}batch = Shape <start = 0, end = 1> ({x})\n"
        + f"{n}rest = Shape <start = 2, end = 4> ({x})  {n}shape = Concat <axis = 0> ({n}batch, {n}wanted, {n}rest)\n"
        + f"{y} = Reshape({n}many, {n}shape)\n"
    )  # fmt: skip


def _through(function: Any, call: Call, name: str, x: str) -> str:
    """Append an attribute's graph, applied to `x`, and return the result's name; return `x` if there is no graph."""
    graph = call.get(name, None)
    if graph is None:
        return x
    if not isinstance(graph, GraphProto) or len(graph.input) != 1 or len(graph.output) != 1:
        raise refuse("FlexAttention", f"a {name} without exactly one input and one output")
    own = {graph.input[0].name: x}
    own |= {t.name: f"{name}_{t.name}" for t in graph.initializer}
    own |= {made: f"{name}_{made}" for node in graph.node for made in node.output if made}
    function.node.extend(helper.make_node("Constant", [], [own[t.name]], value=t) for t in graph.initializer)
    function.node.extend(_renamed(graph, own, name))
    return own.get(graph.output[0].name, graph.output[0].name)


def _renamed(graph: GraphProto, own: dict[str, str], name: str) -> Iterator[NodeProto]:
    for node in graph.node:
        if any(graphs_of(node)):
            raise refuse("FlexAttention", f"a {name} whose nodes hold graphs")
        copy = NodeProto()
        copy.CopyFrom(node)
        copy.input[:] = [own.get(n, n) for n in node.input]
        copy.output[:] = [own.get(n, n) for n in node.output]
        yield copy
