"""The report of a classifier has scikit-learn's numbers, and names those that cannot be computed."""

from __future__ import annotations

import json

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm.training import classification_report


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning")
def test_numbers_are_scikit_learns() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    true, scores = rng.integers(0, 7, 90), rng.dirichlet(np.ones(7), 90)
    names = [f"c{i}" for i in range(7)]
    report = classification_report(true, scores, target_names=names, k=3)
    wanted = metrics.classification_report(true, scores.argmax(1), target_names=names, output_dict=True)
    for row in report.classes:
        theirs = wanted[row.name]
        assert (row.precision, row.recall, row.f1) == pytest.approx(
            (theirs["precision"], theirs["recall"], theirs["f1-score"])
        )
        assert row.support == theirs["support"]
    for average in ("macro", "weighted"):
        theirs = wanted[f"{average} avg"]
        found = getattr(report, average)
        assert [found[key] for key in ("precision", "recall", "f1")] == pytest.approx(
            [theirs["precision"], theirs["recall"], theirs["f1-score"]]
        )
    assert report.accuracy == pytest.approx(wanted["accuracy"])
    assert report.roc_auc == pytest.approx(metrics.roc_auc_score(true, scores, multi_class="ovr"))
    assert report.top_k == (3, pytest.approx(metrics.top_k_accuracy_score(true, scores, k=3)))
    counts = np.bincount(true)
    assert report.majority == (names[counts.argmax()], counts.max() / 90)
    read = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert [row["f1"] for row in read["classes"]] == [row.f1 for row in report.classes]


def test_what_is_never_predicted_and_what_has_no_images_is_named() -> None:
    scores = np.array([[0.9, 0.1, 0.0, 0.0], [0.6, 0.4, 0.0, 0.0], [0.2, 0.1, 0.7, 0.0]])
    report = classification_report([0, 1, 0], scores, target_names=["cat", "dog", "\x1b[2Jcow", "hen"], k=2)
    assert report.never_predicted == ["dog"]
    assert report.without_images == ["\x1b[2Jcow", "hen"]
    text = str(report)
    assert "never predicted: 'dog'" in text
    assert r"no images of: '\x1b[2Jcow', 'hen'" in text
    assert "always guessing 'cat' gives 0.667" in text
    assert "\x1b" not in text
    macro = np.mean([2 * 1 / (2 + 2), 0, 0])  # f1 of cat, dog and cow: hen occurs nowhere
    assert report.macro["f1"] == pytest.approx(macro)
    assert [row.roc_auc for row in report.classes][2:] == [None, None]


def test_one_class_has_no_area() -> None:
    report = classification_report([0, 0], [[1.0], [1.0]])
    assert (report.roc_auc, report.top_k, report.accuracy, report.calibration_error) == (None, None, 1, 0)
    assert "AUROC" not in str(report).partition("\n")[2]
    alone = classification_report([1, 1], [[0.2, 0.8], [0.7, 0.3]])  # two, of which one has images
    assert (alone.roc_auc, alone.without_images, alone.accuracy) == (None, ["0"], 0.5)


def test_of_many_classes_those_with_the_lowest_f1_are_shown() -> None:
    scores = np.eye(50)
    scores[7] = scores[8]
    report = classification_report(np.arange(50), scores)
    shown = [row.name for row in report.shown()]
    assert len(shown) == 30
    assert shown[:2] == ["7", "8"]
    assert "these are the 30 classes with the lowest f1; 20 classes are not shown" in str(report)
    assert len(report.as_dict()["classes"]) == 50


def test_calibration_is_that_of_the_predictions() -> None:
    scores = np.array([[0.95, 0.05], [0.85, 0.15], [0.15, 0.85], [0.45, 0.55]])
    report = classification_report([0, 0, 0, 1], scores)
    found = [(one.images, one.probability, one.accuracy) for one in report.calibration]
    assert found == [(1, 0.55, 1), (2, 0.85, 0.5), (1, 0.95, 1)]
    assert report.calibration_error == pytest.approx((0.45 + 2 * 0.35 + 0.05) / 4)


def test_logits_and_names_that_do_not_fit_are_named() -> None:
    logits = mn.tensor([[2.0, -1.0], [0.5, 3.0]])
    with pytest.raises(ValueError, match=r"y_score goes from -1 to 3.*expected probabilities: F.softmax\(logits, 1\)"):
        classification_report([0, 1], logits)
    assert classification_report([0, 1], F.softmax(logits, 1)).accuracy == 1
    with pytest.raises(
        ValueError, match="target_names has 1 names and y_score has 2 classes; expected the same number"
    ):
        classification_report([0, 1], F.softmax(logits, 1), target_names=["a"])
    with pytest.raises(ValueError, match=r"y_score\[1, 0\] is NaN"):
        classification_report([0, 1], [[0.5, 0.5], [np.nan, 1]])
