"""Files describe their model and its pictures: a run completely, an ONNX file by its declarations, others not at
all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import minorm as mn
from minorm import models, nn
from minorm.data import ArrayDataset
from minorm.training import Run, Settings
from minorm.training.data.preparing import Preprocessing
from minorm.training.model.pretrained import Pretrained, said


def test_a_run(tmp_path: Path) -> None:
    digits = ArrayDataset(mn.rand(20, 1, 8, 8), mn.arange(20) % 10)
    Run(Settings(epochs=1, batch_size=10), str(tmp_path), sets=(digits, digits)).fit()
    found = Pretrained.read(str(tmp_path))
    assert (found.model, found.graph) == ("digits", None)
    assert found.form("digits") == {"mean": "0.305", "std": "0.376"}
    assert found.form("folder") == {"image_size": 8}, "a folder is in colour, and the run's images have one channel"
    assert found.form("cifar10") == {}


@pytest.mark.parametrize("free", [True, False])
def test_an_onnx_file_without_metadata(tmp_path: Path, free: bool) -> None:
    onnx = pytest.importorskip("minorm.onnx")
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    path = str(tmp_path / "net.onnx")
    onnx.export(network, mn.zeros(1, 3, 16, 16), path, dynamic_axes={"x": {2: "h", 3: "w"}} if free else None)
    found = Pretrained.read(path)
    assert found.model == path
    assert found.form("folder") == ({} if free else {"image_size": 16})
    text = found.sentence(Preprocessing(["a", "b"], [0.5] * 3, [0.2] * 3, 16, 3), {})
    assert text == (
        f"takes pictures of 3 x 16 x 16 (the size of {'the images' if free else 'the file'}), scaled by mean "
        "0.5,0.5,0.5 and std 0.2,0.2,0.2 (the usual values, because the file has none); to change this, use "
        "--image-size, --mean, --std and --pixel-range"
    )


@pytest.mark.parametrize("ending", ["safetensors", "npz", "pt"])
def test_weights_alone_say_nothing(tmp_path: Path, ending: str) -> None:
    path, state = str(tmp_path / f"w.{ending}"), models.digits_cnn().state_dict()
    if ending == "npz":
        np.savez(path, **{name: value.numpy() for name, value in state.items()})
    elif ending == "pt":
        torch = pytest.importorskip("torch")
        torch.save({name: torch.tensor(value.numpy()) for name, value in state.items()}, path)
    else:
        mn.save(state, path)
    found = Pretrained.read(path)
    assert (found.model, found.preprocessing, found.form("folder")) == (None, None, {})


def test_numbers_as_a_setting_has_them_are_read_back_to_the_bit() -> None:
    values = [0.1 + 0.2, 1 / 255, 0.5, 1e-7]
    assert [float(text) for text in said(values).split(",")] == values
    assert said([0.485, 0.5]) == "0.485,0.5"
