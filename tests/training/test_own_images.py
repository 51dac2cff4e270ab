"""Runs on a folder of pictures: stopped anywhere they go on to the same bytes; the best weights have their own file."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn
from minorm.checkpoint import load_training
from minorm.data import ArrayDataset, DataLoader
from minorm.training import Run, Settings, UntrustedCode, evaluate, train_epoch
from minorm.training.run import BEST, CHECKPOINT, LOG

Image = pytest.importorskip("PIL.Image")

MODEL = """
from minorm import nn

def build(channels, size, classes):
    return nn.Sequential(nn.Conv2d(channels, 8, 3, stride=2, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, classes))
"""


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Three classes that a small network tells apart, and a file that is no picture."""
    root = tmp_path_factory.mktemp("pictures")
    y, x = np.mgrid[:24, :30]
    shapes = (x // 3 % 2, y // 3 % 2, (x // 6 + y // 6) % 2)
    for kind, name in enumerate(("bars", "checks", "stripes")):
        (root / name).mkdir()
        for i in range(20):
            noise = np.random.default_rng((kind, i)).integers(0, 100, (24, 30, 3))
            Image.fromarray((noise + 150 * shapes[kind][..., None]).astype(np.uint8)).save(root / name / f"{i:02}.png")
    (root / "checks" / "05.png").write_bytes(b"no picture")
    (root / "model.py").write_text(MODEL)
    return str(root)


def small(pictures: str, **changed: Any) -> Settings:
    usual = {"data": "folder", "image_size": 16, "epochs": 4, "batch_size": 8, "model": f"{pictures}/model.py:build"}
    return Settings(**{**usual, **changed})


def files(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in (CHECKPOINT, BEST, LOG)}


class Killed(BaseException):
    """An exception that ends a run at once, as a kill does."""


def kill(steps: int) -> Any:
    count = iter(range(steps))

    def after_step(_: Any) -> None:
        if next(count, None) is None:
            raise Killed

    return after_step


EVERYTHING = {
    "hflip": 0.5, "crop_padding": 2, "cutout": 4, "color_jitter": 0.2, "class_weights": "balanced", "clip_grad": 1.0,
    "warmup_epochs": 1, "accumulate": 2, "ema": 0.9, "early_stopping": 3, "schedule": "cosine",
}  # fmt: skip


@pytest.mark.parametrize(
    "changed", [{}, EVERYTHING, {**EVERYTHING, "mixup": 0.4}, {"cutmix": 1.0, "dtype": "bfloat16"}]
)
def test_a_run_that_is_cut_short_goes_on_to_the_same_bytes(
    pictures: str, tmp_path: Path, changed: dict[str, Any]
) -> None:
    """Without threads in one piece; with threads, killed within an epoch, and gone on with."""
    settings = small(pictures, **changed)
    Run(settings, str(tmp_path / "whole"), pictures).fit()
    with pytest.raises(Killed):
        Run(settings, str(tmp_path / "cut"), pictures, num_workers=2).fit(kill(8))
    mn.manual_seed(99)
    again = Run.resume(str(tmp_path / "cut"), pictures, num_workers=2, trust=True)
    assert 0 < again.epoch < 4
    again.fit()
    assert files(tmp_path / "cut") == files(tmp_path / "whole")


def test_it_learns_and_names_the_broken_file(pictures: str, tmp_path: Path) -> None:
    run = Run(small(pictures, epochs=12, ema=0.9, hflip=0.5), str(tmp_path), pictures)
    run.fit()
    assert run.history[run.best_epoch - 1]["val_accuracy"] > 0.9
    assert run.preprocessing.classes == ["bars", "checks", "stripes"]
    assert [Path(name).name for name in run.sets[0].dataset.broken] == ["05.png"]


def test_the_best_file_is_the_model_of_the_best_epoch(pictures: str, tmp_path: Path) -> None:
    for ema in (0.0, 0.8):
        out = tmp_path / str(ema)
        run = Run(small(pictures, epochs=5, ema=ema), str(out), pictures)
        states: list[dict[str, Any]] = []

        def remember(_: Any, run: Run = run, states: list[Any] = states) -> None:
            model = run.model if run.average is None else run.average.module
            states.append({name: tensor.numpy().copy() for name, tensor in model.state_dict().items()})

        run.fit(after_epoch=remember)
        best = load_training(out / BEST)
        assert best["epoch"] == run.best_epoch
        row = max(run.history, key=lambda row: (row["val_accuracy"], -row["val_loss"]))
        assert best["history"][-1] == row
        for name, value in best["model"].items():
            assert np.array_equal(np.asarray(value), states[run.best_epoch - 1][name]), name
        model = run.model
        model.load_state_dict(best["model"])
        score = evaluate(model, run.val_loader, run.loss_function)
        assert (score.loss, score.accuracy) == (row["val_loss"], row["val_accuracy"])


def test_patience_ends_a_run_and_resuming_does_not_go_on(pictures: str, tmp_path: Path) -> None:
    settings = small(pictures, epochs=30, early_stopping=2, lr=1e-9, schedule="constant")
    run = Run(settings, str(tmp_path), pictures)
    run.fit()
    assert run.epoch == run.best_epoch + 2 < 30
    before = files(tmp_path)
    again = Run.resume(str(tmp_path), pictures, model=settings.model)
    assert again.finished
    again.fit()
    assert {name: contents for name, contents in files(tmp_path).items() if name != CHECKPOINT} == {
        name: contents for name, contents in before.items() if name != CHECKPOINT
    }


def test_a_file_that_changed_does_not_go_on(pictures: str, tmp_path: Path) -> None:
    model = tmp_path / "own.py"
    model.write_text(MODEL)
    settings = small(pictures, model=f"{model}:build", epochs=1)
    out = str(tmp_path / "run")
    Run(settings, out, pictures).fit()
    saved = load_training(f"{out}/{CHECKPOINT}")
    assert saved["model_facts"]["name"] == saved["settings"]["model"] == "own.py:build"
    assert (tmp_path / "run/own.py").read_bytes() == model.read_bytes()
    model.write_text(f"{MODEL}\nopen({str(tmp_path / 'ran')!r}, 'w')\n")
    with pytest.raises(ValueError, match=r"own\.py is no longer the file"):
        Run.resume(out, pictures, model=f"{model}:build")
    with pytest.raises(ValueError, match=f"{out} has a own.py that differs from {model}"):
        Run(settings, out, pictures)
    with pytest.raises(
        UntrustedCode, match=r"built by code that is in the same folder: 'build' in .*; nothing was run"
    ):
        Run.resume(out, pictures)
    assert not (tmp_path / "ran").exists()
    assert Run.resume(out, pictures, trust=True).epoch == 1, "the copy is what it was trained with"
    (tmp_path / "run/own.py").write_text(model.read_text())
    with pytest.raises(UntrustedCode, match=r"built by code that is not in the same folder; nothing was run.*:build'"):
        Run.resume(out, pictures, trust=True)
    assert not (tmp_path / "ran").exists()


def test_accumulated_steps_are_those_of_the_whole_batch() -> None:
    """Four batches of 6 as one step: the gradient of 24 images, running statistics moved once. No batch statistics
    before the norm, so the two differ by rounding alone.
    """
    rng = np.random.default_rng(0)
    dataset = ArrayDataset(rng.standard_normal((24, 5)).astype(np.float32), rng.integers(0, 3, 24))

    def trained(batch_size: int, accumulate: int) -> nn.Module:
        mn.manual_seed(0)
        norm = nn.BatchNorm1d(5)
        model = nn.Sequential(nn.Linear(5, 3), nn.Tanh(), nn.Linear(3, 3))
        watching = nn.Sequential(norm)

        class Both(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.model, self.watching = model, watching

            def forward(self, x: Any) -> Any:
                self.watching(x)
                return self.model(x)

        both = Both()
        optimizer = mn.optim.SGD(both.parameters(), lr=0.5)
        seen: list[Any] = []
        for _ in range(3):
            loader = DataLoader(dataset, batch_size)
            train_epoch(both, loader, nn.CrossEntropyLoss(), optimizer, None, seen.append, accumulate=accumulate)
        assert len(seen) == 3
        assert norm.num_batches_tracked.item() == 3
        return both

    whole, parts = trained(24, 1).state_dict(), trained(6, 4).state_dict()
    for name, value in whole.items():
        assert np.allclose(value.numpy(), parts[name].numpy(), atol=1e-5), name
    uneven = trained(10, 3).state_dict()  # 10, 10, 4: weighed by their samples
    assert all(np.allclose(value.numpy(), uneven[name].numpy(), atol=1e-5) for name, value in whole.items())


def test_gradients_are_clipped() -> None:
    dataset = ArrayDataset(np.ones((4, 2), np.float32) * 100, np.array([0, 1, 0, 0]))
    model = nn.Linear(2, 2)
    optimizer = mn.optim.SGD(model.parameters(), lr=1.0)
    before = [p.numpy().copy() for p in model.parameters()]
    train_epoch(model, DataLoader(dataset, 4), nn.CrossEntropyLoss(), optimizer, clip_grad=0.01)
    moved = sum(((p.numpy() - old) ** 2).sum() for p, old in zip(model.parameters(), before, strict=True)) ** 0.5
    assert moved == pytest.approx(0.01, rel=1e-3)


def test_folders_that_do_not_fit_are_refused(pictures: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="batch_size is 64; expected at most the 48 training images"):
        Run(small(pictures, batch_size=64), None, pictures)
    out = str(tmp_path / "run")
    Run(small(pictures, epochs=1), out, pictures).fit()
    smaller = tmp_path / "smaller"
    for name in ("bars", "checks"):
        (smaller / name).mkdir(parents=True)
        for i in range(10):
            Image.new("RGB", (20, 20)).save(smaller / name / f"{i}.png")
    with pytest.raises(ValueError, match="is for 3 classes and 3 x 16 x 16 pixels, but these images have 2 classes"):
        Run.resume(out, str(smaller), trust=True)
    renamed = tmp_path / "renamed"
    shutil.copytree(pictures, renamed)
    (renamed / "checks").rename(renamed / "boxes")
    with pytest.raises(ValueError, match="have other names: 'checks', but these images have 'boxes'"):
        Run.resume(out, str(renamed), trust=True)
    for file in smaller.rglob("*.png"):
        file.write_bytes(b"none")
    with pytest.raises(ValueError, match=r"no train image could be read; .* '.*\.png' is no readable picture"):
        Run(small(pictures, batch_size=4), None, str(smaller)).fit()
