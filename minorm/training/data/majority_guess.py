"""Compare a model's accuracy with that of a constant guess.

The constant guess is the largest class, and its accuracy is the share of images that belong to this class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minorm.support.safe_names import quoted
from minorm.training.data.preparing import labels_of
from minorm.training.files.outcome import readable


@dataclass(frozen=True)
class Guess:
    """The largest class of some images, and the accuracy of always guessing it."""

    name: str
    accuracy: float

    def __str__(self) -> str:
        return (
            f"always guessing the largest class ({quoted(self.name)}) would have an accuracy of "
            f"{percent(self.accuracy)}"
        )

    def beside(self, accuracy: float, what: str = "validation accuracy") -> str:
        """Return a sentence that compares `accuracy` with the guess; `what` is the name of the accuracy."""
        said = f"{what} {percent(accuracy)}; {self}"
        return said if accuracy > self.accuracy else f"{said}: the model is no better than guessing"


def largest_class(dataset: Any, names: Sequence[str] = ()) -> Guess:
    """Return the guess for those images of a dataset that are not broken.

    If the class has no name, the guess names its number.
    """
    labels = labels_of(dataset)[list(readable(dataset))]
    if not len(labels):
        raise ValueError("no image could be read; expected at least one")
    counts = np.bincount(labels)
    label = int(counts.argmax())
    return Guess(names[label] if label < len(names) else str(label), int(counts[label]) / len(labels))


def percent(share: float) -> str:
    """Return the share in percent, as text: 88.1 %."""
    return f"{100 * share:.1f} %"
