"""Weights that a file holds twice, or once for several modules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import helper as h  # noqa: E402

from minorm.cli.terminal.words import odd  # noqa: E402
from minorm.onnx.checking import inspection  # noqa: E402

rng = np.random.default_rng(0)
TABLE = rng.standard_normal((7, 4)).astype(np.float32)
SQUARE = rng.standard_normal((4, 4)).astype(np.float32)


def words(tmp_path: Any, proto: Any) -> Any:
    proto.producer_name = "pytorch"
    onnx.save(proto, tmp_path / "model.onnx")
    return inspection.inspect(tmp_path / "model.onnx")


def test_a_tied_head_that_was_transposed_is_named(graph_of: Any, tmp_path: Any) -> None:
    nodes = [
        h.make_node("Gather", ["words.weight", "x"], ["a"], name="/words/Gather"),
        h.make_node("MatMul", ["a", "onnx::MatMul_9"], ["y"], name="/head/MatMul"),
    ]
    held = {"words.weight": TABLE, "onnx::MatMul_9": np.ascontiguousarray(TABLE.T)}
    found = words(tmp_path, graph_of(nodes, {"x": (np.int64, ["n"])}, ["y"], held))
    assert found.twice == {"onnx::MatMul_9": "words.weight"}
    [(at, sentences)] = odd(found).items()
    assert at == ("/head",)
    assert sentences[0].startswith("The exporter wrote 'words.weight' a second time, as 'onnx::MatMul_9'")
    held["onnx::MatMul_9"][1, 1] += 1
    other = words(tmp_path, graph_of(nodes, {"x": (np.int64, ["n"])}, ["y"], held))
    assert not other.twice
    assert not odd(other)


@pytest.mark.parametrize(
    ("second", "several"), [("/b/MatMul", True), ("/a_1/MatMul", False), ("MatMul_7", False), ("/a/MatMul_1", False)]
)
def test_one_weight_of_several_modules_is_named(second: str, several: bool, graph_of: Any, tmp_path: Any) -> None:
    """Not that of a module which is called again."""
    nodes = [
        h.make_node("MatMul", ["x", "onnx::MatMul_9"], ["a"], name="/a/MatMul"),
        h.make_node("MatMul", ["a", "onnx::MatMul_9"], ["y"], name=second),
    ]
    found = words(tmp_path, graph_of(nodes, {"x": (np.float32, ["n", 4])}, ["y"], {"onnx::MatMul_9": SQUARE}))
    assert found.merged == (["onnx::MatMul_9"] if several else [])
    assert len(odd(found)) == several


def test_a_name_that_people_gave_says_that_it_is_shared(graph_of: Any, tmp_path: Any) -> None:
    nodes = [
        h.make_node("MatMul", ["x", "a.weight"], ["a"], name="/a/MatMul"),
        h.make_node("MatMul", ["a", "a.weight"], ["y"], name="/b/MatMul"),
    ]
    found = words(tmp_path, graph_of(nodes, {"x": (np.float32, ["n", 4])}, ["y"], {"a.weight": SQUARE}))
    assert not odd(found)
