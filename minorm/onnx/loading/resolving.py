"""Find the operator version of each node, and check that minorm reads it; one error names all unread nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import onnx

from minorm.onnx.graph import registry, versions
from minorm.onnx.graph.errors import LoadError
from minorm.onnx.graph.reading import Node
from minorm.onnx.loading import cutting

OPTIMIZED = (
    "onnxruntime writes its own operators when it saves a model that it has optimized (ORT_ENABLE_EXTENDED, "
    "ORT_ENABLE_ALL): save with ORT_ENABLE_BASIC, or load the file that it was made from"
)


def resolve(nodes: Sequence[Node], inputs: Iterable[str] = (), outputs: Collection[str] = ()) -> None:
    """Find each node's version; one error lists all nodes without a reader and says where to cut the graph."""
    missing = []
    for node in nodes:
        why = registry.why_not(node.operator, node.domain, node.opset)
        if not why:
            node.since = versions.resolve(node.operator, node.opset)
        elif not node.domain and onnx.defs.has(node.operator):
            node.since = published(node)
        if any(isinstance(v, onnx.GraphProto) for v in node.attributes.values()):
            why = "it contains a graph, which minorm does not read"
        if why:
            missing.append((node, why))
    refuse(missing, nodes, inputs, outputs)


def published(node: Node) -> int:
    """Return the since-version of an operator that minorm does not read; 0 if ONNX has no such operator."""
    if not 0 < node.opset <= versions.NEWEST:
        return 0
    try:
        return int(onnx.defs.get_schema(node.operator, node.opset, "").since_version)
    except onnx.defs.SchemaError:
        return 0


def _is_of_onnxruntime(domain: str) -> bool:
    return domain.startswith(("com.microsoft", "com.ms."))


def refuse(
    missing: Sequence[tuple[Node, str]], nodes: Sequence[Node], inputs: Iterable[str], outputs: Collection[str]
) -> None:
    """Raise LoadError for nodes that cannot be read; the message gives the reasons, and where to cut the graph."""
    if missing:
        cuts = cutting.values(nodes, inputs, outputs, [node for node, _ in missing])
        lines = [f"load: minorm does not run {len(missing)} of {len(nodes)} nodes:"]
        lines += [f"  {node}: {why}" for node, why in missing]
        if any(_is_of_onnxruntime(node.domain) for node, _ in missing):
            lines.append(OPTIMIZED)
        lines += filter(None, [cutting.advice(cuts)])
        raise LoadError("\n".join(lines), {node.outputs: why for node, why in missing}, tuple(cuts))
