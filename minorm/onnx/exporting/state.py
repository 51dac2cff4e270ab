"""Write the tensors of a loaded module into its file again: into initializers, Constants, functions and branches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from onnx import AttributeProto, numpy_helper

from minorm.onnx.exporting.bodies import Bodies
from minorm.onnx.graph import encoding
from minorm.onnx.graph.names import reads_of
from minorm.onnx.graph.node_rewriter import Values, constant_of
from minorm.onnx.loading.graph_module import GraphModule
from minorm.onnx.loading.original import is_large


class State:
    """Puts the parameters, buffers and constants of a module into a model.

    arrays      the arrays of Parameters and buffers, by their names in the file
    contents    the elements of initializers that are not written yet, by name
    reshaped    the tensors whose shape differs from that in the file
    """

    def __init__(self, module: GraphModule, model: Any, bodies: Bodies) -> None:
        assert module.original is not None
        self.module, self.original, self.graph, self.bodies = module, module.original, model.graph, bodies
        held = module.tensors_by_name()
        self.arrays = {name: _present(tensor) for name, tensor in held.items()}
        for name, (weight, shape) in self.original.expanded.items():
            self.arrays[name] = _widened(_present(held[weight]), shape)
        self.contents: dict[str, Any] = {}
        self.reshaped: list[str] = []
        self._owners: dict[str, list[tuple[str, int]]] = {}  # statistics -> the layer's value, and their index there
        for placed in module.placed:
            for index, name in enumerate(placed.statistics):
                self._owners.setdefault(name, []).append((placed.value, index))
        self._readers: dict[str, dict[int, Any]] = {}  # the nodes of the graph that read a value, by their ids
        self._inner: dict[int, dict[str, Any]] = {}  # for each graph or branch: its initializers by name

    def apart(self) -> Iterator[str]:
        """Yield the names of tensors in a function's body that have different contents in different calls."""
        homes = self.original.layout.homes
        inside = [name for name in self.arrays if self.bodies.calls_around(name)]
        together: dict[tuple[str, str], list[str]] = {homes[name][:2]: [] for name in inside}
        for name, home in homes.items() if inside else ():
            if home[:2] in together:
                together[home[:2]].append(name)
        for names in together.values():
            arrays = [self.arrays.get(name) for name in names]
            if not all(array is not None and same(array, arrays[0]) for array in arrays):
                file = numpy_helper.to_array(constant_of(self.bodies.maker(names[0])))
                yield from (name for name in names if name in self.arrays and not same(self.arrays[name], file))

    def fill(self, names: Values) -> None:
        """Write every tensor of the module into the model; `names` makes names for new tensors."""
        self._set_constants()
        self._set_state(names)

    def _set_constants(self) -> None:
        """Write the elements of the large constants into the model.

        The module holds each of these constants with the type and the shape that it has in the file.
        """
        held = {name: tensor for name, tensor in self.module.constants.items() if name not in self.arrays}
        for tensor in self.graph.initializer:
            if tensor.name in held and is_large(tensor):
                encoding.fill([(tensor, held[tensor.name].array)])
        for node in self.graph.node:
            here = node.op_type == "Constant" and node.output[0] in held and node.attribute[0].HasField("t")
            if here and is_large(node.attribute[0].t):
                encoding.fill([(node.attribute[0].t, held[node.output[0]].array)])

    def _set_state(self, names: Values) -> None:
        own = self._initializers(self.graph)
        for node in self.graph.node if self.original.starts else ():
            for read in reads_of([node]):
                self._readers.setdefault(read, {})[id(node)] = node
        for name, array in self.arrays.items():
            if name in self.original.starts:
                self._separate(name, array, names)
            elif name in own and name not in self.original.layout.homes:
                self._describe(own[name], array)
                self.contents[name] = array
            elif (node := self.bodies.maker(name)) is None:
                holder, local = self.bodies.find(name)  # an initializer of a branch
                tensor = self._initializers(holder)[local]
                self._describe(tensor, array)
                encoding.fill([(tensor, array)])
            elif node.op_type == "Constant":
                self._set_constant(node, array)
            elif not same(array, self._array(node.input[0])):  # the file had an Identity of an equal tensor
                self._drop(node)
                self._hold(name, array)

    def _initializers(self, holder: Any) -> dict[str, Any]:
        if id(holder) not in self._inner:
            self._inner[id(holder)] = {tensor.name: tensor for tensor in holder.initializer}
        return self._inner[id(holder)]

    def _drop(self, node: Any) -> None:
        """Remove a node from the graph."""
        for name in reads_of([node]) if self._readers else ():
            self._readers[name].pop(id(node), None)
        self.bodies.place(self.graph, node, (), (), stays=False)

    def _describe(self, tensor: Any, array: Any) -> None:
        if tuple(tensor.dims) != array.shape:
            self.reshaped.append(tensor.name)
        encoding.describe(tensor, array)

    def _set_constant(self, node: Any, array: Any) -> None:
        if not node.attribute[0].HasField("t"):
            del node.attribute[:]
            node.attribute.add(name="value", type=AttributeProto.TENSOR)
        self._describe(node.attribute[0].t, array)
        encoding.fill([(node.attribute[0].t, array)])

    def _hold(self, name: str, array: Any) -> None:
        tensor = self._initializers(self.graph)[name] = self.graph.initializer.add(name=name)
        encoding.describe(tensor, array)
        self.contents[name] = array

    def _array(self, name: str) -> Any:
        """Return the present array of a value, or None if neither the module nor the file holds an array."""
        if name in self.arrays:
            return self.arrays[name]
        tensor, node = self._initializers(self.graph).get(name), self.bodies.maker(name)
        if tensor is None and node is not None and node.op_type == "Identity":
            return self._array(node.input[0])
        if tensor is None and node is not None and node.op_type == "Constant":
            tensor = constant_of(node)
        return None if tensor is None else numpy_helper.to_array(tensor)

    def differs(self, name: str) -> bool:
        """Return True if a buffer no longer has its initial value from the file."""
        if name not in self.original.starts:
            return False
        value, array = self.original.starts[name]
        return not same(self.arrays[name], self.arrays.get(value, array) if value != name else array)

    def _separate(self, name: str, array: Any, names: Values) -> None:
        """If statistics have changed, and are shared or computed in the file, give them a separate initializer."""
        if not self.differs(name):
            return
        own, node = name, self.bodies.maker(name)
        readers = self._readers.get(name, {})
        if node is not None and all(other.op_type == "BatchNormalization" for other in readers.values()):
            self._drop(node)  # for example an Identity that gave it this name
        elif name in names.taken:
            own = names.fresh(name)
        names.taken.add(own)
        self._hold(own, array)
        for value, index in self._owners.get(name, []):
            self.bodies.maker(value).input[3 + index] = own


def same(x: Any, y: Any) -> bool:
    """Return whether two arrays have the same bits."""
    return y is not None and x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()


def _present(tensor: Any) -> Any:
    return np.ascontiguousarray(tensor.detach().cpu().array).reshape(tensor.shape)


def _widened(array: Any, shape: tuple[int, ...]) -> Any:
    """Repeat an array along new axes and axes of length 1, because the file has a copy for each sample."""
    lengths = (1,) * (len(shape) - array.ndim) + array.shape
    return np.broadcast_to(array, [m if n == 1 else n for n, m in zip(lengths, shape, strict=True)])
