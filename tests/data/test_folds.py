"""Folds: each sample validates once, classes are spread evenly, as scikit-learn spreads them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm.data import k_fold, stratified_k_fold

LABELS = np.random.default_rng(0).choice(5, 203, p=[0.5, 0.25, 0.15, 0.08, 0.02])


def check(folds: Any, count: int, k: int) -> None:
    """k pairs that share no index, whose validation parts are all of them and of nearly one size."""
    assert len(folds) == k
    assert np.array_equal(np.sort(np.concatenate([val for _, val in folds])), np.arange(count))
    for train, val in folds:
        assert np.array_equal(np.sort(np.concatenate([train, val])), np.arange(count))
    sizes = [len(val) for _, val in folds]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("k", [2, 3, 7, 10])
def test_each_class_is_spread_evenly(k: int) -> None:
    folds = stratified_k_fold(LABELS, k, seed=3)
    check(folds, len(LABELS), k)
    counts = np.array([np.bincount(LABELS[val], minlength=5) for _, val in folds])
    assert np.ptp(counts, axis=0).max() <= 1


@pytest.mark.parametrize("k", [2, 5])
@pytest.mark.filterwarnings("ignore:The least populated class")
def test_counts_are_scikit_learns(k: int) -> None:
    selection = pytest.importorskip("sklearn.model_selection")
    theirs = selection.StratifiedKFold(k, shuffle=True, random_state=0).split(LABELS, LABELS)
    expected = np.array([np.bincount(LABELS[val], minlength=5) for _, val in theirs])
    found = np.array([np.bincount(LABELS[val], minlength=5) for _, val in stratified_k_fold(LABELS, k)])
    assert np.array_equal(np.sort(found, axis=0), np.sort(expected, axis=0))


@pytest.mark.parametrize("labels", [LABELS.tolist(), mn.tensor(LABELS), np.array(list("abcde"))[LABELS]])
def test_labels_may_be_of_any_kind(labels: Any) -> None:
    found, expected = stratified_k_fold(labels, 4, 1), stratified_k_fold(LABELS, 4, 1)
    assert all(np.array_equal(a, b) for x, y in zip(found, expected, strict=True) for a, b in zip(x, y, strict=True))


def test_the_seed_decides() -> None:
    first, again, other = (stratified_k_fold(LABELS, 3, seed)[0][1] for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("count", [10, 11])
def test_folds_without_labels(count: int) -> None:
    check(k_fold(count, 4), count, 4)
    check(k_fold(list(range(count)), 4, seed=5), count, 4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: k_fold(10, 1), "k_fold: k is 1; expected an int of at least 2"),
        (lambda: k_fold(3, 4), "k_fold: k is 4; expected at most the number of samples, 3"),
        (lambda: stratified_k_fold([[0, 1]], 2), "labels are int64 of shape (1, 2); expected one integer or name"),
        (lambda: stratified_k_fold([0.5, 1.0], 2), "labels are float64 of shape (2,); expected one integer or name"),
    ],
)
def test_mistakes(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        make()
