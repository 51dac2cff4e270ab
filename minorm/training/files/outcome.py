"""Collect a model's right and wrong answers: a confusion matrix, and the misclassified images with the largest losses.

confusion[i, j]   the number of images of class i that were predicted as class j
loss of an image  -log of the probability that the model gives to its true class
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from minorm.data import DataLoader
from minorm.nn import Module
from minorm.support.safe_names import printable
from minorm.tensor.tensor import Tensor
from minorm.training.data.preparing import folder_of
from minorm.training.steps.loop import predict

Array = Any


@dataclass(frozen=True)
class Outcome:
    """A model's answers: the index in the dataset, the label and all probabilities of each image that could be read."""

    indices: Array
    labels: Array
    probabilities: Array

    @property
    def predicted(self) -> Array:
        """The most probable class of each image."""
        return self.probabilities.argmax(1)

    @property
    def losses(self) -> Array:
        """The cross entropy of each image."""
        own = self.probabilities[np.arange(len(self.labels)), self.labels]
        return -np.log(np.maximum(own, np.finfo(np.float64).tiny))

    @property
    def accuracy(self) -> float:
        """The share of images that are predicted right."""
        return float((self.predicted == self.labels).mean())

    @property
    def confusion(self) -> Array:
        """The confusion matrix: counts of images by class and prediction."""
        classes = self.probabilities.shape[1]
        found = np.zeros((classes, classes), np.int64)
        np.add.at(found, (self.labels, self.predicted), 1)
        return found

    def worst(self, count: int) -> Array:
        """Return the rows of the `count` misclassified images with the largest losses, sorted from the largest loss."""
        order = np.argsort(-self.losses, kind="stable")
        return order[self.predicted[order] != self.labels[order]][:count]


def outcome(model: Module, loader: DataLoader) -> Outcome:
    """Return the Outcome of a model on a loader's images in order. The model must give a number for each class."""
    labels, found = [], []
    for images, targets in loader:
        if not targets.shape[0]:
            continue
        labels.append(targets.cpu().numpy())
        found.append(softmax(predict(model, images).cpu().numpy()))
    if not labels:
        raise ValueError("no image could be read; expected at least one")
    return Outcome(np.array(list(readable(loader.dataset))), np.concatenate(labels), np.concatenate(found))


def softmax(logits: Array) -> Array:
    """exp(x) / sum of exp(x) along axis 1, in float64. A row with NaN or +infinity becomes NaN."""
    wide = logits.astype(np.float64)
    with np.errstate(invalid="ignore"):
        powers = np.exp(wide - wide.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def clipped(name: str, most: int = 18) -> str:
    """Return a class's name with printable characters only, cut to `most` characters."""
    shown = printable(name)
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def pixels(dataset: Any, index: int) -> Array:
    """Return an image of a dataset as bytes from 0 to 255. An image with values outside of 0 to 1 is rescaled first."""
    given = dataset[index][0]
    image = np.asarray(given.cpu().numpy() if isinstance(given, Tensor) else given)
    low, high = float(image.min()), float(image.max())
    if low < 0 or high > 1:
        image = (image - low) / max(high - low, 1e-12)
    return np.rint(image * 255).astype(np.uint8)


def readable(dataset: Any) -> Iterator[int]:
    """Yield the indices of those images of a dataset whose files are not broken."""
    folder = folder_of(dataset)
    for index in range(len(dataset)):
        if folder is None or not folder.broken or folder.path(int(dataset.indices[index])) not in folder.broken:
            yield index
