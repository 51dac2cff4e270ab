"""`minorm demo`: every check passes on a real run, and each failure is named and exits with 1."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import checkpoint, cli
from minorm.cli import demo

for package in ("rich", "matplotlib", "sklearn", "onnx", "onnxruntime"):
    pytest.importorskip(package)


def test_the_demo_passes_its_checks_and_writes_its_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["demo", "--seeds", "1", "--out", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "FAILED" not in text
    assert "All checks passed." in text
    for words in (
        "test accuracy",
        "same bits",
        "ONNX checker",
        "argmax agreement",
        "largest logit difference",
        "training took",
    ):
        assert words in text
    for name in ("model.safetensors", "model.onnx", "training.png"):
        assert (tmp_path / name).stat().st_size > 1000
        assert str(tmp_path / name) in text
    assert (tmp_path / "training.png").read_bytes().startswith(b"\x89PNG")
    facts = json.loads(checkpoint.load_metadata(tmp_path / "model.safetensors")["minorm.model"])
    assert facts["name"] == "digits"


def test_too_little_training_fails_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["demo", "--seeds", "2", "--epochs", "1", "--out", str(tmp_path)]) == 1
    assert "Failed: test accuracy, mean of 2 seeds." in capsys.readouterr().out


def test_a_broken_export_fails_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import minorm.onnx

    words = ["demo", "--seeds", "1", "--epochs", "1", "--out", str(tmp_path)]

    export = minorm.onnx.export

    def other_weights(model: Any, *args: Any) -> Any:
        head = list(model.parameters())[-1]
        head.data += np.float32(1)  # the same argmax, other logits
        exported = export(model, *args)
        head.data -= np.float32(1)
        return exported

    monkeypatch.setattr(minorm.onnx, "export", other_weights)
    assert cli.main(words) == 1
    assert "Failed: test accuracy; largest logit difference." in capsys.readouterr().out

    def broken(*args: Any) -> Any:
        raise RuntimeError("no such operator")

    monkeypatch.setattr(minorm.onnx, "export", broken)
    assert cli.main(words) == 1
    text = capsys.readouterr().out
    assert "RuntimeError: no such operator" in text
    assert "Failed: test accuracy; ONNX." in text


def test_the_same_seed_gives_the_same_file(tmp_path: Path) -> None:
    for name in ("a", "b"):
        cli.main(["demo", "--seeds", "1", "--epochs", "1", "--out", str(tmp_path / name)])
    assert (tmp_path / "a" / "model.safetensors").read_bytes() == (tmp_path / "b" / "model.safetensors").read_bytes()


def test_no_folder_is_left_where_training_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: Any) -> Any:
        raise ValueError("no digits here")

    monkeypatch.setattr(demo, "_train", fails)
    assert cli.main(["demo", "--seeds", "1", "--out", str(tmp_path / "a" / "b")]) == 1
    assert "no digits here" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_wrong_numbers_are_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["demo", "--seeds", "0"]) == 1
    assert "expected at least 1" in capsys.readouterr().err
    assert mn.get_num_threads() >= 1
