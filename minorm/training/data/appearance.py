"""Find out the size of a folder's pictures, whether they have colours, and whether mirroring changes their class.

Only a sample of the training pictures, spread evenly over them, is read. Broken pictures are skipped here. An error
names a broken picture when the training reads this picture.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from minorm.data import BrokenImage, ImageFolder, Subset
from minorm.data.pictures import picture_files
from minorm.serialization import opening

MEASURED, DECODED = 64, 16  # pictures whose size is read, and whose colours
GREY = 6.0  # of 255: by how much the channels of a grey picture may differ, as a JPEG's do
SIDES = {"left", "right"}


def shorter_side(train: Subset) -> int | None:
    """Return the median of the pictures' shorter sides, in pixels; return None if no size can be read."""
    sides = []
    for path in map(train.dataset.path, _sample(train, MEASURED)):
        try:
            picture = picture_files.look(opening.contents(path, "choose_settings"))
        except (ValueError, OSError):
            continue
        sides.append(min(picture.width, picture.height))
    return int(np.median(sides)) if sides else None


def why_no_mirror(train: Subset) -> str:
    """Return why a mirrored picture may no longer belong to its class; return "" if mirroring seems harmless.

    Writing reads from left to right, and grey pictures are often writing, drawings or scans.
    """
    names = train.dataset.classes
    if any(SIDES & set(re.split("[^a-z]+", name.lower())) for name in names):
        return "a class is called left or right"
    if sum(len(name) == 1 or name.isdecimal() for name in names) > len(names) / 2:
        return "the classes are called like digits or letters"
    spreads = list(_spreads(train))
    if spreads and np.median(spreads) < GREY:
        return "the pictures are grey"
    return ""


def _spreads(train: Subset) -> Iterator[float]:
    """Yield the mean difference between the channels for each picture of a sample."""
    folder: ImageFolder = train.dataset
    for index in _sample(train, DECODED):
        try:
            pixels = folder.pixels(index)
        except (BrokenImage, OSError):
            continue
        yield float(np.ptp(pixels.astype(np.int16), axis=0).mean())


def _sample(train: Subset, most: int) -> Sequence[int]:
    """Return the indices of at most `most` pictures of the folder, spread evenly."""
    places = np.linspace(0, len(train) - 1, min(most, len(train))).round().astype(int)
    return [int(place) for place in train.indices[places]]
