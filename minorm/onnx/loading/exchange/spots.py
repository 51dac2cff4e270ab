"""Find the nodes that a name stands for: the nodes of a module, one node, a value's node, or a tensor's readers.

The inputs of a module are the values that its nodes read from the rest of the network; tensors of the file and computed
lengths are not inputs. The output of a module is the value that the rest of the network reads from the module's nodes.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from minorm.onnx.graph import paths
from minorm.onnx.graph.errors import LoadError
from minorm.onnx.graph.reading import Node
from minorm.support.safe_names import printable

PRODUCTS = {"MatMul", "Gemm", "Conv", "ConvTranspose"}  # products to which a separate node may add a bias
LENGTHS = {"Shape", "Size"}
SHOWN = 3  # the number of names that an error proposes
LONGEST = 100  # the most characters of a name that we compare with others


@dataclass(frozen=True)
class Spot:
    """Describes a node: its name in the file, its module, its operator, its inputs and its outputs.

    branch    True if the node runs only under a condition
    """

    name: str
    module: str
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    branch: bool = False


class Part(NamedTuple):
    """Describes nodes that belong together: their indices in the list, the values that they read, and their output.

    path      the path of the module of these nodes; "" if they have no module
    """

    places: list[int]
    inputs: list[str]
    output: str
    path: str


def in_front(
    name: str, nodes: Sequence[Node], initializers: Collection[str], inputs: Collection[str], ends: Collection[str]
) -> list[str]:
    """Return the values that the nodes called `name` read from the rest of the network: `load(path, before=name)`."""
    spots = [
        Spot(node.name, node.module, node.operator, node.inputs, node.outputs, bool(node.conditions)) for node in nodes
    ]
    homes = {tensor: paths.prefix(tensor) for tensor in initializers}
    for spot in spots:
        homes |= {tensor: spot.module for tensor in spot.inputs if homes.get(tensor) == ""}
    try:
        _, found, _ = Spots(spots, homes, (), ends).nodes_and_inputs(name, "load", "load(path, before={})")
    except ValueError as error:
        raise LoadError(str(error)) from None
    if given := [value for value in found if value in inputs]:
        raise LoadError(
            f"load: before={name!r} reads the input {given[0]!r} of the graph; expected a node that has other nodes "
            "before it"
        )
    return found


class Spots:
    """Lists the nodes of a graph in order, and finds them by name.

    tensors    the file's tensors: name -> the path of its module, or ""
    fixed      all values that do not depend on an input
    ends       the outputs of the graph
    """

    def __init__(
        self, spots: Sequence[Spot], tensors: Mapping[str, str], fixed: Iterable[str], ends: Collection[str]
    ) -> None:
        self.spots, self.tensors, self.ends = list(spots), tensors, set(ends)
        self.fixed, self.lengths = {"", *tensors, *fixed}, set[str]()
        self.readers: dict[str, list[int]] = {}
        self.makers: dict[str, int] = {}
        for place, spot in enumerate(self.spots):
            if self.fixed.issuperset(spot.inputs):
                self.fixed.update(spot.outputs)
            elif spot.operator in LENGTHS or all(name in self.fixed or name in self.lengths for name in spot.inputs):
                self.lengths.update(spot.outputs)
            for name in dict.fromkeys(spot.inputs):
                self.readers.setdefault(name, []).append(place)
            self.makers |= {name: place for name in spot.outputs if name}

    def find(self, name: str, operation: str, line: str) -> Part:
        """Return the nodes that a name means; the rest of the graph must read exactly one value of these nodes.

        operation, line    for error messages: the name of the caller, and a pattern for a correct call,
                           `model.replace({}, layer)`
        """
        places, inputs, path = self.nodes_and_inputs(name, operation, line)
        outputs = self._outputs(places)
        if len(outputs) != 1:
            what = f"gives {len(outputs)} values" if outputs else "gives nothing"
            listed = f" ({', '.join(map(repr, outputs[:SHOWN]))})" if outputs else ""
            fix = f"; name one of them: {line.format(repr(outputs[-1]))}" if outputs else ""
            raise ValueError(
                f"{operation}: {name!r} {what} that the rest of the graph reads{listed}; expected one value{fix}"
            )
        return Part(places, inputs, outputs[0], path)

    def nodes_and_inputs(self, name: str, operation: str, line: str) -> tuple[list[int], list[str], str]:
        """Return the indices of the nodes that a name means, the values that they read, and their module's path."""
        if not isinstance(name, str):
            raise TypeError(f"{operation}: the name is {name!r}; expected a str: {line.format(repr('fc'))}")
        places, path = self._nodes_and_module(name)
        if not places:
            raise ValueError(f"{operation}: {self._unknown(name, line)}")
        inputs = self._inputs(places)
        if not inputs:
            raise ValueError(
                f"{operation}: {name!r} reads only tensors of the file; expected a layer that reads values computed "
                "from the graph's inputs"
            )
        return places, inputs, path

    # What a name means

    def _nodes_and_module(self, name: str) -> tuple[list[int], str]:
        """Return the indices of the nodes that a name means, and the path of their module."""
        path = name.replace("/", ".").strip(".")
        if path and (places := self._of_module(path)):
            return places, path
        named = [place for place, spot in enumerate(self.spots) if spot.name == name]
        if len(named) == 1 or name in self.makers:
            place = named[0] if len(named) == 1 else self.makers[name]
            return self.with_bias(place), self.module_of(place)
        if name in self.tensors:
            if places := self._of_module(self.tensors[name]):
                return places, self.tensors[name]
            read = self.readers.get(name, [])
            return (self.with_bias(read[0]), "") if len(read) == 1 else (read, "")
        return [], ""

    def _of_module(self, path: str) -> list[int]:
        """Return the nodes of a module and of the modules below.

        If no node names the module, return the nodes that read its tensors.
        """
        if not path:
            return []
        inside = {place for place, spot in enumerate(self.spots) if _is_below(spot.module, path)}
        held = [name for name, home in self.tensors.items() if _is_below(home, path)]
        readers = {place for name in held for place in self.readers.get(name, ())}
        found = inside | {place for place in readers if not inside or not self.spots[place].module}
        live = {place for place in found if not self.fixed.issuperset(self.spots[place].outputs)}
        return sorted(live or found)

    def module_of(self, place: int) -> str:
        """Return the path of the module that holds all tensors of a node, or else the path that the node names."""
        spot = self.spots[place]
        homes = {self.tensors[name] for name in spot.inputs if self.tensors.get(name)}
        return homes.pop() if len(homes) == 1 else spot.module

    def with_bias(self, place: int) -> list[int]:
        """Return a node, and the other node of its layer if the layer is a MatMul and the Add of a bias."""
        spot = self.spots[place]
        if spot.operator == "Add":
            made = [self.makers[name] for name in spot.inputs if name in self.makers and name not in self.fixed]
            return [made[0], place] if len(made) == 1 and self._bias_of(made[0]) == place else [place]
        bias = self._bias_of(place)
        return [place] if bias is None else [place, bias]

    def _bias_of(self, place: int) -> int | None:
        """Return the Add that adds a bias to a product with weights; None if another node reads the product."""
        spot = self.spots[place]
        weighted = spot.operator in PRODUCTS and any(name in self.fixed for name in spot.inputs[:2])
        read = self.readers.get(spot.outputs[0], []) if weighted and spot.outputs[0] not in self.ends else []
        if len(read) != 1 or self.spots[read[0]].operator != "Add":
            return None
        others = [name for name in self.spots[read[0]].inputs if name != spot.outputs[0]]
        return read[0] if len(others) == 1 and others[0] in self.fixed else None

    # What goes in and comes out

    def _inputs(self, places: Sequence[int]) -> list[str]:
        made = {name for place in places for name in self.spots[place].outputs}
        read = dict.fromkeys(name for place in places for name in self.spots[place].inputs)
        return [name for name in read if name not in made and name not in self.fixed and name not in self.lengths]

    def _outputs(self, places: Sequence[int]) -> list[str]:
        inside = set(places)
        found = []
        for place in places:
            for name in self.spots[place].outputs:
                outside = name in self.ends or any(reader not in inside for reader in self.readers.get(name, ()))
                if name and outside and name not in self.lengths:
                    found.append(name)
        return found

    # Errors

    def _unknown(self, name: str, line: str) -> str:
        modules = self.modules()
        near = _similar_names(name, [*modules, *(spot.name for spot in self.spots), *self.makers, *self.tensors])
        start = f"no node, value, tensor or module of the graph is called {name[:LONGEST]!r}"
        if near:
            return f"{start}; did you mean {' or '.join(map(repr, near))}? {line.format(repr(near[0]))}"
        last = modules[-SHOWN:] or [spot.name or spot.outputs[0] for spot in self.spots[-SHOWN:]]
        if not last:
            return start
        return f"{start}; the last ones are {', '.join(map(repr, last))}: {line.format(repr(last[-1]))}"

    def modules(self) -> list[str]:
        """Return the paths of modules, in the order in which the network reaches them."""
        found: dict[str, None] = {}
        for spot in self.spots:
            homes = [self.tensors[name] for name in spot.inputs if self.tensors.get(name)]
            found |= dict.fromkeys(homes or ([spot.module] if spot.module else []))
        return list(found)


def _is_below(path: str, above: str) -> bool:
    path = paths.uncalled(path) if path != above else path
    return path == above or path.startswith(f"{above}.")


def _similar_names(name: str, known: Iterable[str]) -> list[str]:
    """Return known names that are similar to `name`.

    Only the end of a long list of names is compared, because the heads of networks are at the end.
    """
    names = [other for other in dict.fromkeys(known) if 0 < len(other) < LONGEST and other.isprintable()]
    path = name.replace("/", ".").strip(".")
    ending = [other for other in names if path and other.rpartition(".")[2] == path.rpartition(".")[2]]
    close = difflib.get_close_matches(name[:LONGEST], names[-1000:], n=SHOWN)
    return [printable(other) for other in dict.fromkeys([*close, *ending])][:SHOWN]
