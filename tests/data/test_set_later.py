"""A setting that is set later counts as if the constructor had been given it, or is an error."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import data
from minorm.data import DataLoader
from minorm.data import transforms as T

IMAGES = np.random.default_rng(0).uniform(0.1, 0.9, (6, 3, 8, 8)).astype(np.float32)
FLIP, TWICE = T.RandomVerticalFlip(1.0), T.Lambda(lambda images: images * 2)

# By class: the arguments of its constructor, and other values for them.
TRANSFORMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "CenterCrop": ({"size": 4}, {"size": (2, 6)}),
    "ColorJitter": ({}, {"brightness": 0.5, "contrast": 0.5, "saturation": 0.5, "hue": 0.25}),
    "Compose": ({"transforms": [FLIP]}, {"transforms": (TWICE,)}),
    "GaussianBlur": ({"kernel_size": 3}, {"kernel_size": (3, 5), "sigma": (2.0, 3.0)}),
    "Grayscale": ({}, {"num_output_channels": 3}),
    "Lambda": ({"lambd": np.negative}, {"lambd": np.exp}),
    "Normalize": ({"mean": 0.5, "std": 0.5}, {"mean": [0.1, 0.2, 0.3], "std": (1.0, 2.0, 3.0)}),
    "Pad": ({"padding": 1}, {"padding": (1, 2), "fill": 3.0, "padding_mode": "edge"}),
    "RandAugment": (
        {"num_ops": 9},
        {"num_ops": 2, "magnitude": 20, "num_magnitude_bins": 11, "interpolation": "bilinear", "fill": [0.1, 0.2, 0.3]},
    ),
    "RandomAffine": (
        {"degrees": 10},
        {"degrees": (5, 90), "translate": (0.2, 0.3), "scale": (0.5, 2.0), "shear": 20, "interpolation": "bilinear",
         "fill": 0.5, "center": (1, 2)},
    ),
    "RandomApply": ({"transforms": [FLIP]}, {"transforms": (TWICE,), "p": 0.9}),
    "RandomChoice": ({"transforms": [FLIP, TWICE]}, {"transforms": (TWICE, FLIP), "p": (0, 1)}),
    "RandomCrop": (
        {"size": 6}, {"size": (4, 5), "padding": (1, 2), "fill": 2.0, "padding_mode": "reflect"}
    ),
    "RandomErasing": ({"p": 1.0}, {"p": 0.5, "scale": (0.5, 0.6), "ratio": (1.0, 2.0), "value": "random"}),
    "RandomGrayscale": ({"p": 1.0}, {"p": 0.5}),
    "RandomHorizontalFlip": ({}, {"p": 1.0}),
    "RandomPerspective": (
        {"p": 1.0}, {"distortion_scale": 0.9, "p": 0.5, "interpolation": "nearest", "fill": 0.5}
    ),
    "RandomResizedCrop": (
        {"size": 4},
        {"size": (3, 5), "scale": (0.5, 0.6), "ratio": (1.0, 2.0), "interpolation": "nearest", "antialias": False},
    ),
    "RandomRotation": (
        {"degrees": 45}, {"degrees": (80, 90), "interpolation": "bilinear", "center": (1, 2), "fill": 0.5}
    ),
    "RandomVerticalFlip": ({}, {"p": 1.0}),
    "Resize": ({"size": 4}, {"size": (3, 5), "interpolation": "bicubic", "max_size": 9, "antialias": False}),
    "ToDtype": ({"dtype": mn.uint8}, {"dtype": mn.float64, "scale": True}),
    "ToImage": ({}, {}),
    "ToTensor": ({}, {}),
    "TrivialAugmentWide": ({}, {"num_magnitude_bins": 7, "interpolation": "bilinear", "fill": 0.5}),
}  # fmt: skip
SAMPLERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "BatchSampler": ({"sampler": range(5), "batch_size": 2}, {"sampler": [4, 3], "batch_size": 3, "drop_last": True}),
    "RandomSampler": ({"data_source": range(9)}, {"data_source": range(5), "num_samples": 4, "replacement": True}),
    "Sampler": ({"data_source": range(9)}, {}),
    "SequentialSampler": ({"data_source": range(9)}, {"data_source": range(5)}),
    "SubsetRandomSampler": ({"indices": [1, 2, 3]}, {"indices": [7, 8]}),
    "WeightedRandomSampler": (
        {"weights": [1.0, 2.0, 3.0], "num_samples": 3}, {"weights": [3.0, 0.0], "num_samples": 2, "replacement": False}
    ),
}  # fmt: skip
MIXERS = {
    "CutMix": ({"alpha": 1.0, "num_classes": 3}, {"alpha": 0.2, "num_classes": 4}),
    "MixUp": ({"alpha": 1.0, "num_classes": 3}, {"alpha": 0.2, "num_classes": 4}),
}
# Taken without effect, refused, and tried by the DataLoader below
UNKEPT = {"inplace", "expand", "generator", "args", "kwargs"}


def walk(table: dict[str, tuple[dict[str, Any], dict[str, Any]]]) -> list[tuple[str, str]]:
    return [(name, setting) for name, (_, other) in table.items() for setting in other]


def check(kind: Any, made: dict[str, Any], setting: str, value: Any, outcome: Callable[[Any], Any]) -> None:
    """`kind(**made)` with the setting set later, against `kind` made with it."""
    later, first = kind(**made), kind(**{**made, setting: value})
    before = outcome(later)
    setattr(later, setting, value)
    found, want = outcome(later), outcome(first)
    assert repr(later) == repr(first)
    assert all(map(np.array_equal, found, want))
    assert (
        len(before) != len(want) or not all(map(np.array_equal, before, want)) or setting in ("drop_last", "max_size")
    )


@pytest.mark.parametrize(("name", "setting"), walk(TRANSFORMS), ids=str)
def test_transforms(name: str, setting: str) -> None:
    made, other = TRANSFORMS[name]

    def outcome(transform: Any) -> list[Any]:
        try:
            return [transform(IMAGES, np.random.default_rng(1))]
        except ValueError as error:  # max_size beside two sizes, padding_mode with no padding
            return [str(error)]

    if setting in ("padding_mode", "fill"):
        made = {**made, "padding": 2} if name == "RandomCrop" else made
    if (name, setting) == ("Resize", "antialias"):
        made = {"size": 3}
    if (name, setting) == ("RandomRotation", "interpolation"):
        made = {"degrees": (10, 20)}
    check(getattr(T, name), made, setting, other[setting], outcome)


@pytest.mark.parametrize(("name", "setting"), walk(SAMPLERS), ids=str)
def test_samplers(name: str, setting: str) -> None:
    made, other = SAMPLERS[name]

    def outcome(sampler: Any) -> list[Any]:
        mn.manual_seed(0)
        return [len(sampler), *sampler]

    check(getattr(data, name), made, setting, other[setting], outcome)


@pytest.mark.parametrize(("name", "setting"), walk(MIXERS), ids=str)
def test_mixers(name: str, setting: str) -> None:
    made, other = MIXERS[name]
    outcome = lambda mix: mix(IMAGES, np.arange(6) % 3, np.random.default_rng(0))  # noqa: E731
    check(getattr(data, name), made, setting, other[setting], outcome)


def test_each_class_and_each_setting_is_tried() -> None:
    kinds = [kind for kind in vars(T).values() if inspect.isclass(kind)]
    shown = {kind.__name__ for kind in kinds if hasattr(kind, "_made_with")} - {"ImageTransform"}
    assert {name for name in T.__all__ if name in shown} == TRANSFORMS.keys()
    assert {name for name in data.__all__ if name.endswith("Sampler")} == SAMPLERS.keys()
    for table, room in ((TRANSFORMS, T), (SAMPLERS, data), (MIXERS, data)):
        for name, (_, other) in table.items():
            settings = inspect.signature(getattr(room, name)).parameters.keys() - UNKEPT
            assert settings == other.keys() or name == "Sampler", name


def test_a_wrong_setting_is_the_constructors_error_and_changes_nothing() -> None:
    for later, setting, value in (
        (T.RandomHorizontalFlip(0.5), "p", 2),
        (T.Normalize(0.5, 0.5), "std", 0),
        (T.RandomCrop(3), "size", 0),
        (data.BatchSampler(range(4), 2), "batch_size", 0),
        (data.MixUp(1.0, 3), "alpha", -1),
    ):
        before = repr(later)
        with pytest.raises(ValueError, match=f"{type(later).__name__}: .*{setting}"):
            setattr(later, setting, value)
        assert repr(later) == before


class Counted(T.ImageTransform):
    """A transform of a user's: its attributes are its own."""

    made = 0

    def __init__(self, calls: int = 0) -> None:
        self.calls = calls
        Counted.made += 1

    def apply(self, images: Any, generator: Any) -> Any:
        self.calls += 1
        return images


