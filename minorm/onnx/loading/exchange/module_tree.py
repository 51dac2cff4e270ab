"""Put a layer among the modules below a loaded graph, and remove the modules that are then superfluous."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from minorm.nn import Module
from minorm.nn.attributes import MODULE, Attributes
from minorm.onnx.graph.node_layers import Layer


def insert_layer(root: Module, layer: Module, wished: str, gone: Collection[int], lost: Collection[int]) -> str:
    """Put the layer at a dotted path below `root`, or at a similar path if another module is there; return the path.

    gone    the ids of the modules that the graph no longer runs
    lost    the ids of the tensors that the graph no longer reads
    """
    for place in [place for place in root.modules() if isinstance(place, Layer)]:
        place.uses = {name: tensor for name, tensor in place.uses.items() if id(tensor) not in lost}
        place.held = {at: tensor for at, tensor in place.held.items() if id(tensor) not in lost}
    running = {id(step.operation) for step in vars(root)["_steps"]} - set(gone)
    empty: set[int] = set()
    for _, child in root._own(MODULE):
        _find_empty(child, gone, running, empty)
    parent, name, path = _slot_for(root, wished, empty)
    if parent._kinds.get(name) == MODULE:
        vars(parent)[name] = layer  # keeps the old module's place in the order
    else:
        Attributes._register(parent, name, layer, MODULE, "replace")
    _clear(root, empty - {id(module) for module in layer.modules()})
    return path


def _find_empty(module: Any, gone: Collection[int], running: Collection[int], empty: set[int]) -> None:
    """Add to `empty` the modules that no longer hold or compute anything."""
    children = [child for _, child in module._own(MODULE)]
    for child in children:
        _find_empty(child, gone, running, empty)
    held = bool(module.uses) if isinstance(module, Layer) else id(module) not in gone
    if not held and id(module) not in running and all(id(child) in empty for child in children):
        empty.add(id(module))


def _slot_for(root: Module, wished: str, empty: set[int]) -> tuple[Module, str, str]:
    """Return the module that gets a layer, the layer's name in this module, and the layer's path.

    The modules on this path are removed from `empty`.
    """
    parent, reached = root, ""
    *above, name = wished.split(".")
    for part in above:
        child = vars(parent).get(part) if parent._kinds.get(part) == MODULE else None
        if child is None and _is_free(parent, part):
            child = Layer()
            Attributes._register(parent, part, child, MODULE, "replace")
            vars(child)["_sealed"] = True
        if not isinstance(child, Layer):
            parent, reached, name = root, "", wished.replace(".", "_")
            break
        empty.discard(id(child))
        parent, reached = child, f"{reached}{part}."
    number, unique = 0, name
    while not (_is_free(parent, unique) or (parent._kinds.get(unique) == MODULE and id(vars(parent)[unique]) in empty)):
        number += 1
        unique = f"{name}_{number}"
    return parent, unique, f"{reached}{unique}"


def _is_free(parent: Module, name: str) -> bool:
    return bool(name) and not hasattr(parent, name)


def _clear(module: Any, empty: Collection[int]) -> None:
    """Remove the empty modules below `module`."""
    for name, child in list(module._own(MODULE)):
        if id(child) in empty:
            del vars(module)[name]
            del module._kinds[name]
        elif isinstance(child, Layer):
            _clear(child, empty)
