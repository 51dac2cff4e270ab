"""Planted faults: each is found at some size, by the name of its node, and no file is left."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
import minorm.onnx as mo
from minorm import nn

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import helper  # noqa: E402

from minorm.onnx.exporting import translating, verifying  # noqa: E402
from minorm.onnx.graph import registry  # noqa: E402

FREE = {"x": {0: "N", 2: "H", 3: "W"}}
X = mn.tensor(np.random.default_rng(2).normal(size=(2, 3, 64, 64)).astype(np.float32))


def traced(model: Any, x: mn.Tensor = X, training: bool = False, **options: Any) -> translating.Translated:
    return translating.translate(model, x, opset_version=None, training=training, **{"dynamic_axes": FREE, **options})


class Steps(nn.Module):
    """A number that Python takes from a length: the same at all lengths but small ones."""

    def forward(self, x: mn.Tensor) -> mn.Tensor:
        return F.relu(x) * (2.0 if x.shape[2] < 63 else 1.0)


class Cut(nn.Module):
    def forward(self, x: mn.Tensor) -> mn.Tensor:
        return F.relu(x)[:, :, : min(x.shape[2], 60)] * 2


class Turns(nn.Module):
    def forward(self, x: mn.Tensor) -> mn.Tensor:
        return F.relu(x) if x.shape[2] > 60 else F.tanh(x)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (
            Steps(),
            r"output 'output' differs by .*; in node '1/Mul' \(Mul\) Mul: b of shape \(\) holds different numbers",
        ),
        (Cut(), r"value '1/Slice_output' of node '1/Slice' \(Slice\) has shape .* the file declares \(N, 4, 60, W\)"),
        (Turns(), r"output 'output' differs by .*; the operation in 1 is relu in the file, tanh in the model"),
    ],
)
def test_a_length_that_python_made_a_number_of(tmp_path: Path, fault: Any, message: str) -> None:
    (tmp_path / "old.onnx").write_bytes(b"old")
    model = nn.Sequential(nn.Conv2d(3, 4, 1), fault, nn.ReLU())
    for name in ("old.onnx", "new.onnx"):
        with pytest.raises(mo.VerifyError, match=rf"^export: with x \(3, 3, 53, 67\), {message}"):
            mo.export(model, X, tmp_path / name, dynamic_axes=FREE, verify=True)
    assert [path.name for path in tmp_path.iterdir()] == ["old.onnx"]
    assert (tmp_path / "old.onnx").read_bytes() == b"old"


def test_weights_that_lie_outside_go_as_well(tmp_path: Path) -> None:
    with pytest.raises(mo.VerifyError, match="differs by"):
        mo.export(
            nn.Sequential(nn.Conv2d(3, 400, 1), Steps()),
            X[:, :, :, :4],
            tmp_path / "m.onnx",
            dynamic_axes={"x": {2: "H"}},
            external_data=True,
            verify=True,
        )
    assert not list(tmp_path.iterdir())


def test_a_batch_of_one_is_among_the_sizes() -> None:
    with pytest.raises(
        mo.VerifyError, match=r"with x \(1, 3\), output 'output' is float32\(1,\) in the file, float32\("
    ):
        mo.export(lambda x: x.sum(1).squeeze(), mn.ones(2, 3), verify=True)


def test_a_result_that_onnxruntime_computes_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if its Tanh were wrong: the node is named, not the first one and not the last."""
    monkeypatch.setitem(registry.WRITERS, F.tanh, [registry.Writer(F.tanh, None, (), lambda g, x: g.add("Neg", x))])
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Tanh(), nn.Conv2d(4, 4, 3), nn.ReLU())
    with pytest.raises(
        mo.VerifyError, match=r"the first value that differs is '2/Neg_output', the result of node '2/Neg' \(Neg\)"
    ):
        mo.export(model, X, dynamic_axes=FREE, verify=True)


