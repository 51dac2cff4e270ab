"""choose_settings: enough steps from few images, sizes and transforms by the pictures; what is given stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minorm.training import Run, Settings, choose_settings
from minorm.training.data.defaults import FEW, MOST_EPOCHS, STEPS
from tests.training import textured

COLOURED, GREY = (200, 40, 90), (90, 90, 90)


def arrays(tmp_path: Path, count: int, size: int = 4) -> str:
    """Write an .npz file with `count` training images."""
    path = tmp_path / f"{count}.npz"
    x, y = np.zeros((count, size, size), np.uint8), np.arange(count) % 2
    np.savez(path, x_train=x, y_train=y, x_test=x[:4], y_test=y[:4])
    return str(path)


def pictures(
    root: Path, size: tuple[int, int], colour: Any = COLOURED, names: tuple[str, ...] = ("a cat", "dog")
) -> str:
    """Write a folder with ten pictures a class, (width, height) each, and one of another size."""
    image = pytest.importorskip("PIL.Image")
    for name in names:
        (root / name).mkdir(parents=True)
        for i in range(10):
            image.new("RGB", size, colour).save(root / name / f"{i}.png")
        image.new("RGB", (400, 300), colour).save(root / name / "other.png")
    return str(root)


@pytest.mark.parametrize(
    ("images", "batch_size", "epochs"),
    [
        (482, 32, 40),  # 15 batches: 40 * 15 = 600
        (1999, 32, 10),  # 62 batches: 10 * 62 = 620
        (2000, 64, 20),  # 31 batches: 20 * 31 = 620
        (50_000, 64, 8),
        (128, 32, MOST_EPOCHS),  # 4 batches
        (127, 16, 86),  # 7 batches: 86 * 7 = 602
        (20, 4, MOST_EPOCHS),
        (4, 2, MOST_EPOCHS),
    ],
)
def test_few_images_get_enough_steps(tmp_path: Path, images: int, batch_size: int, epochs: int) -> None:
    settings, reasons, sets = choose_settings(arrays(tmp_path, images), data="numpy")
    assert (settings.batch_size, settings.epochs) == (batch_size, epochs)
    assert reasons.keys() == {"batch_size", "epochs"}
    assert reasons["epochs"] == f"{epochs * (images // batch_size):,} steps"
    assert (settings.hflip, settings.crop_padding, settings.crop_scale) == (0, 0, 1), "arrays stay as they are"
    assert len(sets[0]) == images


def test_the_steps_are_those_that_a_run_makes(tmp_path: Path) -> None:
    path = arrays(tmp_path, 482, 8)
    given: dict[str, Any]
    for given in ({}, {"accumulate": 4}, {"batch_size": 100}, {"batch_size": 482}):
        settings, _, sets = choose_settings(path, data="numpy", model="digits", **given)
        run = Run(settings, sets=sets)
        assert STEPS <= run.steps < STEPS + run.steps_per_epoch or settings.epochs == MOST_EPOCHS
        assert settings.epochs < MOST_EPOCHS or run.steps <= STEPS


def test_what_is_given_stays(tmp_path: Path) -> None:
    path = pictures(tmp_path / "large", (150, 100))
    given: dict[str, Any] = {
        "epochs": 3,
        "batch_size": 2,
        "image_size": 20,
        "hflip": 0.25,
        "crop_padding": 1,
        "crop_scale": 0.9,
    }
    settings, reasons, _ = choose_settings(path, data="folder", **given)
    assert settings == Settings(data="folder", **given)
    assert reasons == {}
    settings, reasons, _ = choose_settings(path, data="folder", crop_padding=0, epochs=9)
    assert (settings.crop_padding, settings.crop_scale, settings.epochs) == (0, 1, 9), "the user said how to crop"
    assert reasons.keys() == {"batch_size", "image_size", "hflip"}


def test_a_data_set_with_known_settings_has_them() -> None:
    pytest.importorskip("sklearn")
    settings, reasons, sets = choose_settings(lr=0.1)
    assert (settings, reasons) == (Settings(lr=0.1), {})
    assert len(sets[0]) == 1438


@pytest.mark.parametrize(
    ("size", "image_size"),
    [
        ((20, 20), 32),
        ((31, 200), 32),
        ((64, 47), 32),
        ((48, 90), 48),
        ((90, 64), 64),
        ((95, 400), 64),
        ((900, 700), 64),
    ],
)
def test_the_size_is_that_of_most_pictures(tmp_path: Path, size: tuple[int, int], image_size: int) -> None:
    settings, reasons, sets = choose_settings(pictures(tmp_path, size), data="folder")
    assert settings.image_size == image_size
    assert f"at least {min(size)} pixels" in reasons["image_size"]
    assert [part[0][0].shape for part in sets] == [(3, image_size, image_size)] * 2
    if image_size < 48:
        assert (settings.crop_padding, settings.crop_scale) == (image_size // 8, 1)
    else:
        assert (settings.crop_padding, settings.crop_scale) == (0, 0.5)


@pytest.mark.parametrize(
    ("colour", "names", "hflip"),
    [
        (COLOURED, ("cat", "dog"), 0.5),
        (COLOURED, ("bright", "dark"), 0.5),
        (GREY, ("cat", "dog"), 0),
        (COLOURED, ("0", "1", "10"), 0),
        (COLOURED, ("A", "b"), 0),
        (COLOURED, ("turn_left", "turn_right"), 0),
        (COLOURED, ("Left hand", "other"), 0),
    ],
)
def test_a_mirror_is_for_pictures_that_stay_what_they_are(
    tmp_path: Path, colour: Any, names: tuple[str, ...], hflip: float
) -> None:
    settings, reasons, _ = choose_settings(pictures(tmp_path, (40, 40), colour, names), data="folder")
    assert settings.hflip == hflip
    assert reasons["hflip"]


def test_pictures_that_are_broken_choose_nothing(tmp_path: Path) -> None:
    root = pictures(tmp_path, (100, 100))
    for file in tmp_path.rglob("*.png"):
        file.write_bytes(b"no picture")
    settings, reasons, _ = choose_settings(root, data="folder")
    assert settings.image_size == Settings.image_size
    assert "image_size" not in reasons


def test_wrong_settings_are_named_before_images_are_read() -> None:
    for given, said in (
        ({"epochs": 0}, "epochs is 0"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"hflip": 7.0}, "hflip"),
    ):
        with pytest.raises(ValueError, match=said):
            choose_settings("nowhere", data="folder", **given)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        choose_settings("nowhere", data="folder")
    assert FEW > 602


@pytest.mark.slow
def test_602_pictures_are_learned(tmp_path: Path) -> None:
    """8 epochs of 7 steps, the settings of any data set, learn far less of them. At 32 pixels, to take a minute."""
    pytest.importorskip("PIL.Image")
    textured.write(tmp_path)
    settings, _, sets = choose_settings(str(tmp_path), data="folder", image_size=32)
    assert (len(sets[0]), settings.batch_size, settings.epochs) == (481, 32, 40)
    best = []
    for chosen in (Settings(data="folder", image_size=32), settings):
        run = Run(chosen, sets=sets, num_workers=2)
        run.fit()
        best.append(max(row["val_accuracy"] for row in run.history))
    assert best[0] < 0.7
    assert best[1] > 0.85
