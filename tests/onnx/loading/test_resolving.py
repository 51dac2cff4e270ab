from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import helper as h  # noqa: E402

import minorm.onnx as mo  # noqa: E402
from minorm.onnx.graph.reading import Node  # noqa: E402
from minorm.onnx.loading import resolving  # noqa: E402


def node(operator: str, opset: int, domain: str = "") -> Node:
    return Node(operator, domain, "n", opset, ("x",), ("y",), {})


def test_each_node_gets_the_version_in_force() -> None:
    nodes = [node("Relu", 13), node("Relu", 14), node("Gelu", 25)]
    resolving.resolve(nodes)
    assert [n.since for n in nodes] == [13, 14, 20]


@pytest.mark.parametrize(
    ("bad", "since", "why"),
    [
        (node("StringNormalizer", 17), 10, "minorm does not have the operator StringNormalizer"),
        (node("Frobnicate", 17), 0, "ONNX does not have the operator Frobnicate"),
        (node("Gelu", 19), 0, "Gelu exists from opset 20 on; the model's opset is 19"),
        (node("Relu", 0), 0, "the file does not give its opset"),
        (node("Relu", -(2**63)), 0, "Relu exists from opset 1 on; the model's opset is -9223372036854775808"),
        (node("StringNormalizer", 2**62), 0, "minorm does not have the operator StringNormalizer"),
        (node("Thing", 1, "com.x"), 0, "domain 'com.x' is not ONNX's own, and the file defines no such function"),
    ],
)
def test_what_is_not_there_is_said_in_one_way(bad: Node, since: int, why: str) -> None:
    with pytest.raises(mo.LoadError, match="load: minorm does not run 1 of 2 nodes") as caught:
        resolving.resolve([node("Relu", 17), bad])
    assert caught.value.unsupported == {("y",): why}
    assert f", node 'n': {why}" in str(caught.value)
    assert bad.since == since


def test_check_says_it_in_the_same_words(graph_of: Any, tmp_path: Any) -> None:
    from minorm.onnx.checking.inspection import inspect

    proto = graph_of([h.make_node("StringNormalizer", ["x"], ["y"])], {"x": (np.float32, [2, 2])}, ["y"])
    onnx.save(proto, tmp_path / "m.onnx")
    why = "minorm does not have the operator StringNormalizer"
    assert [row.why for row in inspect(tmp_path / "m.onnx").rows] == [why]
    with pytest.raises(mo.LoadError, match=why):
        mo.load(proto)


@pytest.mark.parametrize("level", ["ORT_ENABLE_ALL", "ORT_ENABLE_BASIC"])
def test_a_model_that_onnxruntime_optimized_says_how_to_save_it(level: str, graph_of: Any, tmp_path: Any) -> None:
    runtime = pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    held = {"a": rng.standard_normal((32, 3, 3, 3)), "b": rng.standard_normal((32, 32, 1, 1))}
    nodes = [
        onnx.helper.make_node("Conv", ["x", "a"], ["p"]),
        onnx.helper.make_node("Sigmoid", ["p"], ["q"]),
        onnx.helper.make_node("Conv", ["q", "b"], ["y"]),
    ]
    proto = graph_of(
        nodes, {"x": (np.float32, [1, 3, 8, 8])}, ["y"], {n: w.astype(np.float32) for n, w in held.items()}
    )
    options = runtime.SessionOptions()
    options.graph_optimization_level = getattr(runtime.GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.log_severity_level = 4
    runtime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    if level == "ORT_ENABLE_BASIC":
        assert len(list(mo.load(tmp_path / "optimized.onnx").parameters())) == 2
    else:
        with pytest.raises(mo.LoadError, match=r"com\.microsoft.*(\n.*)*save with ORT_ENABLE_BASIC"):
            mo.load(tmp_path / "optimized.onnx")