def test_what_is_changed_in_place_is_not_taken_for_a_wrong_node(monkeypatch: pytest.MonkeyPatch) -> None:
    class Shortcut(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.last = nn.Conv2d(3, 3, 1), nn.Tanh()
            self.register_buffer("steps", mn.zeros(1))

        def forward(self, x: mn.Tensor) -> mn.Tensor:
            self.steps += 1
            out = F.relu(self.conv(x))
            view = out.transpose(2, 3)
            out += x
            return self.last(out * self.steps) + view.transpose(2, 3)

    monkeypatch.setitem(registry.WRITERS, F.tanh, [registry.Writer(F.tanh, None, (), lambda g, x: g.add("Neg", x))])
    with pytest.raises(mo.VerifyError, match=r"the first value that differs is 'last/Neg_output'"):
        mo.export(Shortcut(), X, dynamic_axes=FREE, verify=True)


def test_a_node_that_onnxruntime_fails_on() -> None:
    found = traced(nn.Sequential(nn.MaxPool2d(2), nn.ReLU()))
    comparison = verifying.against(found)
    (node,) = (node for node in found.proto.graph.node if node.op_type == "MaxPool")
    kernel = next(a for a in node.attribute if a.name == "kernel_shape")
    kernel.ints[:] = [60, 60]
    with pytest.raises(mo.VerifyError, match=r"with x .* '0/MaxPool'"):
        comparison.check(found.proto)


@pytest.mark.parametrize("wrong", [7, "H"])
def test_a_declared_length_that_is_not_true(wrong: Any) -> None:
    found = traced(lambda x: F.max_pool2d(F.relu(x), 2) * 2)
    entry = next(entry for entry in found.proto.graph.value_info if entry.name == "MaxPool_output")
    lengths = [d.dim_param or d.dim_value for d in entry.type.tensor_type.shape.dim]
    entry.CopyFrom(helper.make_tensor_value_info(entry.name, 1, [*lengths[:3], wrong]))
    comparison = verifying.against(found)
    with pytest.raises(
        mo.VerifyError, match=r"with x \(2, 3, 64, 64\), value 'MaxPool_output' of node 'MaxPool' \(MaxPool\) has shape"
    ):
        comparison.check(found.proto)
    with pytest.warns(UserWarning, match=r"export: value 'MaxPool_output' has shape .*; wrong declarations"):
        comparison.correct(found.proto)
    comparison.check(found.proto)
    assert "MaxPool_output" not in {entry.name for entry in found.proto.graph.value_info}


def test_new_running_statistics_are_compared_at_every_size() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.BatchNorm2d(4, momentum=None), nn.ReLU())
    found = traced(model, X[:, :, :16, :16], training=True)
    state = {key: value.array.copy() for key, value in model.state_dict().items()}
    comparison = verifying.against(found)
    report = comparison.check(found.proto)
    assert report.sizes == ("x (2, 3, 16, 16)", "x (4, 3, 48, 80)", "x (3, 3, 13, 29)")
    assert [len(run.outputs) for run in comparison.runs] == [4, 4, 4]
    for key, value in model.state_dict().items():
        np.testing.assert_array_equal(value.array, state[key])
    (node,) = (n for n in found.proto.graph.node if n.op_type == "BatchNormalization")
    next(a for a in node.attribute if a.name == "momentum").f = 0.5
    with pytest.raises(mo.VerifyError, match=r"output '1.running_mean.updated' differs"):
        comparison.check(found.proto)


def test_random_results_are_compared_by_shape_and_the_rest_by_value() -> None:
    model = nn.Sequential(nn.BatchNorm2d(3), nn.Dropout(), nn.ReLU())
    mn.manual_seed(3)
    before = mn.random.get_state()
    found = traced(model, X[:, :, :8, :8], training=True)
    comparison = verifying.against(found)
    assert mn.random.get_state() == before
    comparison.check(found.proto)
    (node,) = (n for n in found.proto.graph.node if n.op_type == "BatchNormalization")
    next(a for a in node.attribute if a.name == "momentum").f = 0.5
    with pytest.raises(mo.VerifyError, match=r"output '0.running_mean.updated' differs"):
        comparison.check(found.proto)


def test_a_dropout_that_cannot_say_that_it_drops_is_held_against_its_shape() -> None:
    with pytest.warns(UserWarning, match="before opset 12 a Dropout"):
        mo.export(
            nn.Sequential(nn.Linear(3, 3), nn.Dropout()), mn.ones(2, 3), opset_version=11, training=True, verify=True
        )


def test_what_lies_behind_a_dropout_is_followed_through_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Dropout(), Steps())
    with pytest.raises(
        mo.VerifyError,
        match=r"with x \(3, 3, 53, 67\), the file and the model compute different values; in node '1/Mul' \(Mul\)",
    ):
        mo.export(model, X, dynamic_axes=FREE, training=True, verify=True)
    monkeypatch.setitem(registry.WRITERS, F.tanh, [registry.Writer(F.tanh, None, (), lambda g, x: g.add("Neg", x))])
    with pytest.raises(
        mo.VerifyError,
        match=r"the file and the model compute different values; the first value that differs is '0/Neg_output'",
    ):
        mo.export(nn.Sequential(nn.Tanh(), nn.Dropout()), mn.ones(2, 3), training=True, verify=True)


def test_indices_stay_indices_and_zeros_are_no_test() -> None:
    table = nn.Parameter(mn.randn(5, 3))
    free = {"x": {0: "N", 1: "T"}, "y": {0: "N", 1: "T"}}
    args = (mn.tensor([[4, 0, 4]]), mn.zeros(1, 3, 3))
    comparison = verifying.against(traced(lambda x, y: table[x] + y, args, dynamic_axes=free))  # type: ignore[arg-type]
    for run in comparison.runs[1:]:
        arrays = run.size.arrays()
        assert set(arrays["x"].ravel().tolist()) <= {0, 4}
        assert arrays["y"].std() > 0.5


