"""Show a model as a list of layers, in the order in which they run, with their results, weights and costs.

A layer is a series of consecutive nodes from one module (graph/paths.py); a node without a known module is a separate
layer. Nodes that do not depend on an input (constants, a transposition of weights) and arithmetic with shapes are left
out. Their weights count for the layer that uses the result. `folded` makes a coarser view, in which neighbouring layers
inside one module are one layer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from minorm.devices import dtypes
from minorm.onnx.checking.profiling import Seen
from minorm.onnx.graph import paths, registry
from minorm.onnx.graph.reading import Node
from minorm.onnx.loading import validation
from minorm.onnx.loading.graph_module import GraphModule

DEEPEST = 16  # the most names of a path by which we fold
SIZES = frozenset(("Shape", "Size"))


@dataclass(frozen=True)
class LayerRow:
    """Describes a layer. Each tensor counts once, in the first layer that reads it.

    path               the path of the layer's module, if the file has it
    parameters         the count of numbers in parameters
    frozen             how many of these are frozen
    statistics         the count of running statistics
    fixed              the count of other floats, which do not train
    shape              the shape of the layer's result; None if the model did not run
    multiplications    the count of multiplications, as in profiling.py; None if the model did not run
    reads, gives       the values of the graph that the layer reads, and the values that it computes
    """

    path: str
    name: str
    operators: Mapping[str, int]
    parameters: int = 0
    frozen: int = 0
    statistics: int = 0
    fixed: int = 0
    shape: tuple[int, ...] | None = None
    multiplications: int | None = None
    reads: frozenset[str] = field(default=frozenset(), repr=False)
    gives: frozenset[str] = field(default=frozenset(), repr=False)

    @property
    def trains(self) -> str:
        """Say how many of the parameters train: "yes" (all), "partly" or "frozen" (no parameter).

        The result is "no" if the layer has only fixed numbers, and "" if the layer has no numbers that could train.
        """
        if not self.parameters:
            return "no" if self.fixed else ""
        return "yes" if not self.frozen else "frozen" if self.frozen == self.parameters else "partly"


Sizes = Mapping[str, tuple[str, int, bool]]  # tensor -> its role, its count of numbers, True if it trains


def sizes(module: GraphModule) -> dict[str, tuple[str, int, bool]]:
    """Return the float tensors of a loaded graph: parameters, statistics, and constants of at least two numbers."""
    found = {n: ("fixed", c.array.size, False) for n, c in module.constants.items() if dtypes.is_float(c.dtype)}
    found = {name: entry for name, entry in found.items() if entry[1] > 1}
    found |= {name: ("statistics", b.array.size, False) for name, b in module.named_buffers()}
    return found | {name: ("parameters", p.array.size, p.requires_grad) for name, p in module.named_parameters()}


def of(nodes: Sequence[Node], inputs: Iterable[str], held: Sizes, seen: Seen) -> list[LayerRow]:
    """Return the layers of a file.

    inputs    the inputs of the graph
    held      the tensors of the graph, as `sizes` gives them
    seen      the results and costs of the nodes in a run; empty if the model did not run
    """
    live = set(inputs)
    weights = _Weights(held)
    rows: list[tuple[str, Node]] = []
    for node in nodes:
        if node.operator in SIZES or live.isdisjoint(node.inputs):
            weights.made.update((name, node) for name in node.outputs if name)
        else:
            live.update(filter(None, node.outputs))
            if not node.enters:  # the end of the body stands for the Loop
                rows.append((_path(node, held), node))
    layers = groupby(enumerate(rows), key=lambda entry: entry[1][0] or entry[0])
    return [_row([node for _, (_, node) in group], path, weights, live, seen) for path, group in layers]


def folded(rows: Sequence[LayerRow], depth: int) -> list[LayerRow]:
    """Merge neighbours whose paths begin with the same `depth` names into one layer."""

    def key(entry: tuple[int, LayerRow]) -> str | int:
        return ".".join(entry[1].path.split(".", depth)[:depth]) or entry[0]

    return [_merged([row for _, row in group], path) for path, group in groupby(enumerate(rows), key=key)]


def overview(rows: Sequence[LayerRow], most: int) -> list[LayerRow]:
    """Fold just enough to get at most `most` layers; if folding cannot reach this number, return the coarsest view."""
    best = rows
    for depth in range(min(DEEPEST, max((row.path.count(".") for row in rows), default=0)), 0, -1):
        if len(best) <= most:
            break
        best = folded(rows, depth)
    return list(best)


def edges(rows: Sequence[LayerRow]) -> list[tuple[int, int]]:
    """Return pairs (i, j) of indices of `rows`: the layer rows[j] reads a result of the layer rows[i]."""
    maker = {name: place for place, row in enumerate(rows) for name in row.gives}
    return sorted(
        {(maker[n], place) for place, row in enumerate(rows) for n in row.reads if maker.get(n, place) != place}
    )


class _Weights:
    """Counts tensors that nodes read, directly or after a computation with constants; each tensor counts only once."""

    def __init__(self, held: Sizes) -> None:
        self.held = held
        self.made: dict[str, Node] = {}  # value that does not depend on an input -> the node that computes it
        self.counted: set[str] = set()

    def take(self, names: Iterable[str]) -> Counter[str]:
        """Return the count of numbers of each kind in these tensors, except for tensors that were counted before."""
        counts = Counter[str]()
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name in self.counted:
                continue
            self.counted.add(name)
            if name in self.held:
                kind, size, trains = self.held[name]
                counts[kind] += size
                counts["frozen"] += size if kind == "parameters" and not trains else 0
            elif name in self.made:
                waiting.extend(self.made[name].inputs)
        return counts


def _path(node: Node, held: Sizes) -> str:
    named = (paths.prefix(name) for name in node.inputs if name in held and held[name][0] != "fixed")
    return next(filter(None, named), node.module)


def _open(node: Node) -> list[str]:
    """Return the inputs that can get a gradient; a Clip's bounds and a Resize's scales, for example, cannot."""
    known = not node.domain and (node.operator, node.since) in registry.READERS
    fixed = validation.fixed_inputs(node) if known else ()
    return [name for place, name in enumerate(node.inputs) if place not in fixed]


def _row(nodes: Sequence[Node], path: str | int, weights: _Weights, live: set[str], seen: Seen) -> LayerRow:
    made = [name for node in nodes for name in node.outputs if name]
    own = frozenset(made)
    ran = [seen[name] for name in made if name in seen]
    counts = weights.take(name for node in nodes for name in _open(node) if name not in live)
    first = nodes[0]
    return LayerRow(
        path=path if isinstance(path, str) else "",
        name=path if isinstance(path, str) else first.name.removeprefix("/") or next(iter(made), first.operator),
        operators=Counter(f"{n.domain}.{n.operator}" if n.domain else n.operator for n in nodes),
        shape=ran[-1].shape if ran else None,
        multiplications=sum(found.multiplications for found in ran) if seen else None,
        reads=frozenset(name for node in nodes for name in node.inputs if name in live) - own,
        gives=own,
        **counts,
    )


def _merged(rows: Sequence[LayerRow], path: str | int) -> LayerRow:
    if isinstance(path, int) or len(rows) == 1:
        return rows[0] if isinstance(path, int) else replace(rows[0], path=path, name=path)
    operators = Counter[str]()
    for row in rows:
        operators.update(row.operators)
    gives = frozenset[str]().union(*(row.gives for row in rows))
    costs = [row.multiplications for row in rows if row.multiplications is not None]
    return LayerRow(
        path=path,
        name=path,
        operators=operators,
        parameters=sum(row.parameters for row in rows),
        frozen=sum(row.frozen for row in rows),
        statistics=sum(row.statistics for row in rows),
        fixed=sum(row.fixed for row in rows),
        shape=next((row.shape for row in reversed(rows) if row.shape is not None), None),
        multiplications=sum(costs) if costs else None,
        reads=frozenset[str]().union(*(row.reads for row in rows)) - gives,
        gives=gives,
    )
