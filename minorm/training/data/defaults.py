"""Choose settings that you do not give, so that they fit your own images, and give a reason for each of these settings.

    epochs       enough epochs for STEPS steps, so that a few images are seen more often than many
    batch size   smaller for few images
    image size   the largest of SIZES such that half of the pictures are at least this large
    transforms   random crops for large images, shifts for small images, and mirroring for pictures in colour

The digits, MNIST, Fashion-MNIST and CIFAR-10 keep the settings of settings.py. Arrays are not transformed: they may be
spectra or maps, and mirroring would change their meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from minorm.data import Subset
from minorm.support.documented import documented
from minorm.training.data import appearance
from minorm.training.data.preparing import folder_of, load_data
from minorm.training.model.own_code import is_file
from minorm.training.model.pretrained import Pretrained
from minorm.training.settings import USUAL_DATA, Settings

Chosen = dict[str, tuple[Any, str]]  # a value and the reason for it, by the name of the setting

OWN = ("folder", "numpy")  # data sets of any size
STEPS = 600  # optimizer steps that a network needs to learn something from few images
LEAST_EPOCHS, MOST_EPOCHS = Settings.epochs, 100
FEW = 2_000  # training images; fewer come in small batches
SMALL_BATCH, BATCH = 32, Settings.batch_size
SIZES = (32, 48, 64)  # of images, in pixels: at 96 a step would take more than twice as long as at 64
LARGE = 48  # a part of an image of this size or more shows what it is
CROP_SCALE = 0.5  # the smallest share of a large image that a random crop keeps
HFLIP = 0.5


class Choice(NamedTuple):
    """Settings, the reason for each setting that was chosen, and the (train, validation) datasets of these settings."""

    settings: Settings
    reasons: dict[str, str]
    sets: Any


@documented(
    {},
    path="the folder or file of the images, for all data but the digits",
    max_bytes="the bytes of memory that reading a file may take; None is the reader's own limit",
    init="a file of weights to begin with, or a run's folder: it decides model, image_size, mean and std",
    given="the settings that the user gave, by name; they stay as they are",
)
def choose_settings(path: Any = None, max_bytes: int | None = None, *, init: str | None = None, **given: Any) -> Choice:
    """Return (settings, reasons, sets) for the images at `path`.

    These are the Settings, the reason for each setting that was chosen, and the (train, validation) datasets.

    For your own images (data="folder" or data="numpy"), epochs and batch_size depend on the number of images. For a
    folder, image_size, hflip, crop_padding and crop_scale depend on what the pictures look like. Raises ValueError for
    a setting outside its range.

    Example:
        >>> import os, tempfile
        >>> from PIL import Image
        >>> with tempfile.TemporaryDirectory() as root:
        ...     for name in ("cat", "dog"):
        ...         os.mkdir(f"{root}/{name}")
        ...         for i in range(10):
        ...             Image.new("RGB", (80, 70), "red").save(f"{root}/{name}/{i}.png")
        ...     settings, reasons, sets = mn.training.choose_settings(root, data="folder", lr=0.1)
        >>> settings.image_size, reasons["image_size"]
        (64, 'half of the pictures are at least 70 pixels high and wide')
    """
    given = given if init is None else {**_of_file(init, given), **given}
    settings = Settings(**{"epochs": MOST_EPOCHS, **given})  # a wrong setting is an error before images are read
    sets = load_data(settings, path, max_bytes=max_bytes)
    if settings.data not in OWN:
        return Choice(Settings(**given), {}, sets)
    train, found = sets[0], Chosen()
    if folder_of(train) is not None:
        found = _by_appearance(train, given.get("image_size"))
    batch_size, _ = found["batch_size"] = _batch_size(len(train))
    found["epochs"] = _epochs(len(train), given.get("batch_size", batch_size), settings.accumulate)
    if "crop_padding" in given or "crop_scale" in given:  # either is a way to crop
        found = {name: choice for name, choice in found.items() if not name.startswith("crop_")}
    found = {name: choice for name, choice in found.items() if name not in given}
    settings = Settings(**given, **{name: value for name, (value, _) in found.items()})
    for folder in filter(None, map(folder_of, sets)):
        folder.image_size = settings.image_size
    return Choice(settings, {name: reason for name, (_, reason) in found.items()}, sets)


def _of_file(init: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in a file of weights.

    The model is left out if code builds it, because only the user may name code that is run.
    """
    found = Pretrained.read(init)
    model = {} if found.model is None or is_file(found.model) else {"model": found.model}
    return {**model, **found.form(given.get("data", USUAL_DATA))}


def _epochs(images: int, batch_size: int, accumulate: int) -> tuple[int, str]:
    """Return how many epochs have about STEPS steps, and a text with the number of steps of these epochs.

    The number of epochs is from LEAST_EPOCHS to MOST_EPOCHS.
    """
    steps = max(1, -(-(images // batch_size) // accumulate))  # in an epoch; only whole batches are used
    epochs = min(MOST_EPOCHS, max(LEAST_EPOCHS, -(-STEPS // steps)))
    return epochs, f"{epochs * steps:,} steps"


def _batch_size(images: int) -> tuple[int, str]:
    """Return the batch size and the reason for it. The size is SMALL_BATCH for few images and BATCH for many images.

    For very few images, the size is a power of two that gives about four batches.
    """
    few = images < FEW
    usual = SMALL_BATCH if few else BATCH
    if images >= 4 * usual:
        return usual, f"{'fewer than' if few else 'at least'} {FEW:,} images"
    return max(2, 1 << max(1, (images // 4).bit_length() - 1)), "four batches per epoch"


def _by_appearance(train: Subset, image_size: int | None) -> Chosen:
    """Return the image size and transforms that fit the pictures. `image_size` is None if the user gave no size."""
    found, size = Chosen(), Settings.image_size if image_size is None else image_size
    if image_size is None and (side := appearance.shorter_side(train)) is not None:
        size = max((size for size in SIZES if size <= side), default=SIZES[0])
        found["image_size"] = size, f"half of the pictures are at least {side} pixels high and wide"
    if size >= LARGE:
        found["crop_scale"] = CROP_SCALE, "a part of such an image shows enough"
    else:
        found["crop_padding"] = size // 8, "images of this size are shifted, not cropped"
    why_not = appearance.why_no_mirror(train)
    found["hflip"] = (0.0, why_not) if why_not else (HFLIP, "the pictures are in colour")
    return found