def test_a_model_that_takes_one_size_only_is_compared_there() -> None:
    with pytest.warns(UserWarning, match="the batch size is fixed at 2"):
        found = traced(lambda x: x.reshape(2, 3) + 1, mn.ones(2, 3), dynamic_axes=None)
    assert verifying.against(found).check(found.proto).sizes == ("x (2, 3)",)


# A graph that was loaded


def graph(graph_of: Any) -> Any:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv", kernel_shape=[3, 3], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["y"], name="relu"),
    ]
    weight = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32)
    return graph_of(nodes, {"x": (np.float32, ["n", 3, "h", "w_"])}, ["y"], {"w": weight})


def test_a_loaded_graph_says_what_is_right_of_a_file(graph_of: Any) -> None:
    proto = graph(graph_of)
    model = mo.load(proto)
    comparison = verifying.of_graph(model, proto, False, ["y"])
    comparison.correct(proto)
    assert comparison.check(proto).sizes == ("x (2, 3, 8, 8)", "x (3, 3, 16, 16)", "x (5, 3, 13, 19)")
    with_example = verifying.of_graph(model, proto, False, ["y"], [mn.ones(2, 3, 9, 9)])
    assert with_example.check(proto).sizes[0] == "x (2, 3, 9, 9)"
    dict(model.named_parameters())["w"].array[...] *= 2
    with pytest.raises(mo.VerifyError, match=r"with x \(2, 3, 8, 8\), output 'y' differs") as caught:
        verifying.of_graph(model, proto, False, ["y"]).check(proto)
    assert "node" not in str(caught.value)  # minorm and onnxruntime agree about the file: no node of it is at fault


def test_a_node_of_a_written_graph_that_is_wrong(graph_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if onnxruntime computed Relu wrongly: the file that it is given has another operator there."""
    proto = graph(graph_of)
    comparison = verifying.of_graph(mo.load(proto), proto, False, ["y"])
    comparison.correct(proto)
    broken = onnx.ModelProto()
    broken.CopyFrom(proto)
    broken.graph.node[1].op_type = "Sigmoid"
    monkeypatch.setattr("minorm.onnx.exporting.verifying.load", lambda _, outputs: mo.load(proto, outputs))
    with pytest.raises(
        mo.VerifyError, match=r"the first value that differs is 'y', the result of node 'relu' \(Sigmoid\)"
    ):
        comparison.check(broken)


@pytest.mark.parametrize("external", [None, True])
def test_a_graph_that_is_written_back_is_compared(graph_of: Any, tmp_path: Path, external: bool | None) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv", kernel_shape=[3, 3], strides=[2, 2]),
        helper.make_node("BatchNormalization", ["c", "s", "s", "m", "v"], ["n"], name="norm"),
        helper.make_node("Relu", ["n"], ["y"], name="relu"),
    ]
    rng = np.random.default_rng(0)
    held = {name: rng.uniform(0.5, 1, 32).astype(np.float32) for name in "smv"}
    held["w"] = rng.normal(size=(32, 3, 3, 3)).astype(np.float32)
    model = mo.load(graph_of(nodes, {"x": (np.float32, ["n", 3, "h", "w_"])}, ["y"], held))
    path = tmp_path / "m.onnx"
    for training, args in ((False, None), (True, None), (None, mn.ones(3, 3, 9, 9))):
        state = {key: value.array.copy() for key, value in model.state_dict().items()}
        mo.export(model, args, path, training=training, external_data=external, output_names=["z"], verify=True)
        for key, value in model.state_dict().items():
            np.testing.assert_array_equal(value.array, state[key])
    assert mo.load(path)(mn.ones(1, 3, 7, 7)).shape == (1, 32, 3, 3)


def test_a_fault_in_writing_back_is_found(graph_of: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a weight had come back in another order."""
    from minorm.onnx.exporting import writing_back

    model, fill = mo.load(graph(graph_of)), writing_back._fill
    dict(model.named_parameters())["w"].array[...] *= 2  # so that it is written anew

    def reversed_(proto: Any, contents: Any, weights: Any) -> None:
        fill(proto, contents, weights)
        (tensor,) = (t for t in proto.graph.initializer if t.name == "w")
        array = onnx.numpy_helper.to_array(tensor)
        tensor.CopyFrom(onnx.numpy_helper.from_array(array[::-1].copy(), "w"))

    monkeypatch.setattr(writing_back, "_fill", reversed_)
    with pytest.raises(mo.VerifyError, match=r"export: with x \(2, 3, 8, 8\), output 'y' differs by"):
        mo.export(model, None, tmp_path / "m.onnx", verify=True)
    assert not list(tmp_path.iterdir())


def test_no_warning_where_every_size_is_taken() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mo.export(nn.Linear(3, 3), mn.ones(2, 3), verify=True)
