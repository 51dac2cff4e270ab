"""Splits samples for cross-validation: each sample validates in one fold and trains in the other folds."""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.data.dataset import Array
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor

FOLDS = {
    "k": "how many folds, at least 2",
    "seed": "the seed of the draw: the same seed gives the same folds",
}


@documented(FOLDS, dataset="an object with a length, or a length")
def k_fold(dataset: Any, k: int = 5, seed: int = 0) -> list[tuple[Array, Array]]:
    """Return k pairs (train, validation) of indices, drawn at random; each index is in exactly one validation part.

    The parts differ in size by at most one. Raises ValueError for fewer samples than folds.

    Example:
        >>> folds = mn.data.k_fold(10, k=3)
        >>> [(len(train), len(val)) for train, val in folds]
        [(6, 4), (7, 3), (7, 3)]
    """
    count = int(dataset) if isinstance(dataset, (int, np.integer)) else len(dataset)
    return _dealt("k_fold", np.zeros(count, np.int64), k, seed)


@documented(FOLDS, labels="the class of each sample, as integers or names")
def stratified_k_fold(labels: Any, k: int = 5, seed: int = 0) -> list[tuple[Array, Array]]:
    """Return k folds in which each class is spread evenly over the validation parts.

    Two validation parts differ by at most one in their numbers of samples of each class, and in their sizes. A class
    with fewer samples than k is missing in some parts.

    Example:
        >>> labels = [0, 0, 0, 0, 0, 0, 1, 1, 1]
        >>> [sum(labels[i] for i in val) for _, val in mn.data.stratified_k_fold(labels, k=3)]
        [1, 1, 1]
    """
    array = labels.cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if array.ndim != 1 or array.dtype.kind not in "iubUS":
        raise ValueError(f"stratified_k_fold: labels are {array.dtype} of shape {array.shape}; expected one integer or "
                         "name for each sample")  # fmt: skip
    return _dealt("stratified_k_fold", np.unique(array, return_inverse=True)[1], k, seed)


def _dealt(name: str, classes: Array, k: int, seed: int) -> list[tuple[Array, Array]]:
    """Shuffle the samples within each class; then assign them to the folds in turn, class after class."""
    if not isinstance(k, (int, np.integer)) or isinstance(k, bool) or k < 2:
        raise ValueError(f"{name}: k is {k!r}; expected an int of at least 2")
    if len(classes) < k:
        raise ValueError(f"{name}: k is {k}; expected at most the number of samples, {len(classes)}")
    shuffled = np.random.default_rng(seed).permutation(len(classes))
    order = shuffled[np.argsort(classes[shuffled], kind="stable")]
    fold = np.empty(len(classes), np.int64)
    fold[order] = np.arange(len(classes)) % k
    return [(np.flatnonzero(fold != i), np.flatnonzero(fold == i)) for i in range(k)]
