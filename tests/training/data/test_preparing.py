"""A data set's name gives batches with mean 0 and deviation 1, changed as the settings say; names; weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm.data import ArrayDataset, DataLoader, Subset
from minorm.training.data.preparing import Mixed, balanced, labels_of, load_data, loaders, mixed, preprocessing
from minorm.training.settings import Settings


def batches(settings: Settings, path: Any = None) -> list[Any]:
    train, test = load_data(settings, path)
    return list(loaders(settings, train, test, preprocessing(settings, train))[0])


@pytest.mark.parametrize(("name", "place"), [("mnist", "DIR"), ("folder", "DIR"), ("numpy", r"FILE\.npz")])
def test_a_path_is_needed_for_all_but_the_digits(name: str, place: str) -> None:
    with pytest.raises(ValueError, match=f"nothing is downloaded; expected the path of the .*: --path {place}"):
        load_data(Settings(data=name), None)


def test_digits_come_in_whole_batches_with_mean_0_and_deviation_1() -> None:
    pytest.importorskip("sklearn")
    settings = Settings(batch_size=100)
    train, test = load_data(settings, None)
    found = preprocessing(settings, train)
    assert (found.classes, found.size, found.channels) == (list("0123456789"), 8, 1)
    train_loader, test_loader = loaders(settings, train, test, found)
    images = [images.numpy() for images, _ in train_loader]
    assert {len(batch) for batch in images} == {100}
    assert abs(np.mean(images)) < 0.02
    assert abs(np.std(images) - 1) < 0.02
    assert sum(len(labels) for _, labels in test_loader) == 359


def arrays(tmp_path: Path, kind: Any = np.uint8) -> str:
    rng = np.random.default_rng(0)
    x = (rng.random((1500, 9, 9, 3)) * [50, 100, 200] + [10, 20, 30]).astype(kind)
    np.savez(tmp_path / "set.npz", x_train=x, y_train=np.arange(1500) % 4, x_test=x[:8], y_test=np.arange(8) % 4)
    return str(tmp_path / "set.npz")


@pytest.mark.parametrize("kind", [np.uint8, np.float64])
def test_arrays_of_ones_own_are_measured(tmp_path: Path, kind: Any) -> None:
    settings = Settings(data="numpy", batch_size=500)
    path = arrays(tmp_path, kind)
    found = preprocessing(settings, load_data(settings, path)[0])
    assert (found.classes, found.size, found.channels) == (["0", "1", "2", "3"], 9, 3)
    images = np.concatenate([images.numpy() for images, _ in batches(settings, path)])
    assert np.allclose(images.mean((0, 2, 3)), 0, atol=1e-4)
    assert np.allclose(images.std((0, 2, 3)), 1, atol=1e-4)


def test_each_augmentation_changes_images_and_only_these(tmp_path: Path) -> None:
    path = arrays(tmp_path)
    plain = batches(Settings(data="numpy"), path)
    changes: dict[str, Any] = {
        "hflip": 1.0, "crop_padding": 2, "cutout": 3, "color_jitter": 0.4, "crop_scale": 0.4, "vflip": 1.0,
        "rotate": 30.0, "perspective": 0.5, "blur": 1.5, "rand_augment": "2,9", "trivial_augment": True,
    }  # fmt: skip
    for name, value in changes.items():
        settings = Settings(data="numpy", **{name: value})
        changed = batches(settings, path)
        assert all(np.array_equal(a[1].numpy(), b[1].numpy()) for a, b in zip(plain, changed, strict=True)), name
        images, before = changed[0][0].numpy(), plain[0][0].numpy()
        assert not np.array_equal(images, before), name
        if name == "hflip":
            assert np.array_equal(images, before[..., ::-1])
        if name == "vflip":
            assert np.array_equal(images, before[:, :, ::-1])
        if name == "blur":
            assert (images.std((2, 3)) < before.std((2, 3)) + 1e-6).all()
        if name == "cutout":
            assert ((images == 0).all(1).sum((1, 2)) == 9).all()
            assert np.array_equal(images[images != 0], before[images != 0])
        train, test = load_data(settings, path)
        found = preprocessing(settings, train)
        tested = [next(iter(loaders(s, train, test, found)[1]))[0].numpy() for s in (settings, Settings(data="numpy"))]
        assert np.array_equal(*tested), name
    with pytest.raises(ValueError, match="cutout is 9; expected less than the images' size, 9"):
        batches(Settings(data="numpy", cutout=9), path)


def test_what_is_drawn_in_is_the_mean(tmp_path: Path) -> None:
    """A turn by a half leaves corners without a picture; after scaling the mean is 0."""
    x = np.full((64, 8, 8, 3), 200, np.uint8)
    x[:, 4] = 0
    np.savez(tmp_path / "set.npz", x_train=x, y_train=np.arange(64) % 2, x_test=x[:2], y_test=[0, 1])
    for changes in ({"rotate": 180.0}, {"trivial_augment": True}, {"rand_augment": "3,30"}, {"perspective": 1.0}):
        images = batches(Settings(data="numpy", **changes), str(tmp_path / "set.npz"))[0][0].numpy()  # type: ignore[arg-type]
        assert (np.abs(images[:, :, 0, 0]) < 1e-5).any(), changes


def test_a_random_crop_shows_a_part_of_each_image_at_the_whole_size(tmp_path: Path) -> None:
    """A ramp stays one under a crop, with a smaller slope: that of its part of the width."""
    ramp = np.broadcast_to(np.linspace(0, 1, 32, dtype=np.float32), (64, 1, 32, 32)).copy()
    y = np.arange(64) % 2
    np.savez(tmp_path / "ramp.npz", x_train=ramp, y_train=y, x_test=ramp[:2], y_test=y[:2])
    images = batches(Settings(data="numpy", crop_scale=0.25), tmp_path / "ramp.npz")[0][0].numpy()
    assert images.shape == (64, 1, 32, 32)
    std = float(ramp.std(dtype=np.float64))
    widths = np.diff(images[:, 0, 16, 8:24], axis=1).mean(1) * std * 31  # 1 for the whole width
    assert 0.35 < widths.min() < 0.75
    assert widths.max() <= 1.01
    assert (widths**2 * 4 / 3 > 0.24).all(), "an area of a quarter, of a ratio of at least 3 to 4"


@pytest.mark.parametrize("name", ["mixup", "cutmix"])
def test_mixed_batches_are_drawn_for_each_alone(name: str) -> None:
    images = np.random.default_rng(0).random((20, 3, 6, 6), np.float32)
    dataset = ArrayDataset(images, np.arange(20) % 4)

    def loader() -> DataLoader:
        return DataLoader(dataset, 5, shuffle=True, seed=3)

    settings = Settings(data="folder", **{name: 1.0})
    whole = [[part.numpy() for part in batch] for batch in mixed(settings, loader(), 4)]
    assert [soft.shape for _, soft in whole] == [(5, 4)] * 4
    assert all(np.allclose(soft.sum(1), 1) for _, soft in whole)
    second = loader()
    second.load_state_dict({"seed": 3, "epoch": 0, "batch": 2, "batch_size": 5, "length": 20})
    rest = [[part.numpy() for part in batch] for batch in mixed(settings, second, 4)]
    assert all(np.array_equal(a, b) for x, y in zip(whole[2:], rest, strict=True) for a, b in zip(x, y, strict=True))
    assert isinstance(mixed(settings, second, 4), Mixed)
    assert mixed(Settings(), second, 4) is second


def test_bfloat16_is_how_images_are_stored(tmp_path: Path) -> None:
    images, labels = batches(Settings(data="numpy", dtype="bfloat16"), arrays(tmp_path))[0]
    assert (images.dtype, labels.dtype) == (mn.bfloat16, mn.int64)


def test_folds_are_of_the_images_that_train_and_of_those_drawn_from_them(tmp_path: Path) -> None:
    digits = [load_data(Settings(fold=f"{i}/4", seed=2), None) for i in (1, 2, 3, 4)]
    assert np.array_equal(np.sort(np.concatenate([val.indices for _, val in digits])), np.arange(1797))
    counts = np.array([np.bincount(labels_of(val)) for _, val in digits])
    assert np.ptp(counts, axis=0).max() <= 1
    for train, val in digits:
        assert np.array_equal(np.sort(np.concatenate([train.indices, val.indices])), np.arange(1797))
    path = arrays(tmp_path)  # its eight images of x_test are left aside
    train, val = load_data(Settings(data="numpy", fold="3/3"), path)
    assert (len(train), len(val)) == (1000, 500)
    whole, _ = load_data(Settings(data="numpy"), path)
    assert np.array_equal(train[:][0], whole[train.indices][0])
    assert np.bincount(labels_of(val)).tolist() == [125] * 4
    with pytest.raises(ValueError, match="fold is '1/1501'; expected at most one fold per image, 1,500"):
        load_data(Settings(data="numpy", fold="1/1501"), path)


def test_balanced_weights_count_every_class_alike() -> None:
    dataset = Subset(ArrayDataset(np.zeros((6, 1)), np.array([0, 0, 0, 1, 1, 3])), [0, 1, 2, 3, 5])
    labels = labels_of(dataset)
    assert labels.tolist() == [0, 0, 0, 1, 3]
    weights = balanced(labels, 4)
    assert np.allclose(weights, [5 / 12, 5 / 4, 0, 5 / 4])
    assert weights.dtype == np.float32
