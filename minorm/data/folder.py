"""A folder a class: names are listed once, pictures are decoded when a batch asks for them.

    images/cat/001.jpg            images/train/cat/001.jpg
    images/dog/002.png            images/val/cat/007.jpg

Between two batches nothing but the names is in memory. Classes are the folders' names in alphabetical order, so that
the same folder gives the same labels on every machine.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from minorm.data.argument_texts import PICTURES
from minorm.data.dataset import Array, FilePath, Subset
from minorm.data.pictures import ENDINGS, BrokenImage, read_image
from minorm.data.showing import Shown
from minorm.documented import documented
from minorm.masking import quoted

TRAIN, VAL = "train", "val"
TORCHVISIONS = {
    "transform": "DataLoader(transform=...), or a subclass with a __getitem__",
    "target_transform": "a subclass with a __getitem__",
    "loader": "a subclass with a __getitem__",
    "samples": "files and labels",
    "imgs": "files and labels",
    "targets": "labels",
}  # names of torchvision's attributes, which programs set


@documented(PICTURES, classes="names that are the labels 0, 1 ...; None takes those of the folders, in order")
class ImageFolder(Shown):
    """dataset[i] = (image, label): pictures in one folder a class, float32 channels x size x size from 0 to 1.

        classes      names, in the order of labels
        files        paths below root; `labels[i]` is the label of files[i]
        broken       what was left out: path to reason

    ValueError, which names the folder, where there are no pictures, a class has none, or `classes` lacks a folder's
    name. A picture is read when it is asked for: BrokenImage names its file.

    Example:
        >>> import os, tempfile
        >>> from PIL import Image
        >>> with tempfile.TemporaryDirectory() as root:
        ...     for name in ("cat", "dog"):
        ...         os.mkdir(f"{root}/{name}")
        ...         Image.new("RGB", (9, 9), "white").save(f"{root}/{name}/1.png")
        ...     dataset = mn.data.ImageFolder(root, image_size=8)
        ...     image, label = dataset[1]
        >>> dataset.classes, image.shape, int(label)
        (['cat', 'dog'], (3, 8, 8), 1)
    """

    def __init__(
        self,
        root: FilePath,
        image_size: int = 64,
        channels: int = 3,
        classes: Sequence[str] | None = None,
        skip_broken: bool = False,
        max_bytes: int | None = None,
    ) -> None:
        if not isinstance(image_size, (int, np.integer)) or isinstance(image_size, bool) or image_size < 1:
            raise ValueError(f"ImageFolder: image_size is {image_size!r}; expected an int of at least 1")
        if channels not in (1, 3):
            raise ValueError(f"ImageFolder: channels is {channels!r}; expected 3 for RGB or 1 for grey")
        self.root, self.image_size, self.channels = os.fsdecode(root), int(image_size), channels
        self.skip_broken, self.max_bytes = skip_broken, max_bytes
        found = _scan(self.root)
        self.classes = list(found) if classes is None else list(classes)
        self.files, self.labels = _listed(self.root, found, self.classes)
        self.broken: dict[str, str] = {}
        self._lock = threading.Lock()  # batches are read in threads

    def __setattr__(self, name: str, value: Any) -> None:
        if name in TORCHVISIONS and type(self) is ImageFolder:
            raise AttributeError(f"ImageFolder.{name}: there is no such setting; expected {TORCHVISIONS[name]}")
        super().__setattr__(name, value)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Array, np.int64]:
        return self.pixels(index).astype(np.float32) / np.float32(255), self.labels[index]

    def pixels(self, index: int) -> Array:
        """The picture as bytes."""
        return read_image(self.path(index), self.image_size, self.channels, self.max_bytes)

    def path(self, index: int) -> str:
        """Where the picture lies."""
        return os.path.join(self.root, self.files[index])

    def batch(self, indices: Array) -> tuple[Array, Array]:
        """The pictures at these positions, without the broken ones where those are skipped."""
        images = np.empty((len(indices), self.channels, self.image_size, self.image_size), np.float32)
        kept: list[int] = []
        for row, index in enumerate(indices.tolist()):
            try:
                np.divide(self.pixels(index), np.float32(255), out=images[len(kept)])
            except (BrokenImage, OSError) as error:
                if not self.skip_broken:
                    raise
                with self._lock:
                    self.broken[self.path(index)] = str(error)
                continue
            kept.append(row)
        return images[: len(kept)], self.labels[indices[kept]]

    def split(self, fraction: float = 0.2, seed: int = 0) -> tuple[Subset, Subset]:
        """(train, val): of each class this share goes to val, at least one picture of those that have two."""
        chosen = np.zeros(len(self), bool)
        for label in range(len(self.classes)):
            members = np.flatnonzero(self.labels == label)
            count = min(max(1, round(len(members) * fraction)), len(members) - 1)
            chosen[np.random.default_rng((seed, label)).permutation(members)[: max(0, count)]] = True
        return Subset(self, np.flatnonzero(~chosen)), Subset(self, np.flatnonzero(chosen))


@documented(
    PICTURES,
    seed="of the fifth that is drawn for val, where there is no folder for it",
    classes="those of a model that is there already, of which some may have no folder; None takes the folders' names",
)
def load_folder(
    root: FilePath,
    image_size: int = 64,
    channels: int = 3,
    seed: int = 0,
    skip_broken: bool = False,
    classes: Sequence[str] | None = None,
    max_bytes: int | None = None,
) -> tuple[Subset, Subset]:
    """(train, val) of a folder of pictures: its folders train/ and val/ where it has both, or a fifth drawn by `seed`.

    Both are Subsets, whose `.dataset` is an ImageFolder. ValueError where there are fewer than two classes, or val/ has
    one that train/ lacks.

    Example:
        >>> import os, tempfile
        >>> from PIL import Image
        >>> with tempfile.TemporaryDirectory() as root:
        ...     for name in ("cat", "dog"):
        ...         os.mkdir(f"{root}/{name}")
        ...         for i in range(5):
        ...             Image.new("RGB", (9, 9), "white").save(f"{root}/{name}/{i}.png")
        ...     train, val = mn.data.load_folder(root, image_size=8)
        >>> len(train), len(val)
        (8, 2)
    """
    given = os.fsdecode(root)
    parts = [os.path.join(given, part) for part in (TRAIN, VAL)]
    if all(map(os.path.isdir, parts)):
        train = _of_two_classes(ImageFolder(parts[0], image_size, channels, classes, skip_broken, max_bytes))
        val = ImageFolder(parts[1], image_size, channels, train.classes, skip_broken, max_bytes)
        return Subset(train, np.arange(len(train))), Subset(val, np.arange(len(val)))
    whole = _of_two_classes(ImageFolder(given, image_size, channels, classes, skip_broken, max_bytes))
    train_part, val_part = whole.split(0.2, seed)
    if not len(val_part):
        raise ValueError(f"load_folder: {quoted(given)} has one image a class; expected at least two in one of them, "
                         "as some are set aside to validate")  # fmt: skip
    return train_part, val_part


def _of_two_classes(folder: ImageFolder) -> ImageFolder:
    if len(folder.classes) < 2:
        raise ValueError(f"load_folder: {quoted(folder.root)} has images of one class alone, "
                         f"{quoted(folder.classes[0])}; expected a folder for each of at least two "
                         "classes")  # fmt: skip
    return folder


def _scan(root: str) -> dict[str, list[str]]:
    """Paths below root by class, in order."""
    try:
        entries = sorted(os.scandir(root), key=lambda entry: entry.name)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"ImageFolder: there is no folder {quoted(root)}") from error
    except NotADirectoryError as error:
        raise NotADirectoryError(
            f"ImageFolder: {quoted(root)} is a file; expected a folder with one folder a class"
        ) from error
    except OSError as error:
        raise type(error)(f"ImageFolder: cannot read {quoted(root)}: {error.strerror}") from error
    names = [entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")]
    if not names:
        loose = sum(entry.name.lower().endswith(ENDINGS) for entry in entries)
        what = f"{loose:,} images and no folder" if loose else "no folders"
        raise ValueError(f"ImageFolder: {quoted(root)} has {what}; expected one folder a class, with its images in it")
    found = {name: _pictures(root, name) for name in names}
    if not any(found.values()):
        raise ValueError(f"ImageFolder: there are no images below {quoted(root)}; expected {', '.join(ENDINGS)} files "
                         "in one folder a class")  # fmt: skip
    if empty := [name for name, files in found.items() if not files]:
        raise ValueError(f"ImageFolder: {quoted(os.path.join(root, empty[0]))} has no images: an empty class; expected "
                         f"{', '.join(ENDINGS)} files, or no such folder")  # fmt: skip
    return found


def _pictures(root: str, name: str) -> list[str]:
    """Below one class's folder, in order; links to folders are not followed further down."""
    found, waiting = [], [name]
    while waiting:
        below = waiting.pop()
        with os.scandir(os.path.join(root, below)) as entries:
            for entry in entries:
                path = f"{below}/{entry.name}"
                if entry.name.startswith("."):
                    continue
                if entry.name.lower().endswith(ENDINGS):
                    found.append(path)
                elif entry.is_dir(follow_symlinks=False):
                    waiting.append(path)
    return sorted(found)


def _listed(root: str, found: dict[str, list[str]], classes: list[str]) -> tuple[list[str], Array]:
    """All files, and the label of each."""
    places = {name: label for label, name in enumerate(classes)}
    if unknown := [name for name in found if name not in places]:
        raise ValueError(f"ImageFolder: {quoted(os.path.join(root, unknown[0]))} is a class that the training images "
                         f"lack; expected {', '.join(classes[:20])}{' ...' if len(classes) > 20 else ''}")  # fmt: skip
    files = [file for paths in found.values() for file in paths]
    labels = np.repeat([places[name] for name in found], [len(paths) for paths in found.values()])
    return files, labels.astype(np.int64)
