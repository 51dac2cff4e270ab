"""Build the tree of modules below a loaded graph, from the paths in the names of tensors and nodes.

A name with dots, `layer1.0.conv1.weight`, says which module holds the tensor. A tool may have renamed the tensor
(`onnx::Conv_193`, the weight of a convolution into which a BatchNorm was folded). Such a tensor goes to the module of
the first node that reads the tensor. The names come from the file. If a part of a name cannot be an attribute
(`forward`, `..`), or if the path is too deep, the tensor goes to the last module on the path that can exist.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from minorm.nn import Module
from minorm.nn.attributes import MODULE
from minorm.onnx.graph import paths
from minorm.onnx.graph.node_layers import Layer
from minorm.onnx.graph.reading import Node
from minorm.tensor.tensor import Tensor

MAX_DEPTH = 16  # the depth of the tree


@dataclass
class PlaceRequest:
    """A request to put a node that becomes a module into the tree of modules."""

    module: Module
    path: str
    operator: str
    shared: bool  # True if the module at that path may do more than this node
    tensors: Mapping[str, Tensor]  # the tensors that the node reads


def of_layer(node: Node, module: Module, ours: bool, tensors: Mapping[str, Tensor]) -> PlaceRequest:
    """Request a path for a layer: from its tensors' names, or else the node's module, or else the node's name."""
    read = {name: tensors[name] for name in (*node.inputs, *node.statistics) if name in tensors}
    prefixes = {paths.prefix(name) for name in (*node.statistics, *node.inputs[1:3]) if name}
    prefix = prefixes.pop() if len(prefixes) == 1 else ""
    path = prefix or (node.scope if ours else node.module) or _name_without_dots(node)
    return PlaceRequest(module, path, node.operator, not ours and not prefix and path == node.module, read)


def of_tensors(names: Iterable[str], nodes: Iterable[Node]) -> dict[str, str]:
    """Map the names of tensors to the paths of their modules; tensors without a module are left out."""
    found = {name: paths.prefix(name) for name in names}
    for node in nodes:
        for name in node.inputs if node.module else ():
            if found.get(name) == "":
                found[name] = node.module
    return {name: path for name, path in found.items() if path}


def place(
    root: Module, layers: Sequence[PlaceRequest], tensors: Mapping[str, Tensor], where: Mapping[str, str]
) -> None:
    """Put each layer at its path below `root`, and a plain Layer at each path that only has tensors."""
    parents = {above for path in (*where.values(), *(layer.path for layer in layers)) for above in _ancestors(path)}
    held: dict[str, dict[str, None]] = {}  # path -> the names of its tensors, in order
    for name, path in where.items():
        held.setdefault(path, {})[name] = None
    taken: dict[Any, int] = {}  # how often a path was asked for
    for layer in layers:
        more = layer.path in parents or not held.get(layer.path, {}).keys() <= layer.tensors.keys()
        _put(root, f"{layer.path}.{layer.operator}" if layer.shared and more else layer.path, layer.module, taken)
        if isinstance(layer.module, Layer):
            for name, tensor in layer.tensors.items():
                _add_use(layer.module, layer.path, name, tensor)
    known: dict[int, set[int]] = {}
    for path, names in held.items():
        found = _nearest(root, path)
        if found is not None:
            own = known.setdefault(id(found[0]), {id(tensor) for tensor in found[0].uses.values()})
            for name in names:
                if id(tensors[name]) not in own:
                    own.add(id(tensors[name]))
                    _add_use(*found, name, tensors[name])


def in_order(
    root: Module, nodes: Sequence[Node], layers: Iterable[tuple[Node, Module]], tensors: Mapping[str, Tensor]
) -> None:
    """Sort the modules below `root` by the first node that reads a tensor of the module or of its children."""
    position = {id(node): i for i, node in enumerate(nodes)}
    first = {id(module): (position[id(node)], node.operator) for node, module in layers}
    for i, node in enumerate(nodes):
        for name in (*node.inputs, *node.statistics):
            if name in tensors:
                first.setdefault(id(tensors[name]), (i, node.operator))
    _arrange(root, first)


def _arrange(module: Module, first: Mapping[int, tuple[int, str]]) -> tuple[float, str]:
    """Sort the modules below `module`, and return the first node that reads a tensor of `module` or below."""
    uses = module.uses.values() if isinstance(module, Layer) else ()
    own = [first[id(thing)] for thing in (module, *uses) if id(thing) in first]
    if own and isinstance(module, Layer):
        module._operator = min(own)[1]
    below = {name: _arrange(child, first) for name, child in module._own(MODULE)}
    for name in sorted(below, key=lambda name: below[name][0]):
        module._kinds[name] = module._kinds.pop(name)
    return min([*own, *below.values()], default=(math.inf, ""))


def layer_of(root: Module, name: str) -> Module:
    """Return the module that the dotted name of a tensor gives.

    If this module does not exist, return the last module on the path that exists.
    """
    module: Module = root
    for part in name.split(".")[:-1]:
        child = vars(module).get(part)
        if not isinstance(child, Module):
            break
        module = child
    return module


def _ancestors(path: str) -> Iterator[str]:
    names = path.split(".", MAX_DEPTH)[:MAX_DEPTH]
    yield from (".".join(names[:depth]) for depth in range(1, len(names)))


def _add_use(layer: Layer, path: str, name: str, tensor: Tensor) -> None:
    below = name.removeprefix(f"{path}.")
    while below in layer.uses:
        below += "_"
    layer.uses[below] = tensor


def _name_without_dots(node: Node) -> str:
    return (node.name or f"{node.operator}_{next(filter(None, node.outputs), '')}").replace(".", "_")


def _put(root: Module, path: str, layer: Module, taken: dict[Any, int]) -> None:
    parent, name = root, path.replace(".", "_") or type(layer).__name__
    before, _, last = path.rpartition(".")
    found = root if not before else _at(root, before)
    number = taken.get(path, 0)
    if found is not None and last and (path in taken or _is_usable_name(found, last)):
        parent, name = found, last
    place = id(parent), name  # several paths may lead to it
    number = max(number, taken.get(place, 0))
    unique = f"{name}_{number}" if number else name
    while not _is_usable_name(parent, unique):
        number += 1
        unique = f"{name}_{number}"
    taken[path] = taken[place] = number
    parent.add_module(unique, layer)


def _is_usable_name(parent: Module, name: str) -> bool:
    return bool(name) and not hasattr(parent, name)


def _at(root: Module, path: str) -> Layer | None:
    """Return the layer at a dotted path, and make it if it is missing; None if the path cannot exist."""
    found = _nearest(root, path)
    return found[0] if found is not None and found[1] == path else None


def _nearest(root: Module, path: str) -> tuple[Layer, str] | None:
    """Return (layer, path): the layer at a dotted path, or the last layer of the path that can exist."""
    module, reached = root, ""
    for name in path.split(".", MAX_DEPTH)[:MAX_DEPTH]:
        child = vars(module).get(name)
        if not isinstance(child, Layer):
            if not _is_usable_name(module, name):
                break
            child = Layer()
            module.add_module(name, child)
        module, reached = child, f"{reached}.{name}" if reached else name
    return (module, reached) if isinstance(module, Layer) else None
