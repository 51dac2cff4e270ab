"""Options of training recipes on the command line: augmentations, folds, the focal loss, test-time augmentation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import cli
from minorm.checkpoint import load_training
from minorm.cli import sources
from minorm.training import TTA, Run, evaluate
from minorm.training.data.preparing import load_data, loaders
from minorm.training.run import CHECKPOINT

pytest.importorskip("sklearn")

CONFIG = """
loss = "focal"
vflip = 0.1
rotate = 10
perspective = 0.2
trivial-augment = true
"""


def train(out: Path, *options: str) -> int:
    return cli.main(["train", "--data", "digits", "--batch-size", "128", "-o", str(out), *options])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("recipes") / "run"
    assert train(out, "--epochs", "1", "--fold", "2/5") == 0
    return out


def test_options_are_settings(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(CONFIG)
    options = ("--config", str(tmp_path / "run.toml"), "--epochs", "1", "--rand-augment", "--blur", "0.5")
    assert train(tmp_path / "run", *options) == 0
    settings = Run.settings_of(str(tmp_path / "run"))
    assert (settings.loss, settings.rand_augment, settings.trivial_augment) == ("focal", "2,9", True)
    assert (settings.vflip, settings.rotate, settings.perspective, settings.blur) == (0.1, 10.0, 0.2, 0.5)


def test_a_fold_validates_what_the_others_train_on(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = load_training(str(run / CHECKPOINT))["images"]
    assert (found["train"]["number"], found["validation"]["number"]) == (1437, 360)
    assert cli.main(["evaluate", str(run), "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["images"] == 360
    assert scores["accuracy"] == pytest.approx(load_training(str(run / CHECKPOINT))["history"][0]["val_accuracy"])
    assert cli.main(["train", "--resume", "--epochs", "2", "-o", str(run), "--fold", "3/5"]) == 1
    assert "fold is '3/5'; expected '2/5', as in the run in" in capsys.readouterr().err


def test_a_fold_says_how_to_run_all(tmp_path: Path, monkeypatch: Any, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", "--data", "digits", "--epochs", "1", "--fold", "1/3"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert (
        "validation is on fold 1 of 3; for all folds: for i in $(seq 3); do minorm train ... --fold $i/3; done" in said
    )
    assert (tmp_path / "runs" / "digits-digits-fold1of3" / CHECKPOINT).exists()
    assert cli.main(["train", "--data", "digits", "--fold", "4/3"]) in (1, 2)
    assert "fold is '4/3'; expected" in capsys.readouterr().err


def test_tta_is_the_mean_over_views(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8)).astype(np.uint8)
    for name, there in (("a", pixels), ("b", pixels[:, ::-1])):
        image.fromarray(np.ascontiguousarray(there)).save(tmp_path / f"{name}.png")
    pictures = [str(tmp_path / "a.png"), str(tmp_path / "b.png")]
    plain, asked = (predicted(run, pictures, capsys, *options) for options in ((), ("--tta", "hflip")))
    assert asked[0]["probability"] == pytest.approx(asked[1]["probability"], abs=2e-6), "the two views of both"
    assert plain[0]["probability"] != plain[1]["probability"]
    assert cli.main(["evaluate", str(run), "--json", "--tta", "hflip,crops"]) == 0
    scores = json.loads(capsys.readouterr().out)
    source = sources.open_model(str(run))
    settings = Run.settings_of(str(run))
    train_set, val = load_data(settings, None)
    assert source.preprocessing is not None
    loader = loaders(settings, train_set, val, source.preprocessing)[1]
    expected = evaluate(TTA(source.model, "hflip,crops"), loader, mn.nn.CrossEntropyLoss())
    assert scores["accuracy"] == expected.accuracy
    assert cli.main(["evaluate", str(run), "--tta", "sideways"]) == 2
    assert "--tta: views is 'sideways'; expected one or more of hflip, vflip" in capsys.readouterr().err


def predicted(run: Path, pictures: list[str], capsys: pytest.CaptureFixture[str], *options: str) -> Any:
    capsys.readouterr()
    assert cli.main(["predict", str(run), *pictures, "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)
