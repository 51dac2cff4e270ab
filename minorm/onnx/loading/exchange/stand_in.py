"""Put a stand-in node for a layer into the file of a loaded graph; `export` replaces it by the nodes of the layer."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from onnx import helper

from minorm.onnx.graph.names import drop, reads_of
from minorm.onnx.loading.flattening import Layout

DOMAIN, OPERATOR = "minorm", "Replaced"  # its name is the path of the layer


def put_layer(
    model: Any, layout: Layout, inputs: Sequence[str], output: str, returned: Sequence[str], gone: Collection[str]
) -> Layout:
    """Make a stand-in node without a name compute `output`, drop what is no longer needed, and return the new layout.

    returned    the values that the module returns; they may differ from the outputs of the graph
    gone        the outputs of the graph to drop
    """
    graph = model.graph
    before = reads_of(graph.node)
    needed_before = _needed(graph.node, [*returned, *(entry.name for entry in graph.output)])
    drop(graph.output, lambda entry: entry.name in gone)
    place = next(place for place, node in enumerate(graph.node) if output in node.output)
    graph.node[place].CopyFrom(helper.make_node(OPERATOR, inputs, [output], domain=DOMAIN))
    needed = _needed(graph.node, [*returned, *(entry.name for entry in graph.output)])
    kept = [place for place in range(len(graph.node)) if place in needed or place not in needed_before]
    for place in sorted(needed_before - needed, reverse=True):
        del graph.node[place]
    lost = before - reads_of(graph.node) - {*returned, *(entry.name for entry in graph.output)}
    held = {tensor.name for tensor in graph.initializer}
    drop(graph.initializer, lambda tensor: tensor.name in lost)
    drop(graph.input, lambda entry: entry.name in lost and entry.name in held)
    made = {name for node in graph.node for name in node.output} | {entry.name for entry in graph.input}
    drop(graph.value_info, lambda entry: entry.name not in made or entry.name == output)
    return _moved(layout, {old: new for new, old in enumerate(kept)})


def name_layer(model: Any, path: str) -> None:
    """Give a name to the newest stand-in node, which has no name yet."""
    next(node for node in model.graph.node if is_layer(node) and not node.name).name = path


def is_layer(node: Any) -> bool:
    """Return True if a node is the stand-in node of a layer."""
    return bool(node.domain == DOMAIN and node.op_type == OPERATOR)


def _needed(nodes: Sequence[Any], ends: Iterable[str]) -> set[int]:
    """Return the indices of the nodes on which these values depend, directly or indirectly."""
    wanted, found = set(ends), set()
    for place in range(len(nodes) - 1, -1, -1):
        if not wanted.isdisjoint(filter(None, nodes[place].output)):
            wanted |= reads_of([nodes[place]])
            found.add(place)
    return found


def _moved(layout: Layout, places: dict[int, int]) -> Layout:
    """Return the layout with the new indices of the nodes, and without the dropped nodes."""
    labels = {
        (context, place if context else places[place]): label
        for (context, place), label in layout.labels.items()
        if context or place in places
    }
    homes = {}
    for name, home in layout.homes.items():
        head, dot, rest = home.path.removeprefix("/").partition(".")
        if not home.path.startswith("/"):
            homes[name] = home
        elif int(head) in places:
            homes[name] = home._replace(path=f"/{places[int(head)]}{dot}{rest}")
    return replace(layout, labels=labels, homes=homes)
