"""`minorm check`: the tables of a good model, a verdict instead of a crash for a bad one, and the exit code."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import minorm as mn
from minorm import cli, nn

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("rich")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import minorm.onnx as mo  # noqa: E402


def write(path: Path, nodes: list[object], shape: list[object], opset: int = 17, **held: np.ndarray) -> str:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"] + ["?"] * (len(shape) - 1))],
        [numpy_helper.from_array(array, name) for name, array in held.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    return str(path)


def batch_norm(path: Path, **attributes: object) -> str:
    held = {name: np.ones(3, np.float32) for name in ("scale", "bias", "mean", "var")}
    node = helper.make_node("BatchNormalization", ["x", *held], ["y"], name="bn", **attributes)
    return write(path, [node], ["batch", 3, 4, 4], **held)


def check(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[str]]:
    """The exit code, and the lines with single spaces."""
    code = cli.main(["check", *words])
    return code, [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_the_tables_of_a_good_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = check(capsys, batch_norm(tmp_path / "m.onnx", epsilon=1e-3))
    assert code == 0
    text = "\n".join(lines)
    assert "opset ai.onnx 17, IR version 8" in lines
    assert "inputs x: float32 [batch, 3, 4, 4]" in lines
    assert "outputs y: float32 [n, ?, ?, ?]" in lines
    assert "weights 12 numbers in 4 initializers, 6 of them trained" in lines
    assert "Nodes minorm runs all 1; gradients flow through 1 node" in lines
    assert "bn BatchNormalization 15 yes yes 6" in lines
    assert "bn Batch 15 inference 0.9 0.001 3 channels" in lines
    assert "Would train 6 numbers in 2 weights; load(trainable=...) chooses others" in lines
    assert "scale BatchNormalization 3 3" in lines
    assert "minorm ok runs all 1 nodes: x 2x3x4x4 -> y 2x3x4x4, in " in text
    assert "checker ok valid (onnx 1." in text
    assert "onnxruntime ok onnxruntime 1." in text
    assert "agreement ok largest difference " in text
    assert lines[-1] == "Nothing failed."
    assert max(map(len, lines)) <= 80


def test_what_is_odd_is_said_but_does_not_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = check(capsys, batch_norm(tmp_path / "m.onnx", momentum=0.1))
    assert code == 0
    assert "Normalizations 1, 1 of them odd (!)" in lines
    assert "bn ! Batch 15 inference 0.1 1e-05 3 channels" in lines
    assert "! momentum 0.1 keeps 10% of the old statistics: is PyTorch's 0.9 meant?" in lines
    assert lines[-1] == "Nothing failed; 1 normalization(s) are odd."


def test_unsupported_nodes_are_listed_and_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [
        helper.make_node("StringNormalizer", ["x"], ["d"], name="det"),
        helper.make_node("Relu", ["d"], ["e"], name="relu"),
        helper.make_node("StringNormalizer", ["e"], ["y"], name="where"),
    ]
    code, lines = check(capsys, write(tmp_path / "m.onnx", nodes, [2, 3, 3]))
    assert code == 1
    assert "Not supported 2 nodes" in lines
    assert "NO StringNormalizer 10, det" in lines
    assert "NO StringNormalizer 10, where" in lines
    assert lines.count("minorm does not have the operator StringNormalizer") == 2
    assert not any("outputs=" in line for line in lines)  # nothing lies in front
    assert "det StringNormalizer 10 NO - -" in lines
    assert "minorm FAILED does not run 2 of 3 nodes" in lines
    assert lines[-1].startswith("Failed: minorm")


def test_onnxruntime_runs_what_minorm_does_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inverse = helper.make_node("Inverse", ["x"], ["d"], domain="com.microsoft")
    nodes = [inverse, helper.make_node("Mul", ["x", "d"], ["y"])]
    path = write(tmp_path / "m.onnx", nodes, [1, 3, 3])
    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    onnx.save(model, path)
    code, lines = check(capsys, path)
    assert code == 1
    assert "loads the model, but did not run it: give the free axes a length with --shape" in " ".join(lines)
    code, lines = check(capsys, path, "--shape", "x=1,3,3")
    assert code == 1
    assert any(line.startswith("onnxruntime ok onnxruntime") for line in lines)
    assert lines[-1] == "Failed: minorm."


def test_a_training_graph_with_dropout_is_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.onnx"
    mo.export(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), mn.randn(5, 4), path, training=True)
    code, lines = check(capsys, str(path))
    assert code == 0
    assert "agreement ok" in "\n".join(lines)
    mo.export(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)), mn.randn(5, 4), path, training=True)
    code, lines = check(capsys, str(path))
    assert code == 0
    assert "agreement - not compared: dropout is random" in lines


def test_what_onnxruntime_is_known_to_get_wrong_is_not_held_against_the_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = batch_norm(tmp_path / "m.onnx")
    model = onnx.load(path)
    names = ["mean_", "var_", "saved_mean", "saved_var"]
    model.graph.node[0].output.extend(names)
    model.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in names)
    model.opset_import[0].version = 9
    onnx.save(model, path)
    code, lines = check(capsys, path)
    assert code == 0
    assert "not compared: saved_var, which onnxruntime gives as 1/std" in " ".join(lines)


def test_brief_counts_and_json_tells_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.onnx"
    layers = [layer for _ in range(5) for layer in (nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.ReLU())]
    mo.export(nn.Sequential(*layers), mn.randn(2, 3, 4, 4), path, opset_version=17)
    code, lines = check(capsys, str(path), "--brief")
    assert code == 0
    assert "Conv 11 5 all all 60" in lines
    assert "Relu 14 5 all all -" in lines
    assert not any(line.startswith("Would train") for line in lines)
    assert "5 BatchNormalization 15 inference 0.9 1e-05 5" in lines
    assert "nodes 1, 4, 7 and 2 more" in lines
    assert cli.main(["check", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["nodes"]) == 15
    assert found["nodes"][0]["node"] == "0/Conv"
    assert found["weights"][:2] == [
        {"name": "0.weight", "shape": [3, 3, 1, 1], "readers": ["Conv"], "count": 9},
        {"name": "0.bias", "shape": [3], "readers": ["Conv"], "count": 3},
    ]
    assert found["normalizations"][0]["odd"][0].startswith("stale statistics")
    assert {verdict["judge"]: verdict["state"] for verdict in found["verdicts"]} == dict.fromkeys(
        ("minorm", "checker", "onnxruntime", "agreement"), "ok"
    )


def test_a_file_that_is_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.onnx"
    for contents in (b"not a model at all", b""):
        path.write_bytes(contents)
        assert cli.main(["check", str(path)]) == 1
        assert "is no ONNX model" in capsys.readouterr().err
    assert cli.main(["check", str(tmp_path / "missing.onnx")]) == 1
    assert "missing.onnx" in capsys.readouterr().err


def test_an_invalid_model_fails_before_each_judge(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = check(capsys, write(tmp_path / "m.onnx", [helper.make_node("Relu", ["x", "x"], ["y"])], [2, 2]))
    assert code == 1
    assert lines[-1] == "Failed: minorm, checker, onnxruntime."


def test_a_model_that_crashes_onnxruntime_is_a_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [helper.make_node("DepthToSpace", ["x"], ["y"], blocksize=2**32)]
    code, lines = check(capsys, write(tmp_path / "m.onnx", nodes, [1, 4, 2, 2], opset=13))
    assert code == 1
    assert "onnxruntime FAILED" in "\n".join(lines)


def test_free_axes_are_tried_and_can_be_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "m.onnx", [helper.make_node("Relu", ["x"], ["y"])], ["batch", "height"])
    code, lines = check(capsys, path)
    assert code == 0
    assert "x 2x8 -> y 2x8" in "\n".join(lines)
    code, lines = check(capsys, path, "--shape", "x=5,7")
    assert code == 0
    assert "x 5x7 -> y 5x7" in "\n".join(lines)
    code, lines = check(capsys, path, "--shape", "height=7")
    assert code == 0
    assert "x 2x7 -> y 2x7" in "\n".join(lines)
    for wrong, why in (
        ("width=7", "there is no input and no free axis 'width'; the model has x (batch, height)"),
        ("x=5", "shapes['x'] has 1 axes; the file says 2: x (batch, height)"),
        ("height=7,8", "shapes['height'] has 2 lengths; expected one length, because 'height' is an axis"),
    ):
        assert cli.main(["check", path, "--shape", wrong]) == 1
        assert capsys.readouterr() == ("", f"minorm check: {why}\n")


def test_layers_with_shapes_and_costs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = nn.Sequential(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()), nn.Conv2d(4, 2, 1))
    net[1].freeze()
    mo.export(net, mn.randn(2, 3, 8, 8), tmp_path / "m.onnx", opset_version=17)
    code, lines = check(capsys, str(tmp_path / "m.onnx"), "--shape", "batch=5")
    assert code == 0
    assert "Layers at x 5x3x8x8: 20.9 k multiplications; 130 parameters, 10 frozen" in lines
    assert "0.0 Conv 5x4x6x6 112 19.4 k yes" in lines
    assert "0.2 Relu 5x4x6x6 - - -" in lines
    assert "1 Conv 5x2x6x6 10 1.44 k frozen" in lines
    cli.main(["check", str(tmp_path / "m.onnx"), "--shape", "batch=5", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (found["size"], found["multiplications"], found["frozen"]) == ({"x": [5, 3, 8, 8]}, 20880, 10)
    assert (found["folded"], found["cuts"]) == ([], [])
    assert found["layers"][0] == {
        "path": "0.0", "name": "0.0", "operators": {"Conv": 1}, "shape": [5, 4, 6, 6], "parameters": 112,
        "frozen": 0, "statistics": 0, "fixed": 0, "multiplications": 5 * 36 * 4 * 27, "trains": "yes",
    }  # fmt: skip


def test_where_to_cut_and_what_was_folded_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    held = {"onnx::Conv_7": np.ones((3, 3, 1, 1), np.float32), "onnx::Conv_8": np.ones(3, np.float32)}
    nodes = [
        helper.make_node("Conv", ["x", *held], ["/c/Conv_output_0"], name="/c/Conv"),
        helper.make_node("StringNormalizer", ["/c/Conv_output_0"], ["y"]),
    ]
    code, lines = check(capsys, write(tmp_path / "m.onnx", nodes, [1, 3, 4, 4], **held))
    assert code == 1
    text = " ".join(lines)
    assert "load(..., outputs=['/c/Conv_output_0']) loads the graph before these nodes" in text
    assert "node /c/Conv ! BatchNorm was folded into 1 convolution when the model was exported: it is no layer" in text


def test_a_file_cannot_write_to_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = helper.make_node("Relu", ["x"], ["y"], name="\x1b[2J[bold]evil[/]")
    assert cli.main(["check", write(tmp_path / "m.onnx", [node], [2])]) == 0
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert "\\x1b[2J[bold]evil[/]" in text


# A guess that does not fit is no failure


def described(path: Path, nodes: list[object], inputs: dict[str, tuple[int, list[object]]], **held: np.ndarray) -> str:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in held.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return str(path)


FLOATS = TensorProto.FLOAT
W = np.random.default_rng(0).standard_normal((1575, 12)).astype(np.float32)


def test_a_length_that_a_weight_fixes_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Transpose", ["r"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["t", "w"], ["m"]),
        helper.make_node("Add", ["m", "other"], ["y"]),
    ]
    inputs = {"x": (FLOATS, ["n", "features", "t"]), "other": (FLOATS, ["k", "steps", "width"])}
    code, lines = check(capsys, described(tmp_path / "m.onnx", nodes, inputs, w=W), "--brief")
    text = " ".join(lines)
    assert code == 0
    assert "x 2x1575x8, other 2x8x12 -> y 2x8x12" in text
    assert "agreement ok" in text


def test_where_no_size_fits_nothing_is_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [  # the square of a length, 37, that no weight says
        helper.make_node("Reshape", ["x", "shape"], ["y"]),
    ]
    path = described(tmp_path / "m.onnx", nodes, {"x": (FLOATS, ["n"])}, shape=np.array([37, 37]))
    code, lines = check(capsys, path, "--brief")
    text = " ".join(lines)
    assert code == 0
    assert "minorm - loads the model, but found no input size on which it runs (" in text
    assert "onnxruntime - onnxruntime" in text
    code, lines = check(capsys, path, "--brief", "--shape", "n=1369")
    assert code == 0
    assert "x 1369 -> y 37x37" in " ".join(lines)
    code, lines = check(capsys, path, "--brief", "--shape", "n=1368")  # asked for, and it fails
    assert code == 1


def test_what_an_input_needs_can_be_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [
        helper.make_node("Cast", ["rate"], ["r"], to=TensorProto.INT64),
        helper.make_node("Reshape", ["x", "r"], ["z"]),
        helper.make_node("Mul", ["z", "z"], ["y"]),
    ]
    path = described(tmp_path / "m.onnx", nodes, {"x": (FLOATS, ["n", 6]), "rate": (TensorProto.INT32, [2])})
    code, lines = check(capsys, path, "--brief", "--shape", "n=2", "--input", "rate=[3,4]")
    assert code == 0
    assert "x 2x6, rate 2 -> y 3x4" in " ".join(lines)
    for wrong, why in (
        ("rate", "--input rate: expected NAME=NUMBER or NAME=[NUMBERS]"),
        ("rate=[3,", "--input rate=[3,: expected NAME=NUMBER"),
        ('rate="a"', "expected NAME=NUMBER"),
        ("speed=3", "there is no input 'speed'; the model has x (n, 6), rate (2)"),
        ("rate=[3,4,5]", "shapes: axis 0 of 'rate' has length 3; the file says 2"),
    ):
        assert cli.main(["check", path, "--input", wrong]) == 1
        assert why in capsys.readouterr().err


def test_names_of_values_stand_beside_those_of_nodes_and_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    value = "/a/very/long/path/of/modules/in/a/network/that/goes/on/and/on/layer1/layer1.0/conv1/Conv_output_0"
    nodes = [helper.make_node("Relu", ["x"], [value], name="/act/Relu"), helper.make_node("Neg", [value], ["y"])]
    path = described(tmp_path / "m.onnx", nodes, {"x": (FLOATS, [2, 3])})
    code, lines = check(capsys, path)
    assert code == 0
    text = "".join("".join(lines).split())
    assert f"->{value}" in text
    assert any(line.startswith("/act/Relu Relu") for line in lines)
    cli.main(["check", path, "--json"])
    assert json.loads(capsys.readouterr().out)["nodes"][0]["values"] == [value]


def test_every_tensor_is_listed_with_its_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [
        helper.make_node("Gemm", ["x", "fc.weight", "fc.bias"], ["a"], name="fc"),
        helper.make_node("Pow", ["a", "two"], ["b"]),
        helper.make_node("Reshape", ["b", "shape"], ["c"]),
        helper.make_node("BatchNormalization", ["c", "g", "h", "mean", "var"], ["y"], name="bn"),
    ]
    held = {"fc.weight": W[:4, :6], "fc.bias": W[0, :6], "two": np.array(2, np.float32), "shape": np.array([0, 6])}
    held |= dict.fromkeys(("g", "h", "mean", "var"), np.ones(6, np.float32))
    path = described(tmp_path / "m.onnx", nodes, {"x": (FLOATS, ["n", 4])}, **held)
    code, lines = check(capsys, path, "--trainable")
    assert code == 0
    text = " ".join(lines)
    assert "What trains 4 Parameters, 2 buffers, 2 constants; load(trainable=...) chooses others" in text
    assert "fc.weight Parameter 4x6 weight of Gemm 'fc'" in text
    assert "shape constant 2 it holds int64, not floats" in text
    cli.main(["check", path, "--json"])
    tensors = json.loads(capsys.readouterr().out)["tensors"]
    found = {tensor["name"]: tensor["role"] for tensor in tensors}
    why = {tensor["name"]: tensor["why"] for tensor in tensors}
    assert why["two"] == "it is the exponent of a value that may be negative, and there the exponent has no gradient"
    assert why["var"] == "running statistics of a normalization"
    roles = {"Parameter": ["fc.weight", "fc.bias", "g", "h"], "buffer": ["mean", "var"], "constant": ["two", "shape"]}
    assert found == {name: role for role, names in roles.items() for name in names}


def test_a_quantized_model_is_said_to_have_no_parameters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s"], ["w"]),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    held = {"q": np.arange(12, dtype=np.int8).reshape(4, 3), "s": np.array(0.1, np.float32)}
    code, lines = check(capsys, described(tmp_path / "m.onnx", nodes, {"x": (FLOATS, ["n", 4])}, **held))
    assert code == 0
    text = " ".join(lines)
    assert "! The model is quantized, and has no Parameters: 1 of its tensors hold weights as integers" in text
