"""Which input of a node gives each of its outputs its type, where a body begins and where it ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto  # noqa: E402  after importorskip
from onnx import helper as h  # noqa: E402

from minorm.onnx.graph import kinds  # noqa: E402
from minorm.onnx.graph.body import Body  # noqa: E402
from minorm.onnx.graph.errors import LoadError  # noqa: E402
from minorm.onnx.graph.tensors import Budget  # noqa: E402
from minorm.onnx.loading.flattening import Flattener  # noqa: E402


def graph(inputs: list[str], outputs: list[Any]) -> Any:
    entries = [e if not isinstance(e, str) else h.make_empty_tensor_value_info(e) for e in outputs]
    return h.make_graph([], "body", [h.make_empty_tensor_value_info(name) for name in inputs], entries)


KEPT = h.make_tensor_value_info("kept", TensorProto.DOUBLE, ["n", 3])


def test_a_loop() -> None:
    body = Body.of(graph(["i", "c", "v", "w"], ["c", "v", "w", KEPT]), "Loop", 17, ("n", "", "a", "b"), 3, 0, "it")
    assert (body.before, body.heads, body.carried, body.collected, body.condition) == (2, (2, 1), 2, 1, 8)
    assert [body.source(place, True) for place in range(4)] == [None, None, 2, 3]
    assert [body.source(place, False) for place in range(3)] == [2, 3, 11]
    assert body.declared == ((None, ()), (None, ()), (None, ()), (np.float64, (0, 3)))


@pytest.mark.parametrize(("opset", "first"), [(8, 1), (9, 0), (25, 0)])
def test_a_scan(opset: int, first: int) -> None:
    given = (*[""] * first, "a", "x", "z")
    body = Body.of(graph(["v", "e", "f"], ["v", "kept"]), "Scan", opset, given, 2, 2, "it")
    assert (body.before, body.heads, body.carried, body.collected, body.condition) == (first, (0, 0), 1, 1, None)
    assert [body.source(place, True) for place in range(3)] == [first, first + 1, first + 2]
    assert [body.source(place, False) for place in range(2)] == [first, first + 3 + 3 + 1]


@pytest.mark.parametrize("scanned", [0, -1, 3, 1.5, None, "2"])
def test_numbers_that_do_not_fit_are_refused(scanned: Any) -> None:
    with pytest.raises(LoadError, match=r"it has 2 inputs, 1 outputs and num_scan_inputs=.*, which do not fit"):
        Body.of(graph(["v", "e"], ["v"]), "Scan", 17, ("a", "x"), 1, scanned, "it")


def test_types_reach_into_a_body_and_out_of_it() -> None:
    inside = h.make_graph(
        [h.make_node("Add", ["v", "v"], ["v2"]), h.make_node("Cast", ["v2"], ["kept"], to=TensorProto.INT64)], "body",
        [h.make_empty_tensor_value_info(name) for name in ("i", "c", "v")],
        [h.make_empty_tensor_value_info(name) for name in ("c", "v2", "kept", "i")],
    )  # fmt: skip
    node = h.make_node("Loop", ["n", "", "x"], ["y", "all", "turns"], body=inside, name="loop")
    model = h.make_model(h.make_graph([node], "g", [], []), opset_imports=[h.make_opsetid("", 17)])
    nodes = Flattener(model, {"": 17}, None, Budget()).nodes()
    for found in nodes:
        found.since = {"Loop": 16, "Add": 14, "Cast": 13}[found.operator]
    assert [(found.operator, found.enters) for found in nodes] == [
        ("Loop", True), ("Add", False), ("Cast", False), ("Loop", False),
    ]  # fmt: skip
    types = kinds.types(nodes, {"x": np.dtype(np.float16)})
    assert {name for name, dtype in types.items() if dtype == np.float16} == {"x", "loop/body/v", "loop/body/v2", "y"}
    assert types["all"] == np.int64
    assert kinds.discrete(nodes, {"x": np.dtype(np.float16), "n": np.dtype(np.int64)}) == {
        "n", "loop/body/i", "loop/body/c", "loop/body/kept", "all", "turns",
    }  # fmt: skip