def test_a_users_transform_is_not_made_again() -> None:
    transform = Counted()
    transform(IMAGES)
    assert (transform.calls, Counted.made) == (1, 1)


# Data sets


def test_arrays_tensors_indices_and_datasets() -> None:
    x, y = mn.tensor([[0.0], [1.0], [2.0]]), mn.tensor([0, 1, 2])
    first = data.TensorDataset(x, y)
    first.tensors = (x + 5, y, y)
    arrays = data.ArrayDataset(x, y)
    arrays.arrays, arrays.scale = (x + 5, y), 5
    for dataset, want in ((first, [5.0, 6.0, 7.0]), (arrays, [1.0, 1.2, 1.4])):
        batch = next(iter(DataLoader(dataset, 3)))
        np.testing.assert_allclose(batch[0].numpy().ravel(), want, rtol=1e-6)
        np.testing.assert_allclose([float(np.asarray(dataset[i][0]).ravel()[0]) for i in range(3)], want, rtol=1e-6)
        assert len(batch) == len(dataset[0])
    with pytest.raises(ValueError, match="TensorDataset: the arrays have shapes"):
        first.tensors = (x, y[:2])
    assert len(first.tensors) == 3

    subset = data.Subset(data.TensorDataset(x), [0])
    subset.indices = [2, 1]
    assert next(iter(DataLoader(subset, 2)))[0].numpy().ravel().tolist() == [2.0, 1.0]
    with pytest.raises(IndexError, match="Subset: indices lie between 3 and 3"):
        subset.indices = [3]
    with pytest.raises(IndexError, match="Subset: indices lie between 1 and 2"):
        subset.dataset = [0, 1]
    both = data.ConcatDataset([[1, 2]])
    both.datasets = [[1, 2], [3]]
    assert (len(both), both[2]) == (3, 3)


