"""Find GroupNorm, LayerNorm and RMSNorm that exporters wrote in other operators, in a flat list of nodes.

    LayerNorm    d = x - ReduceMean(x);  d / Sqrt(ReduceMean(d^2) + eps) * weight + bias
    RMSNorm      x / Sqrt(ReduceMean(x^2) + eps) * weight
    GroupNorm    Reshape to (N, groups, ...), InstanceNormalization without weights or the formula of LayerNorm,
                 Reshape back, * weight + bias, one number for each channel

The formulas are in formulas.py. We only take nodes that certainly form a norm: eps is a fixed number, the axes are the
last axes, the shapes of the weights fit these axes, and no other node reads the values in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from minorm.onnx.graph.reading import Node
from minorm.onnx.loading.formulas import Norm, by_moments, standardized
from minorm.onnx.loading.wiring import Wiring

BEHIND = -1  # in a target shape: the remaining length


def find(nodes: Iterable[Node], wiring: Wiring) -> Iterator[Norm]:
    """Yield the norms among these nodes, in order; no node is part of two norms."""
    taken = set[int]()
    for node in nodes:
        if node.operator not in _STARTS or node.domain or "broadcast" in node.attributes:
            continue
        for norm in _norms(node, wiring):
            if not any(id(part) in taken for part in norm.nodes) and wiring.is_private(norm.nodes, norm.result):
                taken.update(id(part) for part in norm.nodes)
                yield norm
                break


def _norms(node: Node, wiring: Wiring) -> Iterator[Norm]:
    """Yield the norms that include the standardization ending with this node; the norm with most nodes comes first."""
    core = _STARTS[node.operator](node, wiring)
    if core is None:
        return
    group = _group(core, wiring) if core.weight is None or core.per_group else None
    if group is not None:
        yield from _with_weights(group, wiring)
    elif core.axes and _are_last(core, wiring) and wiring.held(core.x) is None:
        yield from (norm for norm in _with_weights(core, wiring) if norm.weight is not None or len(norm.axes) == 1)


def _instances(node: Node, w: Wiring) -> Norm | None:
    """Match an InstanceNormalization, with unknown axes. A scale of 1 and a bias of 0 do not count as weights."""
    eps = float(node["epsilon"])
    if node.described is not None or len(node.inputs) != 3 or not eps >= 0:
        return None
    found = Norm("LayerNorm", (node,), node.inputs[0], node.outputs[0], eps)
    scale, bias = (w.array(name) for name in node.inputs[1:])
    if scale is not None and bias is not None and (scale == 1).all() and not bias.any():
        return found
    weight, shift = (w.held(name) for name in node.inputs[1:])
    if weight is None or shift is None or not {weight.name, shift.name} <= w.arrays.keys():  # an exporter's numbers
        return None
    return replace(found, weight=weight, bias=shift, per_group=True)


_STARTS = {"InstanceNormalization": _instances, "Div": standardized, "Mul": standardized, "Add": by_moments}


def _are_last(core: Norm, w: Wiring) -> bool:
    """Return whether the axes are the last axes; False if they are counted from the front and the rank is unknown."""
    count = len(core.axes)
    if core.axes[0] < 0:
        return core.axes == tuple(range(-count, 0))
    rank = w.ranks.get(core.x) or w.ranks.get(core.result)
    return rank is not None and core.axes == tuple(range(rank - count, rank))


# Groups of channels


def _group(core: Norm, w: Wiring) -> Norm | None:
    """Match a GroupNorm: its core standardizes (N, groups, ...) over all axes after the first two."""
    first, last = w.maker(core.x, "Reshape"), w.reader(core.result, "Reshape")
    if first is None or last is None or core.kind != "LayerNorm" or last.inputs[0] != core.result:
        return None
    groups, shape = _target(first, w), _target(last, w)
    if core.per_group and (
        groups is None or any(held.shape != groups[1:2] for held in (core.weight, core.bias) if held)
    ):
        return None
    if groups is None or len(groups) < 3 or groups[0] < 0 or groups[1] < 1 or 0 in groups[1:]:
        return None
    if core.axes and core.axes not in (tuple(range(2, len(groups))), tuple(range(2 - len(groups), 0))):
        return None
    if shape is None:
        like = w.maker(last.inputs[1], "Shape") if last.has(1) else None
        if like is None or like.inputs[0] != first.inputs[0] or like.get("start") or like.get("end") is not None:
            return None
    elif (
        len(shape) < 2
        or shape[0] not in (0, groups[0] or shape[0])
        or shape[0] < 0
        or shape[1] < 1
        or 0 in shape[1:]
        or shape[1] % groups[1]
    ):
        return None
    nodes = (first, *core.nodes, last)
    return replace(
        core, kind="GroupNorm", nodes=nodes, x=first.inputs[0], result=last.outputs[0], axes=(), groups=groups,
        shape=shape,
    )  # fmt: skip


def _target(node: Node, w: Wiring) -> tuple[int, ...] | None:
    """Return the target shape of a Reshape, in which 0 keeps a length; None if nodes compute the shape."""
    given = node.attributes.get("shape")
    if given is None and node.has(1):
        given = w.integers(node.inputs[1])
    if given is None or (node.get("allowzero") and 0 in given):
        return None
    return tuple(int(n) for n in given)


# Weight and bias


def _with_weights(norm: Norm, w: Wiring) -> Iterator[Norm]:
    """Yield the norm together with the Mul and the Add that follow, if these apply a weight and a bias."""
    if norm.per_group:
        yield norm
        return
    if norm.weight is not None:
        if not all(held is None or _fits(held.shape, norm, w) for held in (norm.weight, norm.bias)):
            return
        scaled: Norm | None = norm
    else:
        scaled = _behind(_with_cast(norm, w), "Mul", w)
    if (
        scaled is not None
        and norm.kind != "RMSNorm"
        and norm.bias is None
        and (shifted := _behind(scaled, "Add", w)) is not None
    ):
        yield shifted
    if scaled is not None:
        yield scaled
    if scaled is not norm:
        yield norm


def _with_cast(norm: Norm, w: Wiring) -> Norm:
    """Return the norm, together with the following Cast if this Cast leaves the type unchanged."""
    cast = w.reader(norm.result, "Cast", "CastLike")
    if cast is None or cast.inputs[0] != norm.result or not w.keeps_type(cast):
        return norm
    return replace(norm, nodes=(*norm.nodes, cast), result=cast.outputs[0])


def _behind(norm: Norm, operator: str, w: Wiring) -> Norm | None:
    """Return the norm with its only reader, if this reader is `operator` and applies a tensor of a fitting shape."""
    node = w.reader(norm.result, operator)
    if node is None or len(node.inputs) != 2:
        return None
    other = node.inputs[1] if node.inputs[0] == norm.result else node.inputs[0]
    like = w.maker(other, "CastLike")
    given = (like,) if like is not None and like.inputs[1] == norm.result else ()
    longer = replace(norm, nodes=(*norm.nodes, *given, node), result=node.outputs[0])
    array = w.array(other)
    neutral = 1.0 if operator == "Mul" else 0.0
    if norm.kind == "GroupNorm" and array is not None and array.size == 1 and w.number(other) == neutral:
        return longer  # an exporter writes a norm without weights in this way
    held = w.held(other)
    if held is None or not _fits(held.shape, norm, w):
        return None
    if operator == "Mul":
        return replace(longer, weight=held)
    same = norm.weight is not None and norm.weight.shape == held.shape
    return replace(longer, bias=held) if same else None


def _fits(shape: tuple[int, ...], norm: Norm, w: Wiring) -> bool:
    """Return whether a tensor of this shape holds one number for each normalized position, or for each channel."""
    if norm.kind != "GroupNorm":
        return len(shape) == len(norm.axes) and min(shape) > 0 and max(shape) > 1
    rank = len(norm.shape) if norm.shape is not None else w.ranks.get(norm.x)
    if shape[:1] == (1,):  # (1, C, 1, 1)
        rank, shape = len(shape) if rank is None else rank, shape[1:]
        if len(shape) != (rank or 0) - 1:
            return False
    elif rank is None and len(shape) > 1:
        rank = len(shape) + 1
    if rank is None or len(shape) != rank - 1 or shape[0] < 2 or any(n != 1 for n in shape[1:]):
        return False
    return shape[0] % norm.groups[1] == 0 and (norm.shape is None or norm.shape[1] == shape[0])
