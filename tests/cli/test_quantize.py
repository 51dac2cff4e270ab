"""`minorm quantize`: an int8 file without training, with a report, beside onnxruntime's own quantizer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import cli, nn
from minorm.training import Run, Settings
from tests.onnx.runtime import expected

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import minorm.onnx as mo  # noqa: E402  after importorskip


def images(n: int = 96, seed: int = 0) -> tuple[Any, Any]:
    """Squares in one of four corners, the class, under noise."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 4
    x = rng.uniform(0, 0.4, (n, 1, 8, 8)).astype(np.float32)
    for i, label in enumerate(labels):
        x[i, 0, 4 * (label // 2) : 4 * (label // 2) + 4, 4 * (label % 2) : 4 * (label % 2) + 4] += 0.6
    return x, labels


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("images") / "images.npz"
    (x, y), (u, v) = images(), images(64, 1)
    np.savez(path, x_train=x, y_train=y, x_test=u, y_test=v)
    return path


@pytest.fixture(scope="module")
def run(arrays: Path) -> Path:
    """A trained float model."""
    out = arrays.parent / "run"
    settings = Settings(data="numpy", model="digits", epochs=3, batch_size=16, label_smoothing=0)
    Run(settings, str(out), str(arrays)).fit()
    return out


def report(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capsys.readouterr()
    assert cli.main(["quantize", *words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_run_becomes_int8(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "int8.onnx"
    found = report(capsys, str(run), "-o", str(out), "--plot", str(tmp_path / "noise.png"))
    assert found["score"] == "accuracy"
    assert found["float"] - found["int8"] <= 0.05
    assert [row["name"] for row in found["layers"]] == ["0.weight", "3.weight", "7.weight", "12.weight"]
    assert all(row["weight"] > 30 and row["output"] > 20 for row in found["layers"])
    assert found["fake_quantization"] == {"values": 64 * 4, "differ": 0}
    assert found["bytes"]["int8"] == out.stat().st_size < 0.4 * found["bytes"]["float"]
    assert found["onnxruntime"]["same_class_exact"] == found["images"] == 64
    assert (tmp_path / "noise.png").stat().st_size > 1000
    kinds = {tensor.name: tensor.data_type for tensor in onnx.load(out).graph.initializer}
    assert kinds["0_weight"] == onnx.TensorProto.INT8


def test_a_files_metadata_goes_along_and_the_table_is_printed(
    run: Path, arrays: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, out = tmp_path / "model.onnx", tmp_path / "int8.onnx"
    assert cli.main(["export", str(run), "-o", str(model)]) == 0
    assert cli.main(["quantize", str(model), "--calibrate", str(arrays), "-o", str(out), "--opset", "13"]) == 0
    text = capsys.readouterr().out
    assert "accuracy: float " in text
    assert "onnxruntime: float " in text
    loaded = mo.load(out)
    assert json.loads(loaded.metadata["classes"]) == ["0", "1", "2", "3"]
    assert cli.main(["evaluate", str(out), "--data", "numpy", "--path", str(arrays)]) == 0


def test_pictures_without_labels_are_scored_by_agreement(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pictures = pytest.importorskip("PIL.Image")
    x, labels = images(12, 3)
    for i, label in enumerate(labels):
        for folder in ("plain", f"classes/{label}"):
            (tmp_path / folder).mkdir(parents=True, exist_ok=True)
            pictures.fromarray((255 * x[i, 0]).clip(0, 255).astype(np.uint8)).save(tmp_path / folder / f"{i}.png")
    (tmp_path / "plain" / "broken.png").write_bytes(b"no picture")
    for folder, kind in (("plain", "agreement"), ("classes", "accuracy")):
        found = report(capsys, str(run), "--calibrate", str(tmp_path / folder), "-o", str(tmp_path / "int8.onnx"))
        assert (found["score"], found["images"]) == (kind, 12)
        assert found["int8"] >= 0.9


def test_it_is_as_good_as_onnxruntimes_own_quantizer(
    run: Path, arrays: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quantization = pytest.importorskip("onnxruntime.quantization")
    model, ours, theirs = (tmp_path / f"{name}.onnx" for name in ("model", "ours", "theirs"))
    assert cli.main(["export", str(run), "-o", str(model)]) == 0
    assert cli.main(["quantize", str(model), "--calibrate", str(arrays), "-o", str(ours)]) == 0
    x = images(64, 1)[0]
    stored = onnx.load(model)
    found = json.loads({entry.key: entry.value for entry in stored.metadata_props}["preprocessing"])
    x = (x - np.float32(found["mean"][0])) / np.float32(found["std"][0])
    name = stored.graph.input[0].name

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.batches = iter([{name: x[:32]}, {name: x[32:]}])

        def get_next(self) -> Any:
            return next(self.batches, None)

    quantization.quantize_static(
        str(model), str(theirs), Reader(), per_channel=True, activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QInt8,
    )  # fmt: skip

    def answers(path: Path) -> Any:
        return expected(onnx.load(path), x, exact=True)[0].astype(np.float64)

    wanted = answers(model)
    errors = [float(((answers(path) - wanted) ** 2).sum()) for path in (ours, theirs)]
    assert errors[0] <= 1.5 * errors[1]


def test_what_has_no_integers_stays_float_and_is_named(
    arrays: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.up, self.head = nn.Conv2d(1, 2, 3), nn.ConvTranspose2d(2, 2, 2), nn.Linear(98, 4)

        def forward(self, x: mn.Tensor) -> mn.Tensor:
            return self.head(self.up(self.conv(x)).flatten(1))

    mo.export(Net(), mn.randn(2, 1, 8, 8), tmp_path / "net.onnx")
    found = report(
        capsys, str(tmp_path / "net.onnx"), "--calibrate", str(arrays), "-o", str(tmp_path / "int8.onnx"),
        "--observer", "minmax", "--images", "32",
    )  # fmt: skip
    assert found["stay_float"] == ["up.weight"]
    assert [row["name"] for row in found["layers"]] == ["conv.weight", "head.weight"]


def net() -> nn.Module:
    mn.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 4)).eval()


def test_weights_in_another_file(arrays: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = mo.export(net(), mn.randn(2, 1, 8, 8))
    onnx.save(model, tmp_path / "net.onnx", save_as_external_data=True, location="net.bin", size_threshold=0)
    words = "--calibrate", str(arrays), "-o", str(tmp_path / "int8.onnx")
    found = report(capsys, str(tmp_path / "net.onnx"), *words)
    assert found["bytes"]["float"] > 4 * (36 + 144 * 4)  # which the weights alone take
    assert found["onnxruntime"]["float_ms"] > 0


@pytest.mark.parametrize("length", [1, 5])
@pytest.mark.filterwarnings("ignore:export. the batch size is fixed")
def test_a_file_that_fixes_its_batch_gets_batches_of_that_length(
    arrays: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], length: int
) -> None:
    model = mo.export(net(), mn.randn(2, 1, 8, 8))
    for entry in (*model.graph.input, *model.graph.output):
        axis = entry.type.tensor_type.shape.dim[0]
        axis.Clear()
        axis.dim_value = length
    onnx.save(model, tmp_path / "net.onnx")
    words = str(tmp_path / "net.onnx"), "--calibrate", str(arrays), "-o", str(tmp_path / "int8.onnx"), "--images"
    found = report(capsys, *words, "13")
    assert found["images"] == 13 // length * length
    assert found["onnxruntime"]["same_class_exact"] == found["images"]
    if length == 5:
        assert cli.main(["quantize", *words, "4"]) == 1
        assert "takes batches of 5 images, but there are only 4 images; expected at least 5" in capsys.readouterr().err


def test_json_has_no_infinity(arrays: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Weights of whole steps lose nothing: an infinite number of decibels."""
    model = net()
    model[4].weight.set_array(np.where(np.arange(576).reshape(4, 144) % 3, 127, -127).astype(np.float32) / 128)
    mo.export(model, mn.randn(2, 1, 8, 8), tmp_path / "net.onnx")
    words = [str(tmp_path / "net.onnx"), "--calibrate", str(arrays), "-o", str(tmp_path / "int8.onnx")]
    assert cli.main(["quantize", *words, "--json"]) == 0
    text = capsys.readouterr().out

    def refused(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    assert json.loads(text, parse_constant=refused)["layers"][1]["weight"] is None
    assert cli.main(["quantize", *words]) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--opset", "12"], "expected 13 or more"),
        (["--images", "0"], "--images 0: expected at least 1"),
        (["--plot", "x.txt"], "expected a name that ends in .png, .svg or .pdf"),
        (["--calibrate", "nowhere"], "--calibrate nowhere is no folder"),
        (["--out", "x.png", "--plot", "x.png"], "x.png is named twice; expected a file for each option"),
    ],
)
def test_wrong_words_are_one_line(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert cli.main(["quantize", str(run), "-o", str(tmp_path / "int8.onnx"), *words]) in (1, 2)
    assert said in capsys.readouterr().err
    assert not (tmp_path / "int8.onnx").exists()


def test_a_model_without_weights_is_refused(tmp_path: Path, arrays: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mo.export(nn.Sequential(nn.Flatten(), nn.ReLU()), mn.randn(2, 1, 8, 8), tmp_path / "relu.onnx")
    words = ["quantize", str(tmp_path / "relu.onnx"), "--calibrate", str(arrays), "-o", str(tmp_path / "int8.onnx")]
    assert cli.main(words) == 1
    assert "has no convolution and no linear layer to quantize" in capsys.readouterr().err
