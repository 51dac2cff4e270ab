"""Loop and Scan: what a run of the body again and again by hand would give, and its gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm.testing import gradcheck

onnx = pytest.importorskip("onnx")

from onnx import helper as h  # noqa: E402  after importorskip

import minorm.onnx as mo  # noqa: E402

F64 = np.float64
RNG = np.random.default_rng(0)
W = RNG.normal(size=(3, 3))
X = RNG.normal(size=(4, 2, 3))
LOOPS = (1, 11, 13, 16, 19, 21, 23, 24, 25)
SCANS = (9, 11, 16, 19, 21, 23, 24, 25)


def body(nodes: Sequence[Any], inputs: Sequence[str], outputs: Sequence[str], shapes: Any = None, **held: Any) -> Any:
    """A graph inside a node; `shapes`: what it declares of some of its outputs, in float64."""
    known = shapes or {}
    entries = [
        h.make_tensor_value_info(name, onnx.TensorProto.DOUBLE, known[name])
        if name in known
        else h.make_empty_tensor_value_info(name)
        for name in outputs
    ]
    tensors = [onnx.numpy_helper.from_array(np.asarray(a), name) for name, a in held.items()]
    return h.make_graph(nodes, "body", [h.make_empty_tensor_value_info(name) for name in inputs], entries, tensors)


def halving(condition: Any = None, **options: Any) -> Any:
    """v = tanh(v @ w) + bias / 2, and what is collected: v before it."""
    nodes = [
        h.make_node("MatMul", ["v", "w"], ["p"]),
        h.make_node("Tanh", ["p"], ["q"]),
        h.make_node("Mul", ["bias", "half"], ["b"]),
        h.make_node("Add", ["q", "b"], ["v2"]),
        h.make_node("Identity", ["v"], ["kept"]),
        *(condition or [h.make_node("Identity", ["c"], ["c2"])]),
    ]
    return body(nodes, ["i", "c", "v"], ["c2", "v2", "kept"], half=np.array(0.5), **options)


def halved(v: Any, n: int, bias: Any) -> tuple[Any, Any]:
    kept = []
    for _ in range(n):
        kept.append(v)
        v = np.tanh(v @ W) + bias / 2
    return v, np.stack(kept) if kept else np.zeros((0, 2, 3))


@pytest.fixture
def looped(graph_of: Any) -> Any:
    """A Loop over `x` with the weight w and the bias; n and k are its trip count and condition, if they are named."""

    def make(inside: Any, n: str = "n", k: str = "k", opset: int = 17, results: Any = ("y", "all"), **held: Any) -> Any:
        counts = {"n": (np.int64, []), "k": (bool, [])}
        inputs = {"x": (F64, [None, 3]), **{name: counts[name] for name in (n, k) if name in counts}}
        node = h.make_node("Loop", [n, k, "x"], list(results), body=inside, name="loop")
        held = {"w": W, "bias": np.arange(3.0), **held}
        return graph_of([node], inputs, list(results), held, opset=opset)

    return make


@pytest.mark.parametrize("opset", LOOPS)
def test_a_loop_of_every_version(opset: int, looped: Any) -> None:
    model = mo.load(looped(halving(shapes={"kept": ["a", 3]}), opset=max(opset, 7)))
    for n in (0, 1, 5):
        y, kept = model(mn.Tensor(X[0]), mn.tensor(n), mn.tensor(True))
        want, want_kept = halved(X[0], n, np.arange(3.0))
        np.testing.assert_allclose(y.array, want, rtol=1e-13)
        if n:
            np.testing.assert_allclose(kept.array, want_kept, rtol=1e-13)
        assert (kept.shape[0], kept.dtype) == (n, F64)
    y, _ = model(mn.Tensor(X[0]), mn.tensor(5), mn.tensor(False))
    np.testing.assert_array_equal(y.array, X[0])


def test_gradients_flow_through_all_turns_to_weights_outside_and_to_the_input(looped: Any) -> None:
    model = mo.load(looped(halving(), k=""))
    assert [name for name, _ in model.named_parameters()] == ["w", "bias"]
    gradcheck(lambda x: model(x, mn.tensor(3)), mn.Tensor(X[0]))
    model.zero_grad()
    y, kept = model(mn.Tensor(X[0]), mn.tensor(3))
    ((y * y).sum() + kept.sum()).backward()

    def loss(w: Any, bias: Any) -> float:
        v, total = X[0], 0.0
        for _ in range(3):
            total += v.sum()
            v = np.tanh(v @ w) + bias / 2
        return float((v * v).sum() + total)

    for name, p in model.named_parameters():
        for place in np.ndindex(p.shape):
            pair = []
            for sign in (1, -1):
                values = {"w": W.copy(), "bias": np.arange(3.0)}
                values[name][place] += sign * 1e-6
                pair.append(loss(**values))
            assert abs((pair[0] - pair[1]) / 2e-6 - p.grad.array[place]) < 1e-7


def test_the_condition_of_a_turn_ends_the_loop(looped: Any) -> None:
    small = [
        h.make_node("ReduceL2", ["v2"], ["length"], keepdims=0),
        h.make_node("Greater", ["length", "enough"], ["c2"]),
    ]
    for n, k in (("", "k"), ("n", "k"), ("n", ""), ("", "")):
        model = mo.load(looped(halving(small), n, k, w=W / 2, bias=np.zeros(3), enough=np.array(0.1)))
        given = [mn.tensor(100)] * bool(n) + [mn.tensor(True)] * bool(k)
        _, kept = model(mn.Tensor(X[0]), *given)
        v, turns = X[0], 0
        while turns == 0 or np.linalg.norm(v) > 0.1:
            v, turns = np.tanh(v @ W / 2), turns + 1
        assert 1 < turns == kept.shape[0] < 100


def test_a_turn_knows_its_number_and_loops_nest(graph_of: Any) -> None:
    """sum over i < n of sum over j <= i of (i + 1) * x ** j."""
    inner = body(
        [h.make_node("Mul", ["p", "x"], ["p2"]), h.make_node("Add", ["s", "p"], ["s2"])],
        ["j", "d", "p", "s"], ["d", "p2", "s2"],
    )  # fmt: skip
    outer = body(
        [
            h.make_node("Add", ["i", "one"], ["i1"]),
            h.make_node("Loop", ["i1", "", "unit", "zero"], ["power", "s"], body=inner, name="inner"),
            h.make_node("Cast", ["i1"], ["factor"], to=onnx.TensorProto.DOUBLE),
            h.make_node("Mul", ["factor", "s"], ["term"]),
            h.make_node("Add", ["total", "term"], ["total2"]),
        ],
        ["i", "c", "total"], ["yes", "total2"], yes=np.array(True),
    )  # fmt: skip
    held = {"one": np.array(1), "unit": np.array(1.0), "zero": np.array(0.0)}
    node = h.make_node("Loop", ["n", "", "zero"], ["y"], body=outer, name="outer")
    model = mo.load(graph_of([node], {"x": (F64, []), "n": (np.int64, [])}, ["y"], held))
    x = mn.tensor(0.75, dtype=mn.float64, requires_grad=True)
    y = model(x, mn.tensor(4))
    terms = [(i + 1, j) for i in range(4) for j in range(i + 1)]
    assert abs(y.item() - sum(a * 0.75**j for a, j in terms)) < 1e-14
    y.backward()
    assert abs(x.grad.item() - sum(a * j * 0.75 ** (j - 1) for a, j in terms)) < 1e-13


def test_sequences_grow_in_a_loop(graph_of: Any) -> None:
    inside = body(
        [h.make_node("Mul", ["v", "v"], ["v2"]), h.make_node("SequenceInsert", ["parts", "v2"], ["parts2"])],
        ["i", "c", "v", "parts"], ["yes", "v2", "parts2"], yes=np.array(True),
    )  # fmt: skip
    nodes = [
        h.make_node("SequenceEmpty", [], ["none"], dtype=onnx.TensorProto.DOUBLE),
        h.make_node("Loop", ["n", "", "x", "none"], ["last", "parts"], body=inside),
        h.make_node("ConcatFromSequence", ["parts"], ["y"], axis=0, new_axis=1),
    ]
    model = mo.load(graph_of(nodes, {"x": (F64, [2]), "n": (np.int64, [])}, ["y"]))
    y = model(mn.tensor([1.0, 2.0], dtype=mn.float64), mn.tensor(3))
    assert y.tolist() == [[1, 4], [1, 16], [1, 256]]
    with pytest.raises(ValueError, match="the sequence is empty"):
        model(mn.tensor([1.0, 2.0], dtype=mn.float64), mn.tensor(0))


# Scan


def cell(**options: Any) -> Any:
    """h = tanh(h @ w + e); what is collected: 2 h."""
    nodes = [
        h.make_node("MatMul", ["h", "w"], ["p"]),
        h.make_node("Add", ["p", "e"], ["q"]),
        h.make_node("Tanh", ["q"], ["h2"]),
        h.make_node("Add", ["h2", "h2"], ["kept"]),
    ]
    return body(nodes, ["h", "e"], ["h2", "kept"], **options)


def scanned(x: Any, begin: Any) -> tuple[Any, Any]:
    state, kept = begin, []
    for e in x:
        state = np.tanh(state @ W + e)
        kept.append(2 * state)
    return state, np.stack(kept)


BEGIN = RNG.normal(size=(2, 3))


@pytest.mark.parametrize("opset", SCANS)
def test_a_scan_of_every_version(opset: int, graph_of: Any) -> None:
    node = h.make_node("Scan", ["begin", "x"], ["y", "all"], body=cell(), num_scan_inputs=1)
    inputs = {"x": (F64, ["t", 2, 3])}
    model = mo.load(graph_of([node], inputs, ["y", "all"], {"w": W, "begin": BEGIN}, opset=opset))
    for got, want in zip(model(mn.Tensor(X)), scanned(X, BEGIN), strict=True):
        np.testing.assert_allclose(got.array, want, rtol=1e-13)
    gradcheck(lambda x: model(x)[1], mn.Tensor(X))
    assert dict(model.named_parameters()).keys() == {"w", "begin"}


@pytest.mark.parametrize("axis", [1, -2])
@pytest.mark.parametrize("back", [0, 1])
@pytest.mark.parametrize("first", [0, 1])
def test_axes_and_directions(axis: int, back: int, first: int, graph_of: Any) -> None:
    x = np.moveaxis(X, 0, 1)
    options = {"scan_input_axes": [axis], "scan_input_directions": [back], "scan_output_directions": [first]}
    node = h.make_node(
        "Scan", ["begin", "x"], ["y", "all"], body=cell(), num_scan_inputs=1, scan_output_axes=[axis], **options
    )
    model = mo.load(graph_of([node], {"x": (F64, [2, "t", 3])}, ["y", "all"], {"w": W, "begin": BEGIN}))
    y, kept = model(mn.Tensor(np.ascontiguousarray(x)))
    want, rows = scanned(X[::-1] if back else X, BEGIN)
    np.testing.assert_allclose(y.array, want, rtol=1e-13)
    np.testing.assert_allclose(kept.array, np.moveaxis(rows[::-1] if first else rows, 0, 1), rtol=1e-13)


def test_no_turn_gives_what_it_was_given_and_nothing_in_the_declared_shape(graph_of: Any) -> None:
    node = h.make_node(
        "Scan", ["begin", "x"], ["y", "all"], num_scan_inputs=1, scan_output_axes=[-1],
        body=cell(shapes={"kept": ["n", 3]}),
    )  # fmt: skip
    model = mo.load(graph_of([node], {"x": (F64, ["t", 2, 3])}, ["y", "all"], {"w": W, "begin": BEGIN}))
    y, kept = model(mn.zeros(0, 2, 3, dtype=mn.float64))
    np.testing.assert_array_equal(y.array, BEGIN)
    assert (kept.shape, kept.dtype) == ((0, 3, 0), F64)


@pytest.mark.parametrize("lengths", [None, [4, 2]])
@pytest.mark.parametrize("back", [0, 1])
def test_scan_8_has_a_batch_of_sequences_that_may_differ_in_length(lengths: Any, back: int, graph_of: Any) -> None:
    x, begin = RNG.normal(size=(2, 4, 3)), RNG.normal(size=(2, 3))
    node = h.make_node(
        "Scan", ["lengths" if lengths else "", "begin", "x"], ["y", "all"], body=cell(), num_scan_inputs=1,
        directions=[back],
    )  # fmt: skip
    held = {"w": W, "begin": begin, "lengths": np.array(lengths or [4, 4])}
    model = mo.load(graph_of([node], {"x": (F64, [2, 4, 3])}, ["y", "all"], held, opset=8))
    y, kept = model(mn.Tensor(x))
    for b, n in enumerate(held["lengths"]):
        sequence = x[b, :n][::-1] if back else x[b, :n]
        want, rows = scanned(sequence, begin[b])
        np.testing.assert_allclose(y.array[b], want, rtol=1e-13)
        np.testing.assert_allclose(kept.array[b, :n], rows, rtol=1e-13)
        assert not kept.array[b, n:].any()


# What is wrong


@pytest.mark.parametrize(
    ("inside", "message"),
    [
        (body([h.make_node("Cast", ["v"], ["v2"], to=1)], ["i", "c", "v"], ["c", "v2"]),
         "turn 0: carried value 0 was float64 before this turn, but float32 after it; expected one type"),
        (body([h.make_node("Identity", ["v"], ["v2"])], ["i", "c", "v"], ["v", "v2"]),
         "the condition after turn 0 is float64 of shape .2, 3.; expected one bool"),
        (body([h.make_node("Add", ["v", "w2"], ["v2"], name="sum")], ["i", "c", "v"], ["c", "v2"]),
         "turn 0: Add .*node 'loop/body/sum': "),
    ],
)  # fmt: skip
def test_a_turn_that_fails_is_named(inside: Any, message: str, looped: Any) -> None:
    model = mo.load(looped(inside, results=["y"], w2=np.ones((7, 7))))
    with pytest.raises(ValueError, match=f"^Loop .since version 16, opset 17., node 'loop': {message}"):
        model(mn.Tensor(X[0]), mn.tensor(2), mn.tensor(True))


def test_what_is_collected_keeps_its_shape(looped: Any) -> None:
    nodes = [h.make_node("Concat", ["v", "v"], ["v2"], axis=0), h.make_node("Identity", ["v"], ["kept"])]
    model = mo.load(looped(body(nodes, ["i", "c", "v"], ["c", "v2", "kept"])))
    y, _ = model(mn.Tensor(X[0]), mn.tensor(1), mn.tensor(True))
    assert y.shape == (4, 3)
    with pytest.raises(ValueError, match=r"turn 1: collected value 0 is float64 of shape \(4, 3\), but was"):
        model(mn.Tensor(X[0]), mn.tensor(2), mn.tensor(True))


def test_counts_and_lengths_that_make_no_sense_are_named(looped: Any, graph_of: Any) -> None:
    model = mo.load(looped(halving(), n="two", k="", two=np.array([1, 2])))
    with pytest.raises(ValueError, match=r"the trip count is int64 of shape \(2,\); expected one whole number"):
        model(mn.Tensor(X[0]))
    pair = body([h.make_node("Add", ["a", "b"], ["s"]), h.make_node("MatMul", ["s", "w"], ["t"])], ["a", "b"], ["t"])
    options = {"scan_input_axes": [0, 1]}
    node = h.make_node("Scan", ["x", "x"], ["y"], body=pair, num_scan_inputs=2, **options)
    model = mo.load(graph_of([node], {"x": (F64, [4, 2, 3])}, ["y"], {"w": W}))
    with pytest.raises(ValueError, match=r"the sequences have \[4, 2\] elements; expected equal numbers"):
        model(mn.Tensor(X))
    for name, value, message in (
        ("scan_input_axes", [0], r"scan_input_axes is \[0\]; expected 2 numbers"),
        ("scan_input_directions", [0, 2], r"expected only 0 \(forwards\) and 1"),
    ):
        node = h.make_node("Scan", ["x", "x"], ["y"], body=pair, num_scan_inputs=2, **{name: value})
        with pytest.raises(mo.LoadError, match=message):
            mo.load(graph_of([node], {"x": (F64, [4, 2, 3])}, ["y"], {"w": W}))
