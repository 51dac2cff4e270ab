"""What a run may hold: small files that ask for much are refused before they get it, large batches are not."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import minorm as mn

onnx = pytest.importorskip("onnx")

from onnx import helper as h  # noqa: E402  after importorskip

import minorm.onnx as mo  # noqa: E402
from minorm.onnx.graph import ledger  # noqa: E402

MB = 1 << 20
X = {"x": (np.float32, [None])}


def peak(model: Any, *inputs: Any) -> int:
    """The most that a run allocated, whether it came to an end or not; NumPy tells tracemalloc of its arrays."""
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"would take \d+ bytes.* more than max_bytes=\d+ allows"):
            model(*inputs)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def chain(operator: str, names: Sequence[str], **attributes: Any) -> list[Any]:
    """Nodes that each work on what the one before computed."""
    return [h.make_node(operator, [a] * 2, [b], **attributes) for a, b in pairwise(names)]


@pytest.mark.parametrize("requires_grad", [False, True])
def test_doubling_ends_before_the_limit(requires_grad: bool, graph_of: Any) -> None:
    names = ["x", *(f"v{i}" for i in range(60))]
    proto = graph_of(chain("Concat", names, axis=0), X, [names[-1]])
    model = mo.load(proto, max_bytes=8 * MB)
    assert peak(model, mn.ones(4).requires_grad_(requires_grad)) < 9 * MB


@pytest.mark.parametrize("operator", ["Mul", "MatMul", "Pow"])
def test_an_outer_product(operator: str, graph_of: Any) -> None:
    nodes = [
        h.make_node("Expand", ["x", "n"], ["row"]),
        h.make_node("Reshape", ["row", "upright"], ["column"]),
        h.make_node("Unsqueeze", ["row", "first"], ["flat"]),
        h.make_node(operator, ["column", "flat"], ["y"]),
    ]
    constants = {"n": np.array([10_000]), "upright": np.array([-1, 1]), "first": np.array([0])}
    model = mo.load(graph_of(nodes, X, ["y"], constants), max_bytes=8 * MB)
    assert peak(model, mn.ones(1)) < 2 * MB


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_resize_asks_for_all_it_computes(mode: str, requires_grad: bool, graph_of: Any) -> None:
    node = h.make_node("Resize", ["x", "", "scales"], ["y"], mode=mode)
    inputs = {"x": (np.float32, [1, 1, None, None])}
    for factors in ([1, 1, 3000, 3000], [1, 1, 1, 4e5], [1, 1, 700, 700], [1, 1, 0.4, 1e5]):
        scales = {"scales": np.array(factors, np.float32)}
        model = mo.load(graph_of([node], inputs, ["y"], scales, opset=19), max_bytes=4 * MB)
        assert peak(model, mn.ones(1, 1, 3, 3).requires_grad_(requires_grad)) < 6 * MB, factors


def test_reducing_an_empty_axis_makes_something_of_nothing(graph_of: Any) -> None:
    nodes = [
        h.make_node("Expand", ["x", "shape"], ["nothing"]),
        h.make_node("ReduceProd", ["nothing"], ["y"], axes=[1], keepdims=0),
    ]
    model = mo.load(graph_of(nodes, {"x": (np.float32, [0])}, ["y"], {"shape": np.array([2**30, 0])}))
    assert peak(model, mn.ones(0)) < MB
    held = {"w": np.ones((2**30, 0), np.float32)}
    nodes = [h.make_node("ReduceProd", ["w"], ["p"], axes=[1]), h.make_node("Add", ["p", "x"], ["y"])]
    model = mo.load(graph_of(nodes, {"x": (np.float32, [1])}, ["y"], held))
    assert peak(model, mn.ones(1)) < MB


def test_values_that_stay_alive_count_until_they_are_dropped(graph_of: Any) -> None:
    """Eight results of 1 MB, all added up in the end, or one after the other."""
    names = [f"v{i}" for i in range(8)]
    wide = h.make_node("Expand", ["x", "n"], ["wide"])
    makes = [h.make_node("Exp", ["wide"], [name]) for name in names]
    n = {"n": np.array([MB // 4])}
    together = graph_of([wide, *makes, h.make_node("Sum", names, ["y"])], X, ["y"], n)
    with pytest.raises(ValueError, match=r"beside \d+ bytes held already, more than max_bytes"):
        mo.load(together, max_bytes=8 * MB)(mn.ones(1))
    steps = [
        node
        for name, before in zip(names, ["x", *(f"s{name}" for name in names)], strict=False)
        for node in (h.make_node("Exp", ["wide"], [name]), h.make_node("Add", [before, name], [f"s{name}"]))
    ]
    y = mo.load(graph_of([wide, *steps], X, [f"s{names[-1]}"], n), max_bytes=8 * MB)(mn.ones(1))
    np.testing.assert_allclose(y.data, 1 + 8 * np.e, rtol=1e-6)


def test_views_and_weights_take_nothing(graph_of: Any) -> None:
    names = ["x", *(f"v{i}" for i in range(50))]
    nodes = [h.make_node("Reshape", [a, "shape"], [b]) for a, b in pairwise(names)]
    model = mo.load(
        graph_of([*nodes, h.make_node("Gather", ["w", "i"], ["row"]), h.make_node("Add", ["row", names[-1]], ["y"])],
                 {"x": (np.float32, [None])}, ["y"],
                 {"shape": np.array([-1]), "w": np.ones((MB // 8, 2), np.float32), "i": np.array(3)}),
        max_bytes=3 * MB // 2,
    )  # fmt: skip
    assert model(mn.ones(2)).shape == (2,)


def test_a_large_batch_is_the_callers_wish() -> None:
    net = mn.nn.Sequential(mn.nn.Conv2d(3, 16, 3, padding=1), mn.nn.BatchNorm2d(16), mn.nn.ReLU(), mn.nn.MaxPool2d(2))
    model = mo.load(mo.export(net, mn.ones(2, 3, 8, 8)), max_bytes=20_000)
    y = model(mn.ones(64, 3, 8, 8).requires_grad_())
    y.sum().backward()
    assert y.data.nbytes > 3 * 20_000


def test_a_run_inside_a_run_has_a_ledger_of_its_own() -> None:
    with ledger.run(100, 0, (), ()) as outer:
        with ledger.run(10, 4, (), ()) as inner:
            assert ledger.active() is inner
            with pytest.raises(ValueError, match=r"a would take 7 bytes, more than max_bytes=10"):
                inner.expect(7, "a")
        assert ledger.active() is outer
    assert ledger.active() is None
