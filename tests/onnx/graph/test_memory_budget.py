"""The memory that a run may hold: small files that ask for much are refused before they get it, large batches are
not."""

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
from minorm.onnx.graph import memory_budget  # noqa: E402

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
    assert peak(mo.load, graph_of(nodes, {"x": (np.float32, [1])}, ["y"], held)) < MB


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
    np.testing.assert_allclose(y.array, 1 + 8 * np.e, rtol=1e-6)


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
    assert y.array.nbytes > 3 * 20_000


@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_small_limit_is_held_whatever_the_input(requires_grad: bool, graph_of: Any) -> None:
    """Twenty results of 4 MB, all wanted in the end."""
    names = [f"v{i}" for i in range(20)]
    nodes = [*(h.make_node("Exp", ["x"], [name]) for name in names), h.make_node("Sum", names, ["y"])]
    proto, x = graph_of(nodes, X, ["y"]), mn.ones(MB)
    assert peak(mo.load(proto, max_bytes=48 * MB), x.requires_grad_(requires_grad)) < 50 * MB
    with mn.no_grad():
        y = mo.load(proto)(x)
    np.testing.assert_allclose(y.array[:3], 20 * np.e, rtol=1e-6)


@pytest.mark.parametrize(
    ("limit", "fed", "inference", "training"),
    [
        (64 * MB, 10 * MB, 64 * MB, 64 * MB),
        (1000, 10 * MB, 32 * MB, 32 * MB),  # as much is anybody's
        (1000, 100, 200_000, 800_000),
        (2 << 30, MB // 2, 2 << 30, 4000 * MB),
        (2 << 30, 40 * MB, 80_000 * MB, 320_000 * MB),
    ],
)
def test_what_a_run_may_hold(limit: int, fed: int, inference: int, training: int) -> None:
    x = mn.Tensor.from_array(np.broadcast_to(np.uint8(0), (fed,)))  # it takes one byte
    with memory_budget.run(limit, 0, [x], ()) as run:
        assert run.allowed == training
    with mn.no_grad(), memory_budget.run(limit, 0, [x], ()) as run:
        assert run.allowed == inference


def test_a_run_inside_a_run_has_a_ledger_of_its_own() -> None:
    with memory_budget.run(100, 0, (), ()) as outer:
        with memory_budget.run(10, 4, (), ()) as inner:
            assert memory_budget.active() is inner
            with pytest.raises(ValueError, match=r"a would take 7 bytes, more than max_bytes=10"):
                inner.expect(7, "a")
        assert memory_budget.active() is outer
    assert memory_budget.active() is None


# Loops


def loop(nodes: Sequence[Any], outputs: Sequence[str], trips: int, shape: Sequence[Any] = (None,), **held: Any) -> Any:
    entries = [[h.make_empty_tensor_value_info(name) for name in names] for names in (["i", "c", "v"], outputs)]
    node = h.make_node(
        "Loop", ["n", "", "x"], ["y", "all"][: len(outputs) - 1], body=h.make_graph(nodes, "b", *entries)
    )
    return [node], {"x": (np.float32, list(shape))}, list(node.output), {"n": np.array(trips), **held}


RELU = [h.make_node("Relu", ["v"], ["v2"])]
KEPT = [*RELU, h.make_node("Exp", ["v2"], ["kept"])]
AGAIN = [h.make_node("Not", ["c"], ["d"]), h.make_node("Not", ["d"], ["c2"])]


def test_a_loop_without_end_is_refused_before_its_first_turn(graph_of: Any) -> None:
    model = mo.load(graph_of(*loop(RELU, ["yes", "v2"], 2**62, yes=np.array(True))))
    with pytest.raises(ValueError, match=r"it would take \d+ multiplications, more than max_bytes=2147483648 allows"):
        model(mn.ones(2))


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize(("nodes", "outputs"), [(RELU, ["c2", "v2"]), (KEPT, ["c2", "v2", "kept"]), ([], ["c2", "v"])])
def test_turns_are_counted(nodes: Any, outputs: Any, requires_grad: bool, graph_of: Any) -> None:
    model = mo.load(graph_of(*loop([*nodes, *AGAIN], outputs, 2**62)), max_bytes=8 * MB)
    with pytest.raises(ValueError, match=r"turn \d\d+: .*the work in loops would take \d+ multiplications"):
        model(mn.ones(2).requires_grad_(requires_grad))


def test_what_turns_keep_is_held(graph_of: Any) -> None:
    large = [h.make_node("Expand", ["v2", "size"], ["kept"])]
    model = mo.load(
        graph_of(*loop([*RELU, *large], ["c", "v2", "kept"], 100, size=np.array([100_000]))), max_bytes=8 * MB
    )
    assert peak(model, mn.ones(1)) < 9 * MB
    twice = [h.make_node("Concat", ["v", "v"], ["v2"], axis=0)]
    model = mo.load(graph_of(*loop(twice, ["c", "v2"], 60)), max_bytes=8 * MB)
    assert peak(model, mn.ones(4)) < 9 * MB


def test_elements_and_multiplications_of_all_turns_count_together(graph_of: Any) -> None:
    shape, w = (300, 300), np.zeros((300, 300), np.float32)
    product = [h.make_node("MatMul", ["v", "w"], ["v2"])]
    few, many = (mo.load(graph_of(*loop(product, ["c", "v2"], n, shape, w=w)), max_bytes=8 * MB) for n in (3, 1000))
    x = mn.ones(*shape)
    assert few(x).shape == shape
    with pytest.raises(ValueError, match="the work in loops would take"):
        many(x)
    gather = [h.make_node("Gather", ["big", "i"], ["g"]), h.make_node("Add", ["v", "g"], ["v2"])]
    model = mo.load(
        graph_of(*loop(gather, ["c", "v2"], 10_000, big=np.zeros((200_000, 1), np.float32))), max_bytes=MB * 8
    )
    with pytest.raises(ValueError, match="the work in loops would take"):
        model(mn.ones(1))


def test_a_sequence_that_grows_costs_as_much_as_it_is_long(graph_of: Any) -> None:
    nodes, inputs, _, held = loop([h.make_node("SequenceInsert", ["v", "one"], ["v2"])], ["c", "v2"], 10**6)
    nodes[0].input[2] = "none"
    nodes = [h.make_node("SequenceEmpty", [], ["none"]), *nodes, h.make_node("SequenceLength", ["y"], ["length"])]
    model = mo.load(graph_of(nodes, inputs, ["length"], {**held, "one": np.float32(1)}), max_bytes=256 * MB)
    with pytest.raises(ValueError, match=r"turn [1-9]\d\d\d: .*the work in loops would take"):
        model(mn.ones(1))


def test_what_turns_made_is_looked_at_once(graph_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not again in every turn that follows, by way of a sequence."""
    seen: list[int] = []
    hold = memory_budget.MemoryBudget._hold
    monkeypatch.setattr(memory_budget.MemoryBudget, "_hold", lambda *args: (seen.append(1), hold(*args))[1])
    nodes = [
        h.make_node("SplitToSequence", ["v"], ["parts"], axis=0),
        h.make_node("SequenceAt", ["parts", "zero"], ["a"]),
        h.make_node("SequenceInsert", ["parts", "a"], ["more"]),
        h.make_node("ConcatFromSequence", ["more"], ["b"], axis=0),
        h.make_node("Slice", ["b", "one", "end"], ["v2"]),
    ]
    held = {"zero": np.array(0), "one": np.array([1]), "end": np.array([4])}
    counts = []
    for n in (20, 40):
        model = mo.load(graph_of(*loop(nodes, ["c", "v2"], n, **held)))
        seen.clear()
        model(mn.ones(3).requires_grad_())
        counts.append(len(seen))
    assert counts[1] < 2.1 * counts[0]
