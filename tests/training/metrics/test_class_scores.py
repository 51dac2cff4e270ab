"""Scores of a classifier: against scikit-learn, and against the definition where that has another convention."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm.training import (
    calibration_curve,
    expected_calibration_error,
    precision_recall_fscore_support,
    roc_auc_score,
    top_k_accuracy_score,
)


def drawn(seed: int, classes: int = 4, count: int = 60, digits: int = 9) -> tuple[Any, Any]:
    """Draw labels, none of the last class, and probabilities; few digits make ties."""
    rng = np.random.default_rng(seed)
    scores = np.round(rng.dirichlet(np.ones(classes), count), digits)
    return rng.integers(0, classes - 1, count), scores


@pytest.mark.parametrize("average", [None, "macro", "weighted"])
@pytest.mark.parametrize("labels", [None, [3, 0, 1], range(6)])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning")
def test_precision_recall_and_f1_are_scikit_learns(average: str | None, labels: Any) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    true, scores = drawn(0)
    guessed = scores.argmax(1)
    guessed[guessed == 1] = 0  # a class that is never predicted
    found = precision_recall_fscore_support(true, guessed, labels=labels, average=average)
    wanted = metrics.precision_recall_fscore_support(true, guessed, labels=labels, average=average)
    for mine, theirs in zip(found[:3], wanted[:3], strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-15)
    assert (found[3] is None) == (wanted[3] is None)
    assert average is not None or found[3].tolist() == wanted[3].tolist()


@pytest.mark.parametrize("digits", [1, 9])
def test_areas_are_scikit_learns_with_ties_too(digits: int) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    true, scores = drawn(1, digits=digits)
    areas = roc_auc_score(true, scores, average=None)
    for label in range(3):
        wanted = metrics.roc_auc_score(true == label, scores[:, label])
        assert areas[label] == pytest.approx(wanted, abs=1e-12)
        assert roc_auc_score((true == label).astype(int), scores[:, label]) == pytest.approx(wanted, abs=1e-12)
    assert np.isnan(areas[3])
    whole = scores[:, :3] / scores[:, :3].sum(1, keepdims=True)
    for average in ("macro", "weighted"):
        wanted = metrics.roc_auc_score(true, whole, average=average, multi_class="ovr")
        assert roc_auc_score(true, whole, average=average) == pytest.approx(wanted, abs=1e-12)


def test_an_area_is_the_share_of_pairs_in_order() -> None:
    """By the definition, over all pairs; a tie counts half."""
    true, scores = np.array([0, 1, 1, 0, 1]), np.array([0.2, 0.2, 0.7, 0.9, 0.4])
    ours, others = scores[true == 1], scores[true == 0]
    pairs = [(a > b) + 0.5 * (a == b) for a in ours for b in others]
    assert roc_auc_score(true, scores) == pytest.approx(np.mean(pairs))
    assert np.isnan(roc_auc_score([1, 1], [0.1, 0.2]))
    assert np.isnan(roc_auc_score([0, 0], [[1.0], [1.0]]))


@pytest.mark.parametrize("k", [1, 2, 3, 9])
def test_top_k_is_scikit_learns_without_ties(k: int) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    true, scores = drawn(2)
    labels = range(4)
    found = top_k_accuracy_score(true, scores, k=k)
    assert found == pytest.approx(
        metrics.top_k_accuracy_score(true, scores, k=min(k, 3), labels=labels) if k < 4 else 1
    )
    assert found == np.mean([true[i] in np.argsort(-scores[i])[:k] for i in range(len(true))])


def test_of_equal_scores_the_lower_class_comes_first_as_in_argmax() -> None:
    true, scores = [0, 1, 2], np.full((3, 3), 1 / 3)
    assert [top_k_accuracy_score(true, scores, k=k) for k in (1, 2, 3)] == [1 / 3, 2 / 3, 1]
    assert top_k_accuracy_score(true, scores, k=1) == (scores.argmax(1) == true).mean()


@pytest.mark.parametrize("n_bins", [1, 5, 15])
def test_calibration_is_scikit_learns(n_bins: int) -> None:
    calibration = pytest.importorskip("sklearn.calibration")
    rng = np.random.default_rng(3)
    probability = np.r_[rng.random(80), 0, 0.2, 0.4, 1]  # the bounds of bins too
    true = (rng.random(84) < probability).astype(int)
    found = calibration_curve(true, probability, n_bins=n_bins)
    for mine, theirs in zip(found, calibration.calibration_curve(true, probability, n_bins=n_bins), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-15)
    error = 0.0
    for i in range(n_bins):  # Guo et al., equation 3, bin by bin
        inside = (probability > i / n_bins) & (probability <= (i + 1) / n_bins)
        inside |= (i == 0) & (probability == 0)
        if inside.any():
            error += inside.mean() * abs(true[inside].mean() - probability[inside].mean())
    assert expected_calibration_error(true, probability, n_bins=n_bins) == pytest.approx(error, abs=1e-12)


def test_tensors_are_taken_of_any_type() -> None:
    true, scores = drawn(4)
    wanted = roc_auc_score(true, np.round(scores, 1))
    assert roc_auc_score(mn.tensor(true), mn.tensor(np.round(scores, 1)).double()) == wanted
    halves = mn.tensor(scores).to(mn.bfloat16)
    assert roc_auc_score(mn.tensor(true), halves) == roc_auc_score(true, halves.float().numpy())
    assert precision_recall_fscore_support(np.array([True, False]), [1, 0], average="macro")[2] == 1


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: roc_auc_score([0, 1], [[0.5, np.nan], [0, 1]]), r"roc_auc_score: y_score\[0, 1\] is NaN"),
        (lambda: calibration_curve([0], [np.nan]), r"calibration_curve: y_prob\[0\] is NaN; expected numbers"),
        (
            lambda: roc_auc_score([0, 2], [0.1, 0.2]),
            "the form for two classes, but y_true has class 2; expected N x classes",
        ),
        (lambda: roc_auc_score([0, 2], [[0.1, 0.2]] * 2), "y_true has class 2; expected less than 2"),
        (
            lambda: roc_auc_score([0], [[0.1, 0.2]] * 2),
            "y_true has 1 samples, but y_score has 2; expected the same number",
        ),
        (
            lambda: roc_auc_score([], []),
            "y_true has 0 samples, but y_score has 0; expected the same number, and at least one",
        ),
        (lambda: roc_auc_score([0, 1], [0, 1], average="micro"), "average='micro'; expected one of None, 'macro'"),
        (
            lambda: top_k_accuracy_score([0.5], [[1.0]]),
            r"y_true has shape \(1,\) and type float64; expected N integers",
        ),
        (lambda: top_k_accuracy_score([-1], [[1.0]]), "type int64 with -1; expected N integers from 0 on"),
        (lambda: top_k_accuracy_score([0], [1.0]), r"y_score.shape is \(1,\); expected N x classes"),
        (lambda: top_k_accuracy_score([0], [[1.0]], k=0), "k=0; expected an int of at least 1"),
        (lambda: top_k_accuracy_score([0], [["a"]]), "y_score has type <U1; expected numbers"),
        (lambda: calibration_curve([0, 2], [0, 1]), "y_true has 2; expected 1 for a right prediction"),
        (lambda: calibration_curve([0, 1], [0, 3]), "y_prob goes from 0 to 3; expected from 0 to 1"),
        (lambda: calibration_curve([0, 1], [0, 1], n_bins=0), "n_bins=0; expected an int of at least 1"),
        (lambda: precision_recall_fscore_support([0], [0, 1]), "y_true has 1 samples, but y_pred has 2"),
        (lambda: precision_recall_fscore_support([0], [0], average="x"), "average='x'; expected one of None"),
    ],
)
def test_what_does_not_fit_is_named(call: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()
