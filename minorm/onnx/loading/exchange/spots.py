"""Which nodes of a graph a name means: those of a module, one node, what computes a value, or what reads a tensor.

What the nodes of a module take from the rest of the network are its inputs, without tensors of the file and without
lengths; what the rest reads of them is the output.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from minorm.onnx.graph import paths
from minorm.onnx.graph.errors import LoadError
from minorm.onnx.graph.reading import Node
from minorm.support.masking import printable

PRODUCTS = {"MatMul", "Gemm", "Conv", "ConvTranspose"}  # to which a separate node may add a bias
LENGTHS = {"Shape", "Size"}
SHOWN = 3  # names that an error proposes
LONGEST = 100  # characters of a name that is compared with others


@dataclass(frozen=True)
class Spot:
    """A node: its name in the file, the module it comes from, its operator, and the values that it reads and gives.

    branch    whether it runs under a condition alone
    """

    name: str
    module: str
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    branch: bool = False


class Part(NamedTuple):
    """Nodes that belong together: their places in the list, what they take of the network, and what they give.

    path      of the module they are, or ""
    """

    places: list[int]
    inputs: list[str]
    output: str
    path: str


def in_front(
    name: str, nodes: Sequence[Node], initializers: Collection[str], inputs: Collection[str], ends: Collection[str]
) -> list[str]:
    """The values in front of the nodes that a name means: `load(path, before=name)`."""
    spots = [
        Spot(node.name, node.module, node.operator, node.inputs, node.outputs, bool(node.conditions)) for node in nodes
    ]
    homes = {tensor: paths.prefix(tensor) for tensor in initializers}
    for spot in spots:
        homes |= {tensor: spot.module for tensor in spot.inputs if homes.get(tensor) == ""}
    try:
        _, found, _ = Spots(spots, homes, (), ends).begin(name, "load", "load(path, before={})")
    except ValueError as error:
        raise LoadError(str(error)) from None
    if given := [value for value in found if value in inputs]:
        raise LoadError(f"load: before={name!r} reads the input {given[0]!r} of the graph; nothing stands before it")
    return found


class Spots:
    """The nodes of a graph in order, and the names that lead to them.

    tensors    what the file holds, by name, and the path of its module, or ""
    fixed      all values that are known without an input
    ends       what the graph returns
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
        """The nodes that a name means, which give one value to the rest of the graph.

        operation, line    for errors: who asks, and how a line that would do is written, `model.replace({}, layer)`
        """
        places, inputs, path = self.begin(name, operation, line)
        outputs = self._outputs(places)
        if len(outputs) != 1:
            what = f"gives {len(outputs)} values" if outputs else "gives nothing"
            listed = f" ({', '.join(map(repr, outputs[:SHOWN]))})" if outputs else ""
            fix = f"; name one of them: {line.format(repr(outputs[-1]))}" if outputs else ""
            raise ValueError(
                f"{operation}: {name!r} {what} that the rest of the graph reads{listed}; expected one{fix}"
            )
        return Part(places, inputs, outputs[0], path)

    def begin(self, name: str, operation: str, line: str) -> tuple[list[int], list[str], str]:
        """The places of the nodes that a name means, what they read of the network, and the path of their module."""
        if not isinstance(name, str):
            raise TypeError(f"{operation}: the name is {name!r}; expected a str: {line.format(repr('fc'))}")
        places, path = self._meant(name)
        if not places:
            raise ValueError(f"{operation}: {self._unknown(name, line)}")
        inputs = self._inputs(places)
        if not inputs:
            raise ValueError(
                f"{operation}: {name!r} reads tensors of the file alone; expected a layer that values of the network "
                "go through"
            )
        return places, inputs, path

    # What a name means

    def _meant(self, name: str) -> tuple[list[int], str]:
        """Places of nodes, and the path of their module."""
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
        """The nodes that come from a module or one below it; where no node says so, those that read its tensors."""
        if not path:
            return []
        inside = {place for place, spot in enumerate(self.spots) if _is_below(spot.module, path)}
        held = [name for name, home in self.tensors.items() if _is_below(home, path)]
        readers = {place for name in held for place in self.readers.get(name, ())}
        found = inside | {place for place in readers if not inside or not self.spots[place].module}
        live = {place for place in found if not self.fixed.issuperset(self.spots[place].outputs)}
        return sorted(live or found)

    def module_of(self, place: int) -> str:
        """The path of the one module that the tensors of a node are of, or that the node comes from."""
        spot = self.spots[place]
        homes = {self.tensors[name] for name in spot.inputs if self.tensors.get(name)}
        return homes.pop() if len(homes) == 1 else spot.module

    def with_bias(self, place: int) -> list[int]:
        """A node, and the product or the bias that belongs to it: MatMul and Add are one layer."""
        spot = self.spots[place]
        if spot.operator == "Add":
            made = [self.makers[name] for name in spot.inputs if name in self.makers and name not in self.fixed]
            return [made[0], place] if len(made) == 1 and self._bias_of(made[0]) == place else [place]
        bias = self._bias_of(place)
        return [place] if bias is None else [place, bias]

    def _bias_of(self, place: int) -> int | None:
        """The Add that puts a bias to a product with weights, and that alone reads it."""
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
        near = _near(name, [*modules, *(spot.name for spot in self.spots), *self.makers, *self.tensors])
        start = f"no node, value, tensor or module of the graph is called {name[:LONGEST]!r}"
        if near:
            return f"{start}; did you mean {' or '.join(map(repr, near))}? {line.format(repr(near[0]))}"
        last = modules[-SHOWN:] or [spot.name or spot.outputs[0] for spot in self.spots[-SHOWN:]]
        if not last:
            return start
        return f"{start}; the last ones are {', '.join(map(repr, last))}: {line.format(repr(last[-1]))}"

    def modules(self) -> list[str]:
        """The paths of modules, in the order in which the network comes to them."""
        found: dict[str, None] = {}
        for spot in self.spots:
            homes = [self.tensors[name] for name in spot.inputs if self.tensors.get(name)]
            found |= dict.fromkeys(homes or ([spot.module] if spot.module else []))
        return list(found)


def _is_below(path: str, above: str) -> bool:
    path = paths.uncalled(path) if path != above else path
    return path == above or path.startswith(f"{above}.")


def _near(name: str, known: Iterable[str]) -> list[str]:
    """Names that are nearly this one; of long lists the end, where the heads are."""
    names = [other for other in dict.fromkeys(known) if 0 < len(other) < LONGEST and other.isprintable()]
    path = name.replace("/", ".").strip(".")
    ending = [other for other in names if path and other.rpartition(".")[2] == path.rpartition(".")[2]]
    close = difflib.get_close_matches(name[:LONGEST], names[-1000:], n=SHOWN)
    return [printable(other) for other in dict.fromkeys([*close, *ending])][:SHOWN]