def test_the_settings_of_a_folder(tmp_path: Path) -> None:
    pillow = pytest.importorskip("PIL.Image")
    for part, count in (("one", 1), ("two", 2)):
        for name in ("cat", "dog"):
            (tmp_path / part / name).mkdir(parents=True)
            for i in range(count):
                pillow.new("RGB", (8, 8), "red").save(tmp_path / part / name / f"{i}.png")
    dataset = data.ImageFolder(tmp_path / "one", 4)
    dataset.image_size, dataset.channels, dataset.classes = 6, 1, ["dog", "cat"]
    assert (dataset[0][0].shape, dataset.labels.tolist()) == ((1, 6, 6), [1, 0])
    dataset.root = tmp_path / "two"
    assert (len(dataset), dataset.labels.tolist()) == (4, [1, 1, 0, 0])
    with pytest.raises(ValueError, match="ImageFolder: channels is 2"):
        dataset.channels = 2


# The DataLoader

DATA = data.ArrayDataset(np.arange(10, dtype=np.float32), np.arange(10))


def batches(loader: DataLoader) -> list[Any]:
    return [batch[0].numpy().tolist() for batch in loader]


@pytest.mark.parametrize(
    ("setting", "value"),
    [("dataset", [1, 2]), ("batch_size", 2), ("shuffle", True), ("sampler", [1]), ("batch_sampler", [[1]]),
     ("drop_last", True)],
)  # fmt: skip
def test_what_decides_the_order_is_an_error(setting: str, value: Any) -> None:
    loader = DataLoader(DATA, 3)
    with pytest.raises(ValueError, match=f"DataLoader.{setting} = .*expected a new DataLoader"):
        setattr(loader, setting, value)
    assert batches(loader) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]


def doubled(images: Any) -> Any:
    return images * 2


def drawn(images: Any, generator: Any) -> Any:
    return images + generator.random()


@pytest.mark.parametrize("made", [{"shuffle": True}, {"shuffle": True, "num_workers": 1}, {}], ids=str)
@pytest.mark.parametrize(
    ("setting", "value"),
    [("num_workers", 2), ("timeout", 30), ("prefetch_factor", 3), ("persistent_workers", True), ("transform", doubled),
     ("transform", drawn), ("collate_fn", lambda samples: [mn.tensor([x for x, _ in samples])]), ("seed", 5),
     ("worker_init_fn", print), ("worker_init_fn", 3), ("transform", 3), ("num_workers", -1), ("seed", -1),
     ("shard", (1, 2)), ("shard", 3), ("multiprocessing_context", "fork"), ("generator", 3)],
    ids=lambda value: getattr(value, "__name__", str(value)),
)  # fmt: skip
def test_other_settings_count_from_then_on(made: dict[str, Any], setting: str, value: Any) -> None:
    def outcome(later: bool) -> Any:
        mn.manual_seed(0)
        given = mn.Generator().manual_seed(3) if setting == "generator" else value
        try:
            if not later:
                return batches(DataLoader(DATA, 3, **made, **{setting: given})) if setting not in made else None
            loader = DataLoader(DATA, 3, **made)
            if setting in ("transform", "seed", "generator"):
                mn.manual_seed(0)
            setattr(loader, setting, given)
            return batches(loader)
        except (TypeError, ValueError) as error:
            return str(error)

    if setting not in made:
        assert outcome(later=True) == outcome(later=False)


def test_both_transform_and_collate_fn_is_an_error_later_too() -> None:
    loader = DataLoader(DATA, 3, collate_fn=list)
    with pytest.raises(ValueError, match="got both transform and collate_fn"):
        loader.transform = doubled
    assert loader.transform is None
