"""Reads pictures from one folder for each class. Names are listed once; pictures are decoded when a batch needs them.

    images/cat/001.jpg
    images/dog/002.png

Between two batches only the names are in memory. Classes are the folders' names in alphabetical order, so that the same
folder gives the same labels on every machine.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minorm.data.argument_texts import PICTURES
from minorm.data.collate import stacked
from minorm.data.dataset import Array, FilePath, Subset
from minorm.data.listing import OTHER_PICTURES, LeftOut, pictures_by_class
from minorm.data.pictures.decoding import BrokenImage, read_image
from minorm.data.settings_repr import Shown
from minorm.data.transforms.compose import applied
from minorm.data.transforms.transform import Transform
from minorm.devices import generators
from minorm.support.argument_errors import outside
from minorm.support.documented import documented
from minorm.support.safe_names import quoted
from minorm.tensor.tensor import Tensor

# Attributes that programs for torchvision set, and the settings to use here.
TORCHVISIONS = {
    "loader": "a subclass with a __getitem__",
    "samples": "files and labels",
    "imgs": "files and labels",
    "targets": "labels",
    "class_to_idx": "classes, when the dataset is made",
}


class Derived:
    """An attribute that is computed when it is read. A subclass may assign a value instead."""

    def __init__(self, compute: Callable[[Any], Any]) -> None:
        self.compute, self.__doc__ = compute, compute.__doc__

    def __get__(self, folder: Any, kind: Any = None) -> Any:
        """Return the value. If the attribute is read from the class, return the descriptor itself."""
        return self if folder is None else self.compute(folder)


@documented(
    PICTURES,
    classes="the names of the classes with labels 0, 1 ...; None takes the names of the folders, in order",
    transform="a function of the picture, as in torchvision. The picture is a Tensor C x H x W of bytes in the size "
    "of the file; image_size is then not used. ToTensor divides the bytes by 255. To change whole batches, which is "
    "faster, pass a transform to DataLoader instead",
    target_transform="a function of the label, an int",
)
class ImageFolder(Shown):
    """dataset[i] = (image, label): pictures in one folder for each class, float32 channels x size x size from 0 to 1.

        classes      names, in the order of labels; `class_to_idx[name]` is the label of a name
        files        the pictures' paths relative to root; `labels[i]` is the label of `files[i]`. As in torchvision,
                     `samples` and `imgs` are pairs of the whole path and the label, and `targets` are the labels as
                     ints
        broken       a dict from path to reason, for files that were left out because they could not be read
        left_out     files that were left out because of their names; `str(left_out)` counts them by ending
        notes        sentences on how the folder was understood

    Pictures in a format that cannot be read, such as `.heic`, are left out, with a warning unless skip_broken=True.
    Raises ValueError, which names the folder, if there are no pictures, if a class has no pictures, or if `classes`
    lacks a folder's name. A picture is read only when it is used. If the picture is broken, BrokenImage is raised, with
    the file's name.

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
        >>> dataset.class_to_idx, dataset.targets
        ({'cat': 0, 'dog': 1}, [0, 1])
    """

    def __init__(
        self,
        root: FilePath,
        image_size: int = 64,
        channels: int = 3,
        classes: Sequence[str] | None = None,
        skip_broken: bool = False,
        max_bytes: int | None = None,
        *,
        transform: Transform | None = None,
        target_transform: Callable[[int], Any] | None = None,
    ) -> None:
        if callable(image_size):
            raise TypeError("ImageFolder: image_size is a function; expected an int; pass a transform by name: "
                            "ImageFolder(root, transform=...)")  # fmt: skip
        for name, function in (("transform", transform), ("target_transform", target_transform)):
            if function is not None and not callable(function):
                raise TypeError(f"ImageFolder: {name} is a {type(function).__name__}; expected a function, or None; "
                                "transforms.Compose makes a list of functions one function")  # fmt: skip
        if not isinstance(image_size, (int, np.integer)) or isinstance(image_size, bool) or image_size < 1:
            raise ValueError(f"ImageFolder: image_size is {image_size!r}; expected an int of at least 1")
        if channels not in (1, 3):
            raise ValueError(f"ImageFolder: channels is {channels!r}; expected 3 for RGB or 1 for grey")
        self.root, self.image_size, self.channels = os.fsdecode(root), int(image_size), channels
        self.skip_broken, self.max_bytes = skip_broken, max_bytes
        self.transform, self.target_transform = transform, target_transform
        self.left_out, self.notes = LeftOut(), list[str]()
        found = self._found()
        self.classes = list(found) if classes is None else list(classes)
        self.files, self.labels = _listed(self.root, found, self.classes)
        self.broken: dict[str, str] = {}
        self._lock = threading.Lock()  # batches are read in threads
        if not skip_broken and (others := self.left_out.of_kinds(OTHER_PICTURES)).counts:
            warnings.warn(f"ImageFolder: left out of {quoted(self.root)}: {others}", stacklevel=outside())

    def _made_with(self, name: str, value: Any) -> dict[str, Any]:
        """Return the attributes after the setting `name` has changed to `value`.

        `left_out` and `notes` are kept unless `root` changes, because other modules have added to these two attributes.
        """
        made = super()._made_with(name, value)
        return made if name == "root" else {**made, "left_out": self.left_out, "notes": self.notes}

    def _found(self) -> dict[str, list[str]]:
        """Return a dict from each class name to the sorted paths of its pictures, relative to root."""
        return pictures_by_class(self.root, self.left_out)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in TORCHVISIONS and type(self) is ImageFolder:
            raise AttributeError(f"ImageFolder.{name}: there is no such setting; expected {TORCHVISIONS[name]}")
        super().__setattr__(name, value)

    @Derived
    def class_to_idx(self) -> dict[str, int]:
        """A dict from each class's name to its label."""
        return {name: label for label, name in enumerate(self.classes)}

    @Derived
    def samples(self) -> list[tuple[str, int]]:
        """Pairs of path and label, one for each picture."""
        return [(self.path(index), label) for index, label in enumerate(self.targets)]

    imgs = samples

    @Derived
    def targets(self) -> list[int]:
        """The labels of the pictures as ints."""
        return [int(label) for label in self.labels]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if self.transform is None:
            image = self.pixels(index).astype(np.float32) / np.float32(255)
        else:
            image = applied(self.transform, Tensor(self.pixels(index)), generators.source(None))
        label = self.labels[index]
        return image, label if self.target_transform is None else self.target_transform(int(label))

    def pixels(self, index: int) -> Array:
        """Return the picture as bytes.

        The picture has image_size x image_size pixels or, if there is a transform, the size that it has in the file.
        """
        size = self.image_size if self.transform is None else None
        return read_image(self.path(index), size, self.channels, self.max_bytes)

    def path(self, index: int) -> str:
        """Return the picture's path."""
        return os.path.join(self.root, self.files[index])

    def batch(self, indices: Array) -> Any:
        """Return the pictures and labels at `indices`. With skip_broken=True, broken pictures are left out."""
        if self.transform is not None or self.target_transform is not None:
            found: list[Any] = []
            self._whole(indices, lambda index: found.append(self[index]))
            return stacked(found) if found else (np.empty(0, np.float32), np.empty(0, np.int64))
        images = np.empty((len(indices), self.channels, self.image_size, self.image_size), np.float32)
        rows = iter(images)  # a broken picture uses no row: it is decoded before next(rows)
        kept = self._whole(indices, lambda index: np.divide(self.pixels(index), np.float32(255), out=next(rows)))
        return images[: len(kept)], self.labels[indices[kept]]

    def _whole(self, indices: Array, read: Callable[[int], Any]) -> list[int]:
        """Read the pictures at `indices`, and return the positions in `indices` of the pictures that are not broken.

        With skip_broken=True, broken pictures are recorded in `broken`; otherwise the first broken picture raises an
        error.
        """
        kept: list[int] = []
        for row, index in enumerate(indices.tolist()):
            try:
                read(index)
            except (BrokenImage, OSError) as error:
                if not self.skip_broken:
                    raise
                with self._lock:
                    self.broken[self.path(index)] = str(error)
                continue
            kept.append(row)
        return kept

    def split(self, fraction: float = 0.2, seed: int = 0) -> tuple[Subset, Subset]:
        """Return (train, val). val gets the share `fraction` of each class.

        If a class has at least two pictures, val gets at least one of them.
        """
        chosen = self.drawn(np.ones(len(self), bool), fraction, seed)
        return Subset(self, np.flatnonzero(~chosen)), Subset(self, np.flatnonzero(chosen))

    def drawn(self, among: Array, fraction: float = 0.2, seed: int = 0) -> Array:
        """Return a bool array: True for pictures drawn for val. Pictures where `among` is False are not drawn."""
        chosen = np.zeros(len(self), bool)
        for label in range(len(self.classes)):
            members = np.flatnonzero((self.labels == label) & among)
            count = min(max(1, round(len(members) * fraction)), len(members) - 1)
            chosen[np.random.default_rng((seed, label)).permutation(members)[: max(0, count)]] = True
        return chosen


def _listed(root: str, found: dict[str, list[str]], classes: list[str]) -> tuple[list[str], Array]:
    """Return all files, and a label for each file."""
    places = {name: label for label, name in enumerate(classes)}
    if unknown := [name for name in found if name not in places]:
        raise ValueError(f"ImageFolder: {quoted(os.path.join(root, unknown[0]))} is a class that the training images "
                         "do not have; expected "
                         f"{', '.join(classes[:20])}{' ...' if len(classes) > 20 else ''}")  # fmt: skip
    files = [file for paths in found.values() for file in paths]
    labels = np.repeat([places[name] for name in found], [len(paths) for paths in found.values()])
    return files, labels.astype(np.int64)
