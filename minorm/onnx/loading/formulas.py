"""Find (x - mean) / sqrt(var + eps) and x / sqrt(mean(x^2) + eps) in nodes, in all the ways to write them.

    d / sqrt(mean(d^2) + eps)        d = x - mean(x), perhaps times a weight, or d = x
    x * k + (bias - mean(x) * k)     k = weight / sqrt(mean(d^2) + eps), as TensorFlow writes it

A square is a Pow or a Mul. The formula divides by the root or multiplies by its inverse. Operands may have any order,
and a file may compute a mean twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product as pairs

from minorm.onnx.graph.reading import Node
from minorm.onnx.loading.wiring import REPEATED, Held, Wiring

MEANS = 8  # the most readers of a norm's mean; a value with more readers is not taken for a mean


@dataclass(frozen=True)
class Norm:
    """Describes a normalization that a file writes as several nodes.

    nodes     in the order of the computation; the last node computes `result`
    axes      the normalized axes; () for a GroupNorm
    groups    for a GroupNorm: the shape to which the first Reshape splits x, (N, num_groups, ...); 0 stands for the
              length of x's axis
    shape     for a GroupNorm: the shape of the second Reshape; None if this is the shape of x
    per_group True if weight and bias have one number for each group
    """

    kind: str  # GroupNorm, LayerNorm or RMSNorm
    nodes: tuple[Node, ...]
    x: str
    result: str
    eps: float
    axes: tuple[int, ...] = ()
    groups: tuple[int, ...] = ()
    shape: tuple[int, ...] | None = None
    weight: Held | None = None
    bias: Held | None = None
    per_group: bool = False


def standardized(node: Node, w: Wiring) -> Norm | None:
    """Match d / sqrt(mean(d^2) + eps); d is x or x - mean(x)."""
    for quotient, divisor, power in _quotients(node):
        found = _root(divisor, power, w)
        if found is None:
            continue
        inside, root = found
        for d, weight, scaling in _numerators(quotient, w):
            scaled = _mean_square(inside, d, w)
            if scaled is None:
                continue
            axes, eps, square = scaled
            x = d
            centring: tuple[Node, ...] = ()
            while (step := _centred(x, axes, w)) is not None and len(centring) < 4:
                x, nodes = step
                centring = (*nodes, *centring)
            kind = "LayerNorm" if centring else "RMSNorm"
            nodes = _distinct(*centring, *square, *scaling, *root, node)
            return Norm(kind, nodes, x, node.outputs[0], eps, axes, weight=weight)
    return None


def _numerators(name: str, w: Wiring) -> Iterator[tuple[str, Held | None, tuple[Node, ...]]]:
    """Yield (d, weight, nodes): the numerator is d, or weight * d."""
    yield name, None, ()
    product = w.maker(name, "Mul")
    if product is None:
        return
    for d, weight in (product.inputs, product.inputs[::-1]):
        if (held := w.held(weight)) is not None:
            yield d, held, (product,)


def _quotients(node: Node) -> Iterator[tuple[str, str, float]]:
    """Yield (d, r, power): the node is d / r (power 1), or d * r (power -1: r must be an inverse)."""
    if len(node.inputs) == 2:
        a, b = node.inputs
        if node.operator == "Div":
            yield a, b, 1.0
        elif node.operator == "Mul":
            yield a, b, -1.0
            yield b, a, -1.0


def _root(name: str, power: float, w: Wiring) -> tuple[str, tuple[Node, ...]] | None:
    """Return (v, nodes) if the value is v^(power / 2)."""
    node = w.maker(name, "Sqrt", "Reciprocal", "Div", "Pow")
    if node is None:
        return None
    if node.operator == "Pow":
        return (node.inputs[0], (node,)) if w.number(node.inputs[1]) == power / 2 else None
    if node.operator == "Sqrt":
        if power == 1:
            return node.inputs[0], (node,)
        inner = w.maker(node.inputs[0], "Reciprocal")
        return (inner.inputs[0], (inner, node)) if inner is not None else None
    if power == 1 or (node.operator == "Div" and w.number(node.inputs[0]) != 1):
        return None
    inner = w.maker(node.inputs[-1], "Sqrt")
    return (inner.inputs[0], (inner, node)) if inner is not None else None


def _mean_square(name: str, d: str, w: Wiring) -> tuple[tuple[int, ...], float, tuple[Node, ...]] | None:
    """Return (axes, eps, nodes) if the value is mean(d^2) + eps."""
    node = w.maker(name, "Add")
    if node is None:
        return None
    for mean, small in (node.inputs, node.inputs[::-1]):
        eps, reduction = w.number(small), w.maker(mean, "ReduceMean")
        if eps is None or not 0 <= eps < 1 or reduction is None:
            continue
        axes = _reduced(reduction, w)
        square = w.maker(reduction.inputs[0], "Pow", "Mul")
        if axes is None or square is None:
            continue
        base, other = square.inputs
        again = w.same(base, other) if square.operator == "Mul" else _is_two(other, w)
        if again and w.same(base, d):
            return axes, eps, _distinct(*_copies(base, d, w), square, reduction, node)
    return None


def _is_two(name: str, w: Wiring) -> bool:
    exponent = w.array(name)
    return exponent is not None and exponent.size == 1 and bool((exponent == 2).all())


def _centred(name: str, axes: tuple[int, ...], w: Wiring) -> tuple[str, tuple[Node, ...]] | None:
    """Return (x, nodes) if the value is x - mean(x) over the axes."""
    node = w.maker(name, "Sub")
    if node is None:
        return None
    x, mean = node.inputs
    reduction = w.maker(mean, "ReduceMean")
    if reduction is None or _reduced(reduction, w) != axes or not w.same(reduction.inputs[0], x):
        return None
    return x, _distinct(*_copies(reduction.inputs[0], x, w), reduction, node)


def _copies(a: str, b: str, w: Wiring) -> tuple[Node, ...]:
    """Return the nodes that compute `a`, if the file computes the same value twice, as `a` and as `b`."""
    first, second = w.maker(a, *REPEATED), w.maker(b, *REPEATED)
    if a == b or first is None or second is None:
        return ()
    return (*(n for pair in zip(first.inputs, second.inputs, strict=True) for n in _copies(*pair, w)), first)


def _distinct(*nodes: Node) -> tuple[Node, ...]:
    return tuple({id(node): node for node in nodes}.values())


def _reduced(node: Node, w: Wiring) -> tuple[int, ...] | None:
    """Return the sorted axes of a mean with keepdims."""
    axes = w.axes(node)
    if not axes or not node["keepdims"] or len(set(axes)) != len(axes) or min(axes) < 0 <= max(axes):
        return None
    return tuple(sorted(axes))


def by_moments(node: Node, w: Wiring) -> Norm | None:
    """Match x * k + (bias - mean(x) * k); the node is the sum."""
    for scaled, shift in (node.inputs, node.inputs[::-1]):
        first, rest = w.maker(scaled, "Mul"), w.maker(shift, "Sub")
        second = w.maker(rest.inputs[1], "Mul") if rest is not None else None
        if first is None or rest is None or second is None:
            continue
        for (x, k), (mean, same) in pairs(_orders(first), _orders(second)):
            reduction = w.maker(mean, "ReduceMean")
            if k == same and reduction is not None and reduction.inputs[0] == x:
                found = _factor(k, x, reduction, w)
                bias = w.held(rest.inputs[0])
                if found is not None and bias is not None and found.weight is not None:
                    nodes = _distinct(*found.nodes, first, second, rest, node)
                    return replace(found, nodes=nodes, result=node.outputs[0], bias=bias)
    return None


def _orders(node: Node) -> tuple[tuple[str, str], tuple[str, str]]:
    a, b = node.inputs
    return (a, b), (b, a)


def _factor(k: str, x: str, reduction: Node, w: Wiring) -> Norm | None:
    """Match k = weight / sqrt(mean((x - mean)^2) + eps); `reduction` computes the mean."""
    axes, mean = _reduced(reduction, w), reduction.outputs[0]
    for r, weight, scaling in _numerators(k, w):
        found = _root(r, -1.0, w)
        if found is None:
            continue
        for d in w.readers.get(mean, [])[:MEANS]:
            if d.operator != "Sub" or sorted(d.inputs) != sorted((x, mean)):
                continue
            squares = _mean_square(found[0], d.outputs[0], w)
            if squares is not None and squares[0] == axes:
                nodes = _distinct(reduction, d, *squares[2], *found[1], *scaling)
                return Norm("LayerNorm", nodes, x, k, squares[1], squares[0], weight=weight)
    return None
