"""Convert BatchNormalization from any version to any other version; the mode of the node stays.

The mode is stored in `is_test` in versions 1 and 6 (a node without `is_test` trains), in the number of outputs in 7 and
9, and in training_mode in 14 and 15. Before 9, `spatial=0` asks for statistics of every position. For later versions,
we write a normalization between two Reshapes, which turn every position into a channel.
"""

from __future__ import annotations

from collections.abc import Sequence

from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.node_rewriter import Kind, NodeRewriter
from minorm.onnx.graph.registry import converts, sets_mode
from minorm.onnx.operators.composing import cast, centre, mean_of, reshape, shape_of


@converts("BatchNormalization")
def batch_normalization(d: NodeRewriter) -> None:
    trains = _trains(d)
    spatial = d.get("spatial", 1) if d.since < 9 else 1
    for name in ("consumed_inputs", "is_test", "training_mode"):
        d.drop(name)
    if d.goal >= 9 or (trains and not spatial):  # no runtime trains version 7 with statistics of every position
        d.drop("spatial")
        if not spatial:
            _channels(d)
    _outputs(d, trains)
    if d.goal < 15 and d.since >= 14:
        _one_type(d)
    if trains and d.goal >= 14:
        d.set("training_mode", 1)


@sets_mode("BatchNormalization")
def mode(d: NodeRewriter, trains: bool, updates: bool, statistics: Sequence[str]) -> tuple[str, ...]:
    """Switch the node to training or inference; return the names of the new running statistics.

    The result is () if the node need not compute new running statistics. In inference, the node has only one output,
    and the present running statistics replace all other outputs.
    """
    if _trains(d) and not trains:
        for place, name in enumerate(d.node.output):
            if place and name in d.values.read:
                d.after("Identity", d.input(4 - place % 2), to=name)
        del d.node.output[1:]
        d.drop("training_mode")
        if d.since < 7:
            d.set("is_test", 1)
    if not trains or (_trains(d) and not updates):
        return ()
    d.drop("is_test")
    if d.since >= 14:
        d.set("training_mode", 1)
    names = ("running_mean", "running_var", "saved_mean", "saved_var")[: 2 if d.since >= 14 else 4]
    given = [*d.node.output[1:], *[""] * 4]
    del d.node.output[1:]
    d.node.output.extend(old or d.values.fresh(f"{d.label}_{name}") for old, name in zip(given, names, strict=False))
    return d.output(1), d.output(2)


def _trains(d: NodeRewriter) -> bool:
    if d.since >= 14:
        return bool(d.get("training_mode", 0))
    if d.since >= 7:
        return sum(1 for name in d.node.output if name) > 1
    return not d.get("is_test", 0)


def _outputs(d: NodeRewriter, trains: bool) -> None:
    """Set the outputs that the node's mode has in this version; for 14 and 15, write a formula for saved statistics."""
    extra = {place: d.output(place) for place in range(1, len(d.node.output)) if d.output(place)}
    del d.node.output[1:]
    if not trains:
        read = [name for name in extra.values() if name in d.values.read]
        if read:
            raise RuleNotApplicable(f"the inference form does not compute {read[0]!r}")
        return
    names = ("mean", "var", "saved_mean", "saved_var")[: 2 if d.goal >= 14 else 4]
    for place, name in enumerate(names, start=1):
        d.node.output.append(extra.pop(place, "") or d.values.fresh(f"{d.label}_{name}"))
    if not any(name in d.values.read for name in extra.values()):
        return
    x = d.input(0)
    axes = [0, *range(2, d.rank(x))]
    mean, centred = centre(d, x, axes)
    if extra.get(3):
        d.emit("Squeeze", mean, d.integers(axes, "axes"), to=extra[3], kind=Kind(d.kind(x).elem, (None,)))
    if extra.get(4):
        squares = d.emit("Mul", centred, centred)
        squares = mean_of(d, squares, axes)
        d.emit("Squeeze", squares, d.integers(axes, "axes"), to=extra[4], kind=Kind(d.kind(x).elem, (None,)))


def _channels(d: NodeRewriter) -> None:
    """Reshape x from (N, C, D...) to (N, C * D * ...); reshape scale, bias and statistics to vectors."""
    x, y = d.input(0), d.output(0)
    before = shape_of(d, x)
    parameters = shape_of(d, d.input(1))
    d.feed(0, reshape(d, x, [0, -1], Kind(d.kind(x).elem, (None, None))))
    for place in range(1, 5):
        d.feed(place, reshape(d, d.input(place), [-1], Kind(d.kind(d.input(place)).elem, (None,))))
    d.after("Reshape", d.divert(0, Kind(d.kind(x).elem, (None, None))), before, to=y, kind=d.kind(x))
    for place in range(1, len(d.node.output)):
        name = d.output(place)
        if name in d.values.read:
            d.after("Reshape", d.divert(place, Kind(d.kind(x).elem, (None,))), parameters, to=name)


def _one_type(d: NodeRewriter) -> None:
    """Cast inputs of different types to one type, float64 or float32.

    Before 15, scale and bias must have X's type, and before 14, the statistics must have this type too.
    """
    kinds = [d.kind(d.input(place)).elem for place in range(5)]
    groups = [(0, 1, 2), (3, 4)] if d.goal == 14 else [(0, 1, 2, 3, 4)]
    if all(len({kinds[place] for place in group}) == 1 for group in groups):
        return
    elems = {d.elem(d.input(place)) for place in range(5)}
    wide = 11 if 11 in elems else 1  # DOUBLE, FLOAT
    for place in range(5):
        d.feed(place, cast(d, d.input(place), wide))
    for place, like in ((0, 0), (1, 3), (2, 4)):
        name = d.output(place)
        if name and kinds[like] != wide and (place == 0 or name in d.values.read):
            d.after("Cast", d.divert(place, Kind(wide)), to=name, elem=kinds[like])
