"""A run with `qat`: it resumes to the same bits, and its integers are as accurate as floats."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import cli
from minorm import quantization as Q
from minorm.training import NonFiniteLoss, Run, Settings, evaluate
from minorm.training.files.run_folder import CHECKPOINT


def squares(n: int = 96, seed: int = 0) -> mn.data.ArrayDataset:
    """A bright square in one of four corners, under noise."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 4
    x = rng.uniform(0, 0.5, (n, 1, 8, 8)).astype(np.float32)
    for i, label in enumerate(labels):
        x[i, 0, 4 * (label // 2) : 4 * (label // 2) + 4, 4 * (label % 2) : 4 * (label % 2) + 4] += 0.5
    return mn.data.ArrayDataset(x, labels)


SETS = squares(), squares(64, 1)


def settings(**others: object) -> Settings:
    return Settings(data="numpy", model="digits", epochs=4, batch_size=16, **others)  # type: ignore[arg-type]


def test_it_resumes_to_the_same_bits(tmp_path: Path) -> None:
    whole = Run(settings(qat="uint8"), str(tmp_path / "whole"), sets=SETS)
    whole.fit()

    class Stop(Exception):
        pass

    def stop(row: object) -> None:
        raise Stop

    for epochs in (1, 3):  # before and after the freeze
        out = str(tmp_path / str(epochs))
        first = Run(settings(qat="uint8"), out, sets=SETS)
        rows = iter(range(1, 5))
        with pytest.raises(Stop):
            first.fit(after_epoch=lambda row, rows=rows, epochs=epochs: stop(row) if next(rows) == epochs else None)
        Run.resume(out, sets=SETS).fit()
        assert (tmp_path / str(epochs) / "log.csv").read_bytes() == (tmp_path / "whole" / "log.csv").read_bytes()
    state, other = whole.model.state_dict(), Run.resume(str(tmp_path / "3"), sets=SETS).model.state_dict()
    for key, value in state.items():
        np.testing.assert_array_equal(value.array, other[key].array)
    assert state["bn_frozen"].item() == 1


@pytest.mark.parametrize("activation", ["uint8", "int8"])
def test_integers_are_as_accurate_as_floats(activation: str) -> None:
    scores = {}
    for qat in ("none", activation):
        run = Run(settings(qat=qat), sets=SETS)
        run.fit()
        model = Q.convert(run.model) if isinstance(run.model, Q.QATModel) else run.model.eval()
        scores[qat] = evaluate(model, run.val_loader, run.loss_function).accuracy
    assert scores[activation] >= scores["none"] - 0.005


def test_it_begins_with_the_weights_of_a_float_run(tmp_path: Path) -> None:
    Run(settings(), str(tmp_path / "float"), sets=SETS).fit()
    run = Run(settings(qat="uint8"), sets=SETS, init=str(tmp_path / "float"))
    assert run.initial is not None
    assert not run.initial.missing
    run.fit()
    assert run.history[0]["val_accuracy"] > 0.9


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_loss_that_is_not_finite_is_said_as_in_floats() -> None:
    with pytest.raises(NonFiniteLoss, match="epoch 1: the loss is nan"):
        Run(settings(qat="uint8", lr=1e12), sets=SETS).fit()


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ({"qat": "int4"}, "qat is 'int4'; expected one of none, uint8, int8"),
        ({"qat": "int8", "dtype": "bfloat16"}, "dtype is 'bfloat16'; expected 'float32' with qat='int8'"),
        ({"qat": "int8", "ranks": 2}, "ranks is 2; expected 1 with qat='int8'"),
        ({"qat": "int8", "ema": 0.9}, "ema is 0.9; expected 0 with qat='int8'"),
    ],
)
def test_settings_that_do_not_go_together_are_named(others: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        settings(**others)


def test_the_command_trains_evaluates_and_writes_integers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    arrays, out = tmp_path / "images.npz", tmp_path / "run"
    (x, y), (u, v) = (part.arrays for part in SETS)
    np.savez(arrays, x_train=x, y_train=y, x_test=u, y_test=v)
    words = ["train", "--qat", "int8", "--path", str(arrays), "--model", "digits", "--epochs", "2"]
    assert cli.main([*words, "--out", str(out)]) == 0
    assert (out / CHECKPOINT).exists()
    assert cli.main(["evaluate", str(out), "--json"]) == 0
    capsys.readouterr()
    assert cli.main(["doctor", str(out), "--json"]) in (0, 1)
    assert list(json.loads(capsys.readouterr().out)["folding_gap"]) == ["1", "4", "8"]
    assert cli.main(["doctor", str(out), "--fix", "freeze", "--out", str(tmp_path / "fixed")]) == 2
    capsys.readouterr()
    assert cli.main(["quantize", str(out), "--out", str(tmp_path / "int8.onnx")]) == 2
    assert "is trained for int8; expected a float model" in capsys.readouterr().err
    assert cli.main(["export", str(out), "--out", str(tmp_path / "int8.onnx")]) == 0
    kinds = {tensor.name: tensor.data_type for tensor in onnx.load(tmp_path / "int8.onnx").graph.initializer}
    assert kinds["0_weight"] == kinds["0_zero_point"] == onnx.TensorProto.INT8
    assert kinds["0_bias"] == onnx.TensorProto.INT32


def shapes(n: int, size: int, channels: int, seed: int) -> tuple[Any, Any]:
    """Ten kinds of garments, roughly: discs, rings, bars, crosses and squares, light on dark and dark on light."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 10
    rows, columns = np.mgrid[0:size, 0:size] / size - 0.5
    images = []
    for label in labels:
        y, x = (rows + rng.uniform(-0.1, 0.1), columns + rng.uniform(-0.1, 0.1))
        radius = np.hypot(y, x)
        kinds = (radius < 0.3, (radius > 0.2) & (radius < 0.35), np.abs(y) < 0.12,
                 (np.abs(y) < 0.08) | (np.abs(x) < 0.08), np.maximum(np.abs(y), np.abs(x)) < 0.25)  # fmt: skip
        shape = kinds[label // 2].astype(np.float64)
        shape = 0.2 + 0.6 * (shape if label % 2 else 1 - shape)
        images.append(shape + rng.normal(0, 0.08, (channels, size, size)))
    return np.clip(np.stack(images), 0, 1).astype(np.float32), labels


@pytest.mark.slow
def test_lenet_on_images_like_fashion_mnist() -> None:
    sets = tuple(mn.data.ArrayDataset(*shapes(n, 28, 1, seed)) for n, seed in ((600, 0), (400, 1)))
    scores = {}
    for qat in ("none", "uint8"):
        run = Run(Settings(data="numpy", model="lenet", epochs=4, batch_size=32, qat=qat), sets=sets)
        run.fit()
        model = Q.convert(run.model) if isinstance(run.model, Q.QATModel) else run.model.eval()
        scores[qat] = evaluate(model, run.val_loader, run.loss_function).accuracy
    assert scores["none"] > 0.95
    assert scores["uint8"] >= scores["none"] - 0.005


@pytest.mark.slow
def test_resnet20_on_a_folder_of_pictures(tmp_path: Path) -> None:
    """From a float run, trained on, as int8 in onnxruntime: within 0.5 %, and the same integers for every picture."""
    pictures = pytest.importorskip("PIL.Image")
    runtime = pytest.importorskip("onnxruntime")
    for i, (image, label) in enumerate(zip(*shapes(400, 32, 3, 0), strict=True)):
        folder = tmp_path / "pictures" / f"kind{label}"
        folder.mkdir(parents=True, exist_ok=True)
        pictures.fromarray((255 * image).round().astype(np.uint8).transpose(1, 2, 0)).save(folder / f"{i}.png")
    path = str(tmp_path / "pictures")
    settings = Settings(data="folder", model="resnet20", image_size=32, batch_size=32, epochs=5)
    plain = Run(settings, str(tmp_path / "float"), path)
    plain.fit()
    run = Run(replace(settings, epochs=3, lr=0.01, qat="uint8"), None, path, init=str(tmp_path / "float"))
    run.fit()
    assert isinstance(run.model, Q.QATModel)
    int8 = Q.convert(run.model)
    found = evaluate(int8, run.val_loader, run.loss_function).accuracy
    wanted = evaluate(plain.model, plain.val_loader, plain.loss_function).accuracy
    assert found is not None
    assert wanted is not None
    assert wanted > 0.9
    assert found >= wanted - 0.005
    batches = [x for x, _ in run.val_loader]
    mn.onnx.export(int8, batches[0], tmp_path / "int8.onnx")
    options = runtime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = runtime.InferenceSession(str(tmp_path / "int8.onnx"), options, providers=["CPUExecutionProvider"])
    for x in batches:
        theirs = session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]
        np.testing.assert_array_equal(int8(x).array, theirs)
