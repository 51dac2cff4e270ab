"""Old against new: at three sizes, with the node and the size where they differ, and no file left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import helper  # noqa: E402

import minorm.onnx as mo  # noqa: E402
from minorm.onnx.conversion import equivalence  # noqa: E402

F32 = np.float32
make = helper.make_node


def test_a_model_that_is_wrong_at_another_size_is_found_and_not_written(
    tmp_path: Path, graph_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if a rule had fixed to 1 what is 1 at the first size: the pooled length."""
    nodes = [
        make("MaxPool", ["x"], ["p"], name="pool", kernel_shape=[8, 8], strides=[8, 8]),
        make("ReduceMean", ["p"], ["y"], name="mean", axes=[2, 3], keepdims=0),
    ]
    old = graph_of(nodes, {"x": (F32, ["n", 1, "h", "w"])}, ["y"])

    def broken(self: Any) -> None:
        self.model.graph.node[1].CopyFrom(make("Slice", ["p", "o", "l", "a"], ["s"], name="cut"))
        self.model.graph.node.extend([make("Squeeze", ["s", "a"], ["y"])])
        for name, value in (("o", [0, 0]), ("l", [1, 1]), ("a", [2, 3])):
            self.model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(value), name))

    monkeypatch.setattr("minorm.onnx.conversion.rewriting.Rewriter.rewrite", broken)
    with pytest.raises(
        mo.VerifyError, match=r"with x \(3, 1, 16, 16\), output 'y' differs by .*'y', the result of node 'y'"
    ):
        mo.convert(old, tmp_path / "new.onnx", opset_version=17, verify=True)
    assert not list(tmp_path.iterdir())


def test_a_size_that_the_old_model_refuses_is_reported_and_another_taken(graph_of: Any) -> None:
    nodes = [make("Reshape", ["x", "shape"], ["y"])]
    old = graph_of(nodes, {"x": (F32, ["n", 1, "h", "w"])}, ["y"], {"shape": np.array([0, 16, -1])})
    with pytest.warns(
        UserWarning,
        match=r"the old model does not run with x \(5, 1, 13, 19\), so the comparison uses x \(5, 1, 96, 128\)",
    ):
        mo.convert(old, opset_version=13, verify=True)


def test_declared_lengths_that_are_not_true_are_left_free(graph_of: Any) -> None:
    old = graph_of([make("MaxPool", ["x"], ["y"], kernel_shape=[2, 2])], {"x": (F32, ["n", 1, "h", 8])}, ["y"])
    old.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, ["n", 1, "h", 8]))
    with pytest.warns(UserWarning, match="of output 'y' has length"):
        new = mo.convert(old, opset_version=13, verify=True)
    dims = new.graph.output[0].type.tensor_type.shape.dim
    assert [d.dim_param or d.dim_value for d in dims] == ["n", 1, 0, 0]


def test_a_name_that_means_two_lengths_is_left_out(graph_of: Any) -> None:
    """As PyTorch's exporter writes them behind paddings that it computes."""
    nodes = [make("MaxPool", ["x"], ["p"], kernel_shape=[2, 2]), make("Relu", ["p"], ["y"])]
    old = graph_of(nodes, {"x": (F32, ["n", 1, "h", "w"])}, ["y"])
    old.graph.value_info.append(helper.make_tensor_value_info("p", 1, ["a", 1, "a", "b"]))
    old.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, ["n", 1, "c", "n"]))
    said = (
        r"convert: value 'p' has shape \(5, 1, 12, 18\), but the file declares \(a, 1, a, b\) with a = 5, b = 18; wrong"
    )
    with pytest.warns(UserWarning, match=said):
        new = mo.convert(old, opset_version=13, verify=True)
    assert not new.graph.value_info
    dims = new.graph.output[0].type.tensor_type.shape.dim
    assert [d.dim_param or d.dim_value for d in dims] == ["n", 1, "c", 0]


