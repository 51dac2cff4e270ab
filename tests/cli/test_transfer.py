"""`minorm train --init`: a network that knows some textures learns others from few pictures, by the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import cli, nn
from minorm.checkpoint import load_training
from minorm.training import Run, Settings
from minorm.training.run import BEST, CHECKPOINT
from tests.training import stripes

Image = pytest.importorskip("PIL.Image")
mo = pytest.importorskip("minorm.onnx")


def pretrained(root: Path, seed: int, images: int, epochs: int) -> None:
    """root/net.onnx, which knows six textures; root/few has four others; root/net.py builds the same network."""
    stripes.write(root / "many", stripes.FIRST, images, 5, seed)
    stripes.write(root / "few", stripes.OTHERS, 4, 30, seed + 100)
    (root / "net.py").write_text(stripes.NETWORK)
    settings = Settings(data="folder", model=f"{root}/net.py:build", image_size=16, epochs=epochs, batch_size=16)
    run = Run(settings, str(root / "known"), str(root / "many"))
    run.fit()
    assert cli.main(["export", str(root / "known"), "--trust", "-o", str(root / "net.onnx")]) == 0


def accuracy(folder: Path) -> float:
    found: float = json.loads((folder / "outcome.json").read_text())["accuracy"]
    return found


def train(root: Path, out: str, *options: str, epochs: int = 8) -> Path:
    """A run on the four textures."""
    line = ["train", "--path", str(root / "few"), "--batch-size", "4", "--epochs", str(epochs), "-o", str(root / out)]
    assert cli.main([*line, "--hflip", "0", "--crop-padding", "0", *options]) == 0
    return root / out


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("transfer")
    pretrained(found, 0, images=50, epochs=6)
    return found


@pytest.fixture(scope="module")
def tuned(root: Path) -> Path:
    return train(root, "tuned", "--init", str(root / "net.onnx"), "--freeze", "4")


def test_a_pretrained_network_needs_few_pictures(root: Path, tuned: Path) -> None:
    scratch = train(root, "scratch", "--model", f"{root}/net.py:build", "--image-size", "16")
    assert accuracy(tuned) >= accuracy(scratch) + 0.1


@pytest.mark.slow
def test_by_ten_points_in_the_mean_of_two_seeds(tmp_path: Path) -> None:
    gains = []
    for seed in (1, 2):
        root = tmp_path / str(seed)
        pretrained(root, seed, images=80, epochs=10)
        given = ("--seed", str(seed), "--image-size", "16")
        scratch = train(root, "scratch", "--model", f"{root}/net.py:build", *given, epochs=15)
        tuned = train(root, "tuned", "--init", str(root / "net.onnx"), "--freeze", "5", *given, epochs=15)
        gains.append(accuracy(tuned) - accuracy(scratch))
    assert np.mean(gains) >= 0.1


def test_what_is_said_at_the_beginning(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(root, "said", "--init", str(root / "net.onnx"), "--freeze", "1", "--layer-decay", "0.5", epochs=2)
    said = capsys.readouterr().out
    for line in """
the head '11', a Gemm of 32 numbers for 6 classes, is initialized anew
takes pictures of 3 x 16 x 16 (the size of the file), scaled by mean 0.485,0.456,0.406 and std 0.229,0.224,0.225
freeze 1: only the head is trained for 1 of 2 epochs; then all layers are trained, and the learning rate begins anew
layer-decay 0.5: the largest learning rate is 0.05 for the head, and 0.00625 for the first layers, in 4 groups
""".strip().splitlines():
        assert line in said.replace("\n", " "), line


def test_the_folder_needs_no_other_file(root: Path, tuned: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone"
    shutil.copytree(tuned, alone)
    hidden = root / "net.onnx"
    hidden.rename(tmp_path / "elsewhere.onnx")
    try:
        picture = str(next((root / "few/val/flat").iterdir()))
        assert cli.main(["evaluate", str(alone)]) == 0
        assert cli.main(["predict", str(alone), picture]) == 0
        assert cli.main(["doctor", str(alone)]) in (0, 1)
        assert cli.main(["export", str(alone), "-o", str(tmp_path / "again.onnx")]) == 0
        assert cli.main(["train", "--resume", "--epochs", "9", "-o", str(alone)]) == 0
        assert cli.main(["train", "--path", str(root / "few"), "--init", str(alone), "--epochs", "1",
                         "-o", str(tmp_path / "next")]) == 0  # fmt: skip
    finally:
        (tmp_path / "elsewhere.onnx").rename(hidden)
    assert (alone / "net.onnx").read_bytes() == hidden.read_bytes()


def test_an_exported_run_computes_what_the_run_does(root: Path, tuned: Path, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    path = str(tmp_path / "out.onnx")
    assert cli.main(["export", str(tuned), "-o", path]) == 0
    run = Run.resume(str(tuned))
    run.model.load_state_dict(load_training(str(tuned / BEST))["model"])
    x = np.random.default_rng(0).random((3, 3, 16, 16), np.float32)
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (logits,) = session.run(None, {session.get_inputs()[0].name: x})
    assert np.allclose(logits, run.model.eval()(mn.tensor(x)).detach().numpy(), atol=1e-4)
    assert mo.load(path).metadata["classes"] == json.dumps(sorted(stripes.OTHERS))


@pytest.mark.parametrize("damage", ["missing", "other", "link"])
def test_a_copy_that_is_not_the_one_is_not_read(
    root: Path, tuned: Path, tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(tuned, folder)
    copy = folder / "net.onnx"
    copy.unlink()
    if damage == "other":
        copy.write_bytes((root / "net.onnx").read_bytes() + b"\x32\x01x")  # a comment: still a model
    elif damage == "link":
        copy.symlink_to(root / "net.onnx")
    assert cli.main(["predict", str(folder), "x.png"]) == 1
    said = {"missing": "is not in the same folder; put the graph there, or give its path: --model FILE.onnx",
            "other": "its SHA-256 is", "link": "is a link; expected a regular file"}  # fmt: skip
    assert said[damage] in capsys.readouterr().err
    picture = str(next((root / "few/val/flat").iterdir()))
    assert cli.main(["predict", str(folder), picture, "--model", str(root / "net.onnx")]) == 0


def test_a_run_says_its_own_model_and_code_runs_with_consent_alone(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["train", "--path", str(root / "few"), "--init", str(root / "known"), "--epochs", "1", "-o"]
    assert cli.main([*line, str(tmp_path / "no")]) == 2
    assert "built by code in the same folder" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()
    assert cli.main([*line, str(tmp_path / "yes"), "--trust"]) == 0
    found = load_training(str(tmp_path / "yes" / CHECKPOINT))
    assert found["model_facts"]["name"] == "net.py:build"
    assert found["settings"]["image_size"] == 16
    assert (tmp_path / "yes/net.py").read_text() == stripes.NETWORK


def test_a_file_without_a_head(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "features.onnx"
    mo.export(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), mn.zeros(1, 3, 16, 16), path)
    assert cli.main(["train", "--path", str(root / "few"), "--init", str(path), "-o", str(tmp_path / "run")]) == 1
    said: Any = capsys.readouterr().err
    assert "features.onnx: no head was found; a head is the last Gemm, MatMul or 1x1 Conv with weights" in said
    assert "the last one, '0', is a Conv of (3, 3)" in said
    assert not (tmp_path / "run").exists()
