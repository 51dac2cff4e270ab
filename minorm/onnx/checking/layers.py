"""A model as people think of it: layers in the order in which they run, what each gives, holds and costs.

A layer is a run of nodes that come from one module (graph/paths.py); a node whose module is not known is one by itself.
Nodes that do not depend on an input (constants, weights that are transposed first) and arithmetic with shapes are left
out; their weights count where they are used. Seen from further away, `folded`, neighbours below one module are one.
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

DEEPEST = 16  # names of a path that folding goes through
SIZES = frozenset(("Shape", "Size"))


@dataclass(frozen=True)
class LayerRow:
    """A layer. A number counts once, in the first layer that reads it.

    path               of its module, as far as the file says it
    parameters         numbers that train; `frozen` of them are frozen
    statistics         running ones; fixed: float numbers that are neither, and do not train
    shape              of its result; multiplications: profiling.py. None where nothing ran
    reads, gives       values of the graph that it computes from, and that it computes
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
        """Of its parameters: "yes", "partly", or "frozen"; "no" where its numbers are fixed, "" where it has none."""
        if not self.parameters:
            return "no" if self.fixed else ""
        return "yes" if not self.frozen else "frozen" if self.frozen == self.parameters else "partly"


Sizes = Mapping[str, tuple[str, int, bool]]  # tensor -> what it is, how many numbers it holds, whether it trains


def sizes(module: GraphModule) -> dict[str, tuple[str, int, bool]]:
    """The float tensors of a loaded graph: parameters, statistics, fixed numbers; but no single ones (an eps)."""
    found = {n: ("fixed", c.array.size, False) for n, c in module.constants.items() if dtypes.is_float(c.dtype)}
    found = {name: entry for name, entry in found.items() if entry[1] > 1}
    found |= {name: ("statistics", b.array.size, False) for name, b in module.named_buffers()}
    return found | {name: ("parameters", p.array.size, p.requires_grad) for name, p in module.named_parameters()}


def of(nodes: Sequence[Node], inputs: Iterable[str], held: Sizes, seen: Seen) -> list[LayerRow]:
    """The layers of a file.

    inputs    of the graph
    held      its tensors, as `sizes` gives them
    seen      what its nodes made in a run, and cost; empty where it did not run
    """
    live = set(inputs)
    weights = _Weights(held)
    rows: list[tuple[str, Node]] = []
    for node in nodes:
        if node.operator in SIZES or live.isdisjoint(node.inputs):
            weights.made.update((name, node) for name in node.outputs if name)
        else:
            live.update(filter(None, node.outputs))
            if not node.enters:  # the Loop itself comes at the end of its body
                rows.append((_path(node, held), node))
    layers = groupby(enumerate(rows), key=lambda entry: entry[1][0] or entry[0])
    return [_row([node for _, (_, node) in group], path, weights, live, seen) for path, group in layers]


def folded(rows: Sequence[LayerRow], depth: int) -> list[LayerRow]:
    """Neighbours whose paths begin with the same `depth` names as one layer."""

    def key(entry: tuple[int, LayerRow]) -> str | int:
        return ".".join(entry[1].path.split(".", depth)[:depth]) or entry[0]

    return [_merged([row for _, row in group], path) for path, group in groupby(enumerate(rows), key=key)]


def overview(rows: Sequence[LayerRow], most: int) -> list[LayerRow]:
    """The finest view of at most so many layers that folding to one depth gives; else the coarsest there is."""
    best = rows
    for depth in range(min(DEEPEST, max((row.path.count(".") for row in rows), default=0)), 0, -1):
        if len(best) <= most:
            break
        best = folded(rows, depth)
    return list(best)


def edges(rows: Sequence[LayerRow]) -> list[tuple[int, int]]:
    """Which layers read what which others give, as places in `rows`."""
    maker = {name: place for place, row in enumerate(rows) for name in row.gives}
    return sorted(
        {(maker[n], place) for place, row in enumerate(rows) for n in row.reads if maker.get(n, place) != place}
    )


class _Weights:
    """Finds the tensors that a node reads, also through nodes that compute from constants alone; each once."""

    def __init__(self, held: Sizes) -> None:
        self.held = held
        self.made: dict[str, Node] = {}  # value -> the node that computes it, where no input has a part in it
        self.counted: set[str] = set()

    def take(self, names: Iterable[str]) -> Counter[str]:
        """How many numbers of each kind."""
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
    """The inputs through which gradient can flow: no bounds, no scales of a Resize."""
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
