"""Make batches from the name of a data set: read its images, scale them, and change them at random.

The changes are made in this order: automatic changes, jitter of colours, normalization, crop, mirror, turn, blur and
erasing. Then images and labels are mixed. Validation images are only scaled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from minorm import data
from minorm.data import DataLoader, ImageFolder, Subset
from minorm.data.mixing import Mixing
from minorm.data.transforms import (
    ColorJitter,
    Compose,
    GaussianBlur,
    Normalize,
    RandAugment,
    RandomCrop,
    RandomErasing,
    RandomHorizontalFlip,
    RandomPerspective,
    RandomResizedCrop,
    RandomRotation,
    RandomVerticalFlip,
    TrivialAugmentWide,
)
from minorm.data.transforms.transform import Transform
from minorm.devices import dtypes
from minorm.training.settings import Settings, changes_of, fold_of, numbers

Array = Any
VALIDATION_BATCH_SIZE = 256  # images per batch, in validation
LEAST_BLUR = 0.1  # of a pixel: a blur that changes next to nothing
MEAN_STD = {  # of the training images, by channel: inputs around 0 with deviation 1
    "digits": ([0.305], [0.376]),
    "mnist": ([0.1307], [0.3081]),
    "fashion": ([0.2860], [0.3530]),
    "cifar10": ([0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]),
    "folder": ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),  # ImageNet's: photographs are alike
}
NAMES = {
    "fashion": "t-shirt trouser pullover dress coat sandal shirt sneaker bag boot",
    "cifar10": "airplane automobile bird cat deer dog frog horse ship truck",
}


@dataclass(frozen=True)
class Preprocessing:
    """The scaling of pixels and the class names of a model: each pixel p becomes (p - mean) / std."""

    classes: list[str]
    mean: list[float]
    std: list[float]
    size: int
    channels: int


def load_data(
    settings: Settings, path: Any, found: Preprocessing | None = None, max_bytes: int | None = None
) -> tuple[Any, Any]:
    """Return the (train, validation) datasets.

    The digits need no path. The digits and folders without val/ are split 80/20 at random, with `settings.seed`.

    With `settings.fold`, these data sets are split into folds instead. If a data set has separate validation images,
    only its training images are split into folds, and the validation images are not used.

    found      the Preprocessing of an existing model. It determines the size, channels and class names with which a
               folder is read. None if there is no such model
    max_bytes  the most memory that reading a file may take; None is the reader's own limit (limits.py)
    """
    part = fold_of(settings.fold)
    train, val = _loaded(settings, path, found, max_bytes)
    return (train, val) if part is None else _of_fold(train, val, *part, settings.seed)


def _loaded(settings: Settings, path: Any, found: Preprocessing | None, max_bytes: int | None) -> tuple[Any, Any]:
    name = settings.data
    if name == "digits":
        return data.split_digits(settings.seed)
    if path is None:
        kind, place = ("file", "FILE.npz") if name == "numpy" else ("folder", "DIR")
        raise ValueError(
            f"{name} is read from a {kind}, and nothing is downloaded; expected the path of the {kind}: --path {place}"
        )
    form = (settings.image_size, 3) if found is None else (found.size, found.channels)
    classes = found.classes if found is not None and found.classes else None
    readers: dict[str, Callable[[], tuple[Any, Any]]] = {
        "mnist": lambda: data.load_mnist(path, max_bytes),
        "fashion": lambda: data.load_fashion_mnist(path, max_bytes),
        "cifar10": lambda: data.load_cifar10(path),
        "numpy": lambda: data.load_npz(path, max_bytes),
        "folder": lambda: data.load_folder(path, *form, settings.seed, True, classes, max_bytes),
    }
    return readers[name]()


def _of_fold(train: Any, val: Any, number: int, folds: int, seed: int) -> tuple[Subset, Subset]:
    """Split the training images and the drawn validation images into folds. Return (train, validation) of one fold."""
    whole, indices = (train.dataset, train.indices) if isinstance(train, Subset) else (train, np.arange(len(train)))
    if isinstance(val, Subset) and val.dataset is whole:
        indices = np.sort(np.concatenate([indices, val.indices]))
    try:
        trained, validated = data.stratified_k_fold(labels_of(whole)[indices], folds, seed)[number - 1]
    except ValueError:
        raise ValueError(f"fold is '{number}/{folds}'; expected at most one fold per image, "
                         f"{len(indices):,}") from None  # fmt: skip
    return Subset(whole, indices[trained]), Subset(whole, indices[validated])


def preprocessing(settings: Settings, train: Any) -> Preprocessing:
    """Return the training images' Preprocessing.

    The mean and std of your own arrays are measured. If the settings have a mean or std, these numbers are used
    instead.
    """
    found = _usual_preprocessing(settings, train)
    mean, std = (_by_channel(settings, name, found.channels) for name in ("mean", "std"))
    return replace(found, mean=mean or found.mean, std=std or found.std)


def _by_channel(settings: Settings, name: str, channels: int) -> list[float]:
    """Return the numbers of a setting, one for each channel; return an empty list if the setting has no numbers."""
    values = numbers(getattr(settings, name)) or []
    if values and len(values) not in (1, channels):
        raise ValueError(f"{name} is {getattr(settings, name)!r}; expected one number, or one for each of the "
                         f"{channels} channels of the images")  # fmt: skip
    return values * channels if len(values) == 1 else values


def _usual_preprocessing(settings: Settings, train: Any) -> Preprocessing:
    folder = folder_of(train)
    if folder is not None:
        mean, std = MEAN_STD["folder"]
        if folder.channels == 1:
            mean, std = [sum(mean) / 3], [sum(std) / 3]
        return Preprocessing(folder.classes, mean, std, folder.image_size, folder.channels)
    channels, height, width = np.shape(train[0][0])
    assert height == width, "every data set here has square images"
    if settings.data == "numpy":
        count = int(labels_of(train).max()) + 1
        names, (mean, std) = list(map(str, range(count))), _mean_and_std(train)
    else:
        names = names_of(settings.data)
        mean, std = MEAN_STD[settings.data]
    return Preprocessing(names, mean, std, height, channels)


def names_of(name: str) -> list[str]:
    """Return the class names of a data set that is known by name."""
    return NAMES.get(name, "0 1 2 3 4 5 6 7 8 9").split()


def loaders(
    settings: Settings, train: Any, val: Any, found: Preprocessing, rank: int = 0, num_workers: int = 0
) -> tuple[DataLoader, DataLoader]:
    """Return this rank's training loader and validation loader.

    The training loader shuffles and changes images, and gives only whole batches. The validation loader gives images in
    their order.
    """
    shard = (rank, settings.ranks)
    scale = [Normalize(found.mean, found.std)]
    stored: list[Transform] = [_narrow] if settings.dtype == "bfloat16" else []
    return (
        DataLoader(
            train,
            settings.batch_size,
            shuffle=True,
            drop_last=True,
            num_workers=num_workers,
            transform=Compose(
                [*_before(settings, found), *scale, *_transforms_of_scaled(settings, found.size), *stored]
            ),
            seed=settings.seed,
            shard=shard,
        ),
        DataLoader(
            val,
            VALIDATION_BATCH_SIZE,
            num_workers=num_workers,
            transform=Compose([*scale, *stored]),
            seed=0,
            shard=shard,
        ),
    )


def _before(settings: Settings, form: Preprocessing) -> list[Transform]:
    """Return the transforms that need pixels from 0 to 1. These transforms fill empty areas with the mean."""
    x, mean = settings.color_jitter, form.mean
    number, strength = changes_of(settings.rand_augment) or (0, 0)
    found: list[Transform] = [RandAugment(number, strength, fill=mean)] if number else []
    if settings.trivial_augment:
        found.append(TrivialAugmentWide(fill=mean))
    return [*found, ColorJitter(x, x, x)] if x else found


def _transforms_of_scaled(settings: Settings, size: int) -> list[Transform]:
    """Return the transforms of scaled pixels. They fill empty areas with 0, which is the mean after scaling."""
    found: list[Transform] = []
    if settings.crop_padding:
        found.append(RandomCrop(size, padding=settings.crop_padding))
    if settings.crop_scale < 1:
        found.append(RandomResizedCrop(size, scale=(settings.crop_scale, 1)))
    if settings.hflip:
        found.append(RandomHorizontalFlip(settings.hflip))
    if settings.vflip:
        found.append(RandomVerticalFlip(settings.vflip))
    if settings.rotate:
        found.append(RandomRotation(settings.rotate, "bilinear"))
    if settings.perspective:
        found.append(RandomPerspective(settings.perspective))
    if settings.blur:
        reach = min(math.ceil(3 * settings.blur), size - 1)  # three deviations cover nearly all of the weights
        found.append(GaussianBlur(2 * reach + 1, (min(LEAST_BLUR, settings.blur), settings.blur)))
    if settings.cutout:
        if settings.cutout >= size:
            raise ValueError(f"cutout is {settings.cutout}; expected less than the images' size, {size}")
        share = (settings.cutout / size) ** 2
        found.append(RandomErasing(p=1, scale=(share, share), ratio=(1, 1)))
    return found


def _narrow(images: Array, generator: Any) -> Array:  # noqa: ARG001
    return images.astype(dtypes.bfloat16)


class Mixed:
    """Iterates over the batches of a loader and mixes their images and labels. Each batch has its own random draws."""

    def __init__(self, loader: DataLoader, mixing: Mixing) -> None:
        self.loader, self.mixing = loader, mixing

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        for images, labels in self.loader:
            place, (rank, _) = self.loader.state_dict(), self.loader.shard
            stream = (place["seed"], place["epoch"], place["batch"], rank, 1)  # 1: no other stream has five numbers
            yield self.mixing(images, labels, np.random.default_rng(stream))


def mixed(settings: Settings, loader: DataLoader, classes: int) -> Any:
    """Return the loader. If the settings ask for MixUp or CutMix, return a Mixed of the loader."""
    if settings.mixup:
        return Mixed(loader, data.MixUp(settings.mixup, classes))
    return Mixed(loader, data.CutMix(settings.cutmix, classes)) if settings.cutmix else loader


def folder_of(dataset: Any) -> ImageFolder | None:
    """Return the folder of pictures that a dataset reads from; return None if it reads from no folder."""
    inner = dataset.dataset if isinstance(dataset, Subset) else dataset
    return inner if isinstance(inner, ImageFolder) else None


def labels_of(dataset: Any) -> Array:
    """Return the labels of all images. No image is read."""
    if isinstance(dataset, Subset):
        return labels_of(dataset.dataset)[dataset.indices]
    return dataset.labels if isinstance(dataset, ImageFolder) else dataset.arrays[1]


def balanced(labels: Array, classes: int) -> Array:
    """Return weights with which every class has the same total weight: weight_c = N / (classes * n_c).

    The weight of a class without images is 0.
    """
    counts = np.bincount(labels, minlength=classes)
    return np.where(counts, len(labels) / (classes * np.maximum(counts, 1)), 0).astype(np.float32)


def _mean_and_std(train: Any) -> tuple[list[float], list[float]]:
    """Return the mean and standard deviation of each channel in float64. Images are read 1,000 at a time."""
    sums: list[Array] = []
    count = 0
    for start in range(0, len(train), 1000):
        images = np.asarray(train[start : start + 1000][0], np.float64)
        sums.append(np.stack([images.sum((0, 2, 3)), (images**2).sum((0, 2, 3))]))
        count += images.size // images.shape[1]
    first, second = np.sum(sums, axis=0) / count
    std = np.sqrt(np.maximum(second - first**2, 0))
    return first.tolist(), [value if value > 0 and math.isfinite(value) else 1.0 for value in std.tolist()]
