"""Find the values at which a graph can be cut so that unsupported nodes stay out.

Pass the names of these values as `load(..., outputs=[...])`.

A cut graph can return every value that does not depend on a missing node. We propose the values that the missing nodes
read. If one of these values depends on another one, we propose only the value that is computed later.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from minorm.onnx.graph.reading import Node

MOST = 8  # the most names in a message
_SIZES = frozenset(("Shape", "Size"))


def values(
    nodes: Sequence[Node], inputs: Iterable[str], outputs: Collection[str], missing: Collection[Node]
) -> list[str]:
    """Return the names, in the file's order, of the last values that depend on the inputs but not on `missing`."""
    lost, live = set[str](), set(inputs)
    missed = {id(node) for node in missing}
    good: list[Node] = []
    for node in nodes:
        read = [*node.inputs, *(condition for condition, _ in node.conditions)]
        if id(node) in missed or not lost.isdisjoint(read):
            lost.update(filter(None, node.outputs))
        else:
            good.append(node)
            if node.operator not in _SIZES and not node.conditions and not live.isdisjoint(node.inputs):
                live.update(filter(None, node.outputs))
    ends = {name for node in nodes for name in node.inputs if not lost.isdisjoint(node.outputs)} | set(outputs)
    found: list[str] = []
    covered = set[str]()  # the inputs of the values that were found
    for node in reversed(good):
        own = [name for name in node.outputs if name in ends and name in live and name not in covered]
        found += own[::-1]
        if own or not covered.isdisjoint(node.outputs):
            covered.update(node.inputs)
    return found[::-1]


def advice(names: Sequence[str]) -> str:
    """Return the sentence that proposes to cut the graph at these values; "" if `names` is empty."""
    if not names:
        return ""
    rest = len(names) - MOST
    more = f"; outputs may also name {rest} more value{'' if rest == 1 else 's'}" if rest > 0 else ""
    return f"load(..., outputs=[{', '.join(map(repr, names[:MOST]))}]) loads the graph before these nodes{more}"
