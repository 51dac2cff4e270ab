"""Write nodes that compute, when the graph runs, a length that depends on free axes.

If a tensor's shape has this length, the nodes read the length from the shape. Otherwise, the nodes compute the length
by a formula, from the free axes or from the lengths of tensors. The result of a formula is, for example, a multiple, a
half, a product of two lengths, or a product minus 1 (for an unbiased variance). A formula must give the right length in
every run of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations_with_replacement, product
from typing import TYPE_CHECKING

import numpy as np

from minorm.devices import dtypes
from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.sizes import Length, Size

if TYPE_CHECKING:
    from minorm.onnx.graph.model_graph import Graph, Value

PERIODS = (2, 3, 4)  # the strides with which the padding may repeat
PAIRS = 64  # we try products of this many lengths of the inputs, and of as many lengths of the last tensors


def measure(g: Graph, size: Size) -> Value:
    """Write an int64 tensor of shape (1,) that holds `size`."""
    for value, axis in _axes(g):
        if value.known_shape[axis] == size:
            shape = g.add("Shape", value, shape=(value.ndim,), dtype=dtypes.int64)
            return g.add("Gather", shape, _number(g, axis, "axis"), shape=(1,), axis=0)
    if max(size.values) < 0:  # counted from the end
        return g.add("Mul", g.length(0 - size), _number(g, -1))  # type: ignore[arg-type]
    formula = g.symbols.formula(size)
    if formula is None:
        return _derived(g, size)
    total: Value | None = None
    for factor, names in formula.terms:
        part = _number(g, factor, "factor")
        for name in names:
            part = g.add("Mul", part, g.length(_free(g, name)))
        total = part if total is None else g.add("Add", total, part)
    assert total is not None
    return g.add("Add", total, _number(g, formula.constant)) if formula.constant else total


def _number(g: Graph, n: int, name: str = "constant") -> Value:
    return g.constant([n], np.int64, name)


def _axes(g: Graph) -> Iterator[tuple[Value, int]]:
    """Yield every free axis of every tensor so far; the inputs come first."""
    produced = [value for node in g.nodes for value in node.outputs if value is not None]
    for value in g.inputs + produced:
        for axis, length in enumerate(value.shape or ()):
            if isinstance(length, Size):
                yield value, axis


def _free(g: Graph, name: str) -> Size:
    size = g.symbols.size(g.symbols.names.index(name))
    assert isinstance(size, Size)
    return size


def _derived(g: Graph, size: Size) -> Value:
    """Compute a length from tensors' lengths n and m, as a * n + b, n // d, ceil(n / d), n minus a quotient, or n * m.

    The lengths of the last tensor are tried first, because that tensor is being cut or padded.
    """
    found = [n for value, axis in _axes(g) if isinstance(n := value.known_shape[axis], Size)]
    known = list(dict.fromkeys(reversed(found)))
    for whole, way in product(known, (_line, _quotient, _rest)):
        compute = way(whole, size)
        if compute is not None:
            return compute(g, g.length(whole))
    for n, m in combinations_with_replacement([*known[:PAIRS], *known[PAIRS:][-PAIRS:]], 2):
        area = n * m
        compute = _line(area, size) if isinstance(area, Size) else None
        if compute is not None:
            return compute(g, g.add("Mul", g.length(n), g.length(m)))
    seen = " or ".join(map(str, dict.fromkeys(size.values)))
    raise RuleNotApplicable(f"needs the length {seen} at run time, but no tensor has this length", size)


Compute = Callable[["Graph", "Value"], "Value"]


def _line(whole: Size, size: Size) -> Compute | None:
    """Find a and b with size = a * n + b; if b is not 0, this needs three points, because two are always on a line."""
    pairs = sorted(set(zip(whole.values, size.values, strict=True)))
    (n, m), (last, end) = pairs[0], pairs[-1]
    a = (end - m) // (last - n) if last != n else 0
    b = m - a * n
    if not a or whole * a + b != size or (b and len(pairs) < 3):
        return None

    def compute(g: Graph, length: Value) -> Value:
        scaled = g.add("Mul", length, _number(g, a)) if a != 1 else length
        return g.add("Add", scaled, _number(g, b)) if b else scaled

    return compute


def _quotient(whole: Size, size: Size) -> Compute | None:
    """Find c and d with size = (n + c) // d, where c is k * d, or k * d + d - 1 to round up.

    This needs three points, unless `size` times d is `whole` in every run.
    """
    pairs = sorted(set(zip(whole.values, size.values, strict=True)))
    (n, m), (last, end) = pairs[0], pairs[-1]
    divisor = round((last - n) / (end - m)) if end != m else 0
    if divisor < 2 or min(size.values) < 1 or (len(set(size.values)) < 3 and size * divisor != whole):
        return None
    least = max(m * divisor - n for n, m in pairs)  # the least that fits all points
    down = -(-least // divisor) * divisor
    up = -(-(least + 1) // divisor) * divisor - 1
    more = next((c for c in (down, up) if (whole + c) // divisor == size), None)
    if more is None:
        return None

    def compute(g: Graph, length: Value) -> Value:
        return g.add("Div", g.add("Add", length, _number(g, more)) if more else length, _number(g, divisor))

    return compute


def _rest(whole: Size, size: Size) -> Compute | None:
    """Find a quotient of n that, subtracted from n, gives `size`."""
    part = whole - size
    compute = _quotient(whole, part) if isinstance(part, Size) else None
    return None if compute is None else lambda g, n: g.add("Sub", n, compute(g, n))


# Padding


def around(g: Graph, low: Length, high: Length, n: Length, m: Length) -> Sequence[Length | Value]:
    """Return the padding (before, after) that lengthens an axis from n to m; nodes compute padding that varies.

    If m is the length of another tensor, the padding is m - n or a half of m - n. If m is a multiple of the stride
    (the padding SAME), the padding depends only on n % stride.
    """
    if not isinstance(n, Size) or not (isinstance(low, Size) or isinstance(high, Size)):
        return low, high
    if isinstance(m, Size) and any(value.known_shape[axis] == m for value, axis in _axes(g)):
        total = m - n
        half = total // 2
        if {low, high} <= {0, total, half, total - half}:
            difference = g.add("Sub", g.length(m), g.length(n))
            halved = g.add("Div", difference, _number(g, 2))
            rest = g.add("Sub", difference, halved)
            found = {total - half: rest, half: halved, total: difference}
            return found.get(low, low), found.get(high, high)
    return _periodic(g, low, n), _periodic(g, high, n)


def _periodic(g: Graph, size: Length, of: Size) -> Length | Value:
    """Write nodes that look up `size` in a table; return `size` itself if no table fits.

    The index into the table is the remainder of a division of the length `of` by a fixed number.
    """
    pairs = set(zip(of.values, size.values, strict=True)) if isinstance(size, Size) else set()
    for period in PERIODS:
        table: dict[int, int] = {}
        fits = all(table.setdefault(n % period, m) == m for n, m in pairs)
        if fits and len(table) == period < len(pairs):
            n, divisor = g.length(of), _number(g, period)
            remainder = g.add("Sub", n, g.add("Mul", g.add("Div", n, divisor), divisor))
            found = g.constant([table[i] for i in range(period)], np.int64, "table")
            return g.add("Gather", found, remainder, shape=(1,), axis=0)
    return size