def test_an_output_whose_name_means_two_lengths_keeps_the_rest(graph_of: Any) -> None:
    old = graph_of([make("MaxPool", ["x"], ["y"], kernel_shape=[2, 2])], {"x": (F32, ["n", 1, "h", "w"])}, ["y"])
    old.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, ["n", 1, "a", "a"]))
    with pytest.warns(UserWarning, match=r"value 'y' has shape \(5, 1, 12, 18\), but the file declares \(n, 1, a, a\)"):
        new = mo.convert(old, opset_version=13, verify=True)
    dims = new.graph.output[0].type.tensor_type.shape.dim
    assert [d.dim_param or d.dim_value for d in dims] == ["n", 1, 0, 0]


def test_shapes_fix_the_lengths_that_follow(graph_of: Any) -> None:
    old = graph_of([make("MaxPool", ["x"], ["y"], kernel_shape=[2, 2])], {"x": (F32, ["n", 1, "h", 8])}, ["y"])
    old.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, ["n", 1, "h2", 7]))
    new = mo.convert(old, opset_version=13, shapes={"x": (3, 1, 6, 8)}, verify=True)
    assert [d.dim_value for d in new.graph.output[0].type.tensor_type.shape.dim] == [3, 1, 5, 7]
    with pytest.raises(ValueError, match=r"shapes: axis 3 of 'x' has length 9; the file says 8"):
        mo.convert(old, opset_version=13, shapes={"x": (3, 1, 6, 9)})


def test_one_axis_is_fixed_by_its_name_and_the_others_stay_free(graph_of: Any) -> None:
    nodes = [make("MaxPool", ["x"], ["y"], kernel_shape=[2, 2]), make("Relu", ["x"], ["z"])]
    old = graph_of(nodes, {"x": (F32, ["n", 1, "h", "w"])}, ["y", "z"])
    old.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, ["n", 1, "h1", "w1"]))
    old.graph.output[1].CopyFrom(helper.make_tensor_value_info("z", 1, ["n", 1, "h", "w"]))
    new = mo.convert(old, opset_version=13, shapes={"h": 48}, verify=True)

    def lengths(entry: Any) -> list[Any]:
        return [d.dim_param or d.dim_value for d in entry.type.tensor_type.shape.dim]

    assert lengths(new.graph.input[0]) == ["n", 1, 48, "w"]
    pooled, same = (lengths(entry) for entry in new.graph.output)
    assert (pooled[:3], same) == (["n", 1, 47], ["n", 1, 48, "w"])
    assert not isinstance(pooled[3], int) or pooled[3] == 0  # free
    with pytest.raises(ValueError, match=r"convert: there is no input and no free axis 'q'; the model has x \(n, 1"):
        mo.convert(old, opset_version=13, shapes={"q": 48})


def test_every_free_axis_is_tried_at_three_lengths(graph_of: Any) -> None:
    old = graph_of([make("Relu", ["x"], ["y"])], {"x": (F32, ["n", 3, "h", "w"])}, ["y"])
    found = equivalence.against(old, None, {})
    assert [str(run) for run in found.runs] == ["x (2, 3, 8, 8)", "x (3, 3, 16, 16)", "x (5, 3, 13, 19)"]


def test_what_onnxruntime_does_not_run_is_a_note(graph_of: Any) -> None:
    old = graph_of([make("Det", ["x"], ["y"])], {"x": (np.int8, [2, 2])}, ["y"], opset=11)
    assert "onnxruntime" in equivalence.against(old, None, {}).note
    text = graph_of([make("Identity", ["x"], ["y"])], {"x": (F32, [2])}, ["y"])
    text.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.STRING
    assert equivalence.against(text, None, {}).note == "input 'x' is not a tensor of numbers"


def test_random_results_are_held_against_their_shapes_alone(graph_of: Any) -> None:
    nodes = [make("RandomNormalLike", ["x"], ["r"]), make("ReduceMean", ["r"], ["y"], axes=[1])]
    mo.convert(graph_of(nodes, {"x": (F32, ["n", 5])}, ["y"]), opset_version=20, verify=True)


def test_where_no_size_is_taken_the_message_asks_for_one(graph_of: Any) -> None:
    nodes = [make("Reshape", ["x", "shape"], ["y"])]
    old = graph_of(nodes, {"x": (F32, ["n", "m"])}, ["y"], {"shape": np.array([0, 1009, -1])})
    with pytest.raises(ValueError, match=r"does not run on random inputs .*\(x \('n', 'm'\)\).*or shapes"):
        mo.convert(old, opset_version=13, verify=True)
