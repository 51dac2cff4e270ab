"""`minorm export`: both kinds of checkpoint, the opset asked for, and files that are neither."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import minorm as mn
from minorm import cli
from minorm.cli import sources

onnx = pytest.importorskip("onnx")
pytest.importorskip("sklearn")
pytest.importorskip("rich")


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    assert cli.main(["train", "--epochs", "1", "--out", str(folder)]) == 0
    return folder


@pytest.mark.parametrize("opset", [None, 13, 17])
def test_a_training_checkpoint(
    run_folder: Path, tmp_path: Path, opset: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "model.onnx"
    words = ["export", str(run_folder), "--out", str(out)]
    assert cli.main(words + ([] if opset is None else ["--opset", str(opset)])) == 0
    model = onnx.load(out)
    assert model.opset_import[0].version == (opset or 17)
    assert [node.op_type for node in model.graph.node].count("BatchNormalization") == 3
    said = capsys.readouterr().out
    assert re.search(r"checker: passed; onnxruntime .* with x \(2, 1, 8, 8\); x \(1, .*; x \(3, ", said)
    reason = "opset 17: the lowest opset from 17 on that has every operator and splits no normalization"
    assert (reason in said) == (opset is None)


def test_the_form_that_training_goes_on_from(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "model.onnx"
    assert cli.main(["export", str(run_folder), "--out", str(out), "--training"]) == 0
    assert "; x (4, 1, 8, 8); x (3, 1, 8, 8)" in capsys.readouterr().out  # a single image has no batch statistics
    proto, model = onnx.load(out), mn.onnx.load(out)
    assert model.training
    updated = {name.removesuffix(".updated") for name in (entry.name for entry in proto.graph.output[1:])}
    assert updated == {name for name, _ in model.named_buffers()}
    assert len(updated) == 6


def test_a_file_that_says_no_model_and_a_wrong_opset(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mn.save({"w": mn.zeros(3)}, tmp_path / "w.safetensors")
    assert cli.main(["export", str(tmp_path / "w.safetensors"), "--out", str(tmp_path / "w.onnx")]) == 1
    assert "does not say which model it holds" in capsys.readouterr().err
    mn.checkpoint.save_training(tmp_path / "t.safetensors", epoch=1)
    assert cli.main(["export", str(tmp_path / "t.safetensors"), "--out", str(tmp_path / "w.onnx")]) == 1
    assert "there is no model_facts in it" in capsys.readouterr().err
    assert cli.main(["export", str(run_folder), "--opset", "3", "--out", str(tmp_path / "w.onnx")]) == 1
    assert "opset_version is 3" in capsys.readouterr().err
    assert not (tmp_path / "w.onnx").exists()


def test_a_file_that_is_wrong_at_another_batch_is_not_written(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    load = sources.open_checkpoint

    def fixed(path: str, instead: str | None = None) -> sources.Source:
        source = load(path, instead)
        return replace(source, model=lambda x: source.model(x) * (2 if x.shape[0] == 3 else 1))

    monkeypatch.setattr(sources, "open_checkpoint", fixed)
    assert cli.main(["export", str(run_folder), "--out", str(tmp_path / "model.onnx")]) == 1
    assert re.search(r"with x \(3, 1, 8, 8\), output 'output' differs by .* in node 'Mul'", capsys.readouterr().err)
    assert not list(tmp_path.iterdir())
