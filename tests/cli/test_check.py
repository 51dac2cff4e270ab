"""`minorm check`: the summary of a good model, and a verdict instead of a crash for a bad one."""

from __future__ import annotations

from pathlib import Path

import pytest

from minorm import cli

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper  # noqa: E402


def write(
    path: Path, nodes: list[object], shape: list[object], initializers: tuple[object, ...] = (), opset: int = 17
) -> str:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"] + ["?"] * (len(shape) - 1))],
        list(initializers),
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    return str(path)


def batch_norm(path: Path, **attributes: object) -> str:
    names = ["scale", "bias", "mean", "var"]
    values = tuple(helper.make_tensor(n, TensorProto.FLOAT, [3], [1.0, 1.0, 1.0]) for n in names)
    node = helper.make_node("BatchNormalization", ["x", *names], ["y"], name="bn", **attributes)
    return write(path, [node], ["batch", 3, 4, 4], values)


def test_the_summary_of_a_good_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", batch_norm(tmp_path / "m.onnx", epsilon=1e-3)]) == 0
    lines = capsys.readouterr().out.splitlines()
    text = "\n".join(" ".join(line.split()) for line in lines)
    assert "opset ai.onnx 17 (IR version 8)" in text
    assert "inputs x: float32 [batch, 3, 4, 4]" in text
    assert "outputs y: float32 [n, ?, ?, ?]" in text
    assert "initializers 4, 12 numbers" in text
    assert "nodes 1: 1 BatchNormalization" in text
    assert "normalizations BatchNormalization bn: inference, epsilon=0.001, momentum=0.9" in text
    assert "checker valid" in text
    assert "runs in onnxruntime" in text
    assert "y (2, 3, 4, 4)" in text


def test_a_file_that_is_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.onnx"
    path.write_bytes(b"not a model at all")
    assert cli.main(["check", str(path)]) == 1
    assert "is not an ONNX model" in capsys.readouterr().err
    path.write_bytes(b"")
    assert cli.main(["check", str(path)]) == 1
    assert "is not an ONNX model" in capsys.readouterr().err
    assert cli.main(["check", str(tmp_path / "missing.onnx")]) == 1
    assert "missing.onnx" in capsys.readouterr().err


def test_an_invalid_model_fails_with_a_line_for_each_tool(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "m.onnx", [helper.make_node("Relu", ["x", "x"], ["y"])], [2, 2])
    assert cli.main(["check", path]) == 1
    text = capsys.readouterr().out
    assert "checker" in text
    assert text.count("FAILED: ") == 2


def test_a_model_that_crashes_onnxruntime_is_a_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [helper.make_node("DepthToSpace", ["x"], ["y"], blocksize=2**32)]
    assert cli.main(["check", write(tmp_path / "m.onnx", nodes, [1, 4, 2, 2], opset=13)]) == 1
    assert "FAILED: " in capsys.readouterr().out


def test_free_axes_other_than_the_first_are_not_guessed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "m.onnx", [helper.make_node("Relu", ["x"], ["y"])], ["batch", "height"])
    assert cli.main(["check", path]) == 0
    assert "not run: x has free axes ['height']" in capsys.readouterr().out
