"""Lengths at run time: from shapes, formulas, and what follows from other lengths, in every run or not at all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.measuring import around
from minorm.onnx.graph.model_graph import Graph, Value
from minorm.onnx.graph.sizes import Length, Size, Symbols, size_of

SYMBOLS = Symbols(("h", "w"), (64, 32), ((128, 97, 127), (64, 97, 127)))
H, W = SYMBOLS.size(0), SYMBOLS.size(1)
RUNS = [(64, 32), *((n, 32) for n in (128, 97, 127)), *((64, n) for n in (64, 97, 127))]


def along(function: Any) -> Length:
    return size_of([function(h, w) for h, w in RUNS])


def graph(*shapes: Any) -> Graph:
    g = Graph(17, SYMBOLS)
    g.inputs = [Value((H, W), np.dtype(np.float32), "x")]
    for shape in shapes:
        g.add("Identity", g.inputs[0], shape=shape)
    return g


def computed(g: Graph, value: Any, h: int, w: int) -> int:
    """Returns the estimate of the nodes for an input of these lengths; tensors made in passing have the length that is
    written."""
    known: dict[int, Any] = {}

    def get(v: Any) -> Any:
        return v.array if v.array is not None else known[id(v)]

    for node in g.nodes:
        if node.operator == "Identity":
            continue
        given = [None if n is None or node.operator == "Shape" else get(n) for n in node.inputs]
        match node.operator:
            case "Shape":
                lengths = node.inputs[0].known_shape  # type: ignore[union-attr]
                found: Any = np.array([LENGTHS[n](h, w) if isinstance(n, Size) else n for n in lengths])
            case "Gather":
                found = given[0][given[1]]
            case "Concat":
                found = np.concatenate(given)
            case "Add":
                found = given[0] + given[1]
            case "Sub":
                found = given[0] - given[1]
            case "Mul":
                found = given[0] * given[1]
            case _:
                found = given[0] // given[1]
        known[id(node.outputs[0])] = found
    return int(np.ravel(get(value))[0])


FUNCTIONS: dict[str, Any] = {
    "h": lambda h, w: h,
    "w": lambda h, w: w,
    "half": lambda h, w: -(-h // 2),
    "half of w": lambda h, w: w // 2,
    "half, even": lambda h, w: 2 * (h // 2),
}
LENGTHS = {along(function): function for function in FUNCTIONS.values()}
HALF, OTHER_HALF = along(FUNCTIONS["half"]), along(FUNCTIONS["half of w"])


@pytest.mark.parametrize(
    "function",
    [
        lambda h, w: h,
        lambda h, w: -(-h // 2),
        lambda h, w: 3 * h,
        lambda h, w: h * w,
        lambda h, w: h - 5,
        lambda h, w: 2 * (-(-h // 2)),
        lambda h, w: -(-h // 2) + 3,
        lambda h, w: h // 7,
        lambda h, w: -(-h // 8),
        lambda h, w: -(-h // 2) * (w // 2),
        lambda h, w: h * (w // 2),
        lambda h, w: h - h // 5,
        lambda h, w: h // 2 + 1,
        lambda h, w: (h + 1) // 2 + 3,
        lambda h, w: h // 4 - 1,
        lambda h, w: -(-h // 3),
    ],
)
def test_a_length_is_computed(function: Any) -> None:
    g = graph((HALF, OTHER_HALF))
    value = g.length(along(function))  # type: ignore[arg-type]
    for h, w in ((64, 32), (53, 71), (130, 44)):
        assert computed(g, value, h, w) == function(h, w)


@pytest.mark.parametrize(
    "function", [lambda h, w: min(h, 100), lambda h, w: h % 11, lambda h, w: h // 64, lambda h, w: int(h > 100)]
)
def test_what_fits_some_runs_alone_is_declined_with_the_length(function: Any) -> None:
    g = graph((HALF, OTHER_HALF))
    with pytest.raises(
        RuleNotApplicable, match=r"needs the length .* at run time, but no tensor has this length"
    ) as caught:
        g.length(along(function))  # type: ignore[arg-type]
    assert caught.value.length == along(function)


def amounts(function: Any) -> tuple[Length, Length]:
    total = along(function)
    return total // 2, total - total // 2


@pytest.mark.parametrize("kernel", [3, 4, 5])
def test_padding_to_whole_strides_repeats_with_the_length(kernel: int) -> None:
    def total(h: int, w: int) -> int:
        return max((-(-h // 2) - 1) * 2 + kernel - h, 0)

    g = graph()
    low, high = around(g, *amounts(total), H, H + along(total))
    for h in (64, 53, 130):
        sizes = [computed(g, n, h, 32) if isinstance(n, Value) else n for n in (low, high)]
        assert sizes == [total(h, 32) // 2, total(h, 32) - total(h, 32) // 2]


def test_padding_to_the_length_of_another_tensor_is_their_difference() -> None:
    even = along(FUNCTIONS["half, even"])
    g = graph((even,))
    low, high = around(g, 0, H - even, even, H)
    assert [computed(g, high, h, 32) for h in (64, 53, 131)] == [0, 1, 1]
    assert low == 0 or [computed(g, low, h, 32) for h in (64, 53)] == [0, 0]


def test_padding_that_does_not_follow_stays_a_number() -> None:
    g = graph()
    assert tuple(around(g, 1, 2, H, H + 3)) == (1, 2)
    assert tuple(around(g, H, 2, 5, H + 7)) == (H, 2)
    assert not g.nodes
    remainder = along(lambda h, w: h % 11)
    assert tuple(around(g, 0, remainder, H, along(lambda h, w: h + h % 11))) == (0, remainder)
