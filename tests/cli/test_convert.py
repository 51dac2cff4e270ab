"""`minorm convert`: to another opset and back, into the file asked for, and one line where that cannot be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import minorm as mn
from minorm import cli, nn

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import minorm.onnx as mo  # noqa: E402


def net() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.GroupNorm(2, 4))


def test_a_training_graph_down_and_up_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.onnx"
    x = mn.randn(2, 1, 8, 8)
    mo.export(net(), x, path, opset_version=22, training=True)
    assert cli.main(["convert", str(path), "--opset", "13"]) == 0
    text = capsys.readouterr().out
    assert "model.onnx, opset 22, " in text
    assert "model-opset13.onnx, opset 13, " in text
    assert "onnxruntime gives the same results for the new model as for the old one" in text
    down = tmp_path / "model-opset13.onnx"
    assert cli.main(["convert", str(down), "--opset", "21", "-o", str(tmp_path / "up.onnx")]) == 0
    up = onnx.load(tmp_path / "up.onnx")
    norms = [node.op_type for node in up.graph.node if "Normalization" in node.op_type]
    assert norms[0] == "BatchNormalization"
    for name in (down, tmp_path / "up.onnx"):
        results = zip(mo.load(path)(x), mo.load(name)(x), strict=True)
        assert all(np.allclose(a.array, b.array, atol=1e-5) for a, b in results)


def test_what_onnxruntime_does_not_run_is_written_with_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mo.export(nn.ReLU(), mn.ones(2, 2, dtype=mn.bfloat16), tmp_path / "m.onnx")  # which it has no kernel for
    words = ["convert", str(tmp_path / "m.onnx"), "--opset", "14", "-o", str(tmp_path / "n.onnx")]
    assert cli.main(words) == 0
    text = capsys.readouterr().out
    assert "note: the file was not compared with the model: onnxruntime" in text
    assert "the same results" not in text
    assert cli.main([*words, "--no-verify"]) == 0
    assert "note" not in capsys.readouterr().out
    assert (tmp_path / "n.onnx").exists()


def test_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mo.export(nn.Linear(64, 64), mn.ones(2, 64), tmp_path / "m.onnx")
    words = ["convert", str(tmp_path / "m.onnx"), "--opset", "13", "-o", str(tmp_path / "n.onnx")]
    assert cli.main([*words, "--fix-shape", "x=3,64", "--external-data"]) == 0
    assert (tmp_path / "n.onnx.data").exists()
    assert onnx.load(tmp_path / "n.onnx").graph.input[0].type.tensor_type.shape.dim[0].dim_value == 3
    assert cli.main([*words, "--fix-shape", "batch=5"]) == 0
    assert onnx.load(tmp_path / "n.onnx").graph.input[0].type.tensor_type.shape.dim[0].dim_value == 5
    for size in ("batch=5", "x=3,64"):  # a size to compare at fixes nothing
        assert cli.main([*words, "--shape", size]) == 0
        assert onnx.load(tmp_path / "n.onnx").graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    capsys.readouterr()
    assert cli.main([*words, "--shape", "batch=5", "--shape", "x=6,64"]) == 1
    assert "axis 0 of 'x' has length 6, but the axis name 'batch' has length 5" in capsys.readouterr().err
    for wrong in ("x=3,a", "3,64", "x=-1"):
        assert cli.main([*words, "--shape", wrong]) == 1
        assert f"--shape {wrong}: expected INPUT=N,N" in capsys.readouterr().err
    assert cli.main([*words, "--max-bytes", "1000"]) == 1
    assert "more than max_bytes=1000" in capsys.readouterr().err


def test_errors_name_the_command_once_and_write_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mo.export(nn.ReLU(), mn.ones(2, 2), tmp_path / "m.onnx")
    assert cli.main(["convert", str(tmp_path / "m.onnx"), "--opset", "5"]) == 1
    assert capsys.readouterr().err.startswith("minorm convert: opset_version is 5; expected an int from 7 to ")
    for out in ("new.onnx/", "m.onnx/"):
        assert cli.main(["convert", str(tmp_path / "m.onnx"), "--opset", "17", "--out", f"{tmp_path}/{out}"]) == 1
        expected = f"minorm convert: '{tmp_path}/{out}' names a folder; expected a file name\n"
        assert capsys.readouterr().err == expected
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]
