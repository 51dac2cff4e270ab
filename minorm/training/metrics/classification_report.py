"""Report all scores of a classifier, by class and on average, and whether its probabilities can be believed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minorm.support.argument_errors import checked
from minorm.support.documented import documented
from minorm.support.safe_names import quoted
from minorm.training.files.outcome import clipped
from minorm.training.metrics.class_scores import (
    in_bins,
    labels_and_scores,
    precision_recall_fscore_support,
    roc_auc_score,
    top_k_accuracy_score,
)

BINS = 10
LETTERS = 40  # at most, of a name in the table
LINES = 30  # at most, for classes in the table
NAMED = 10  # classes that a sentence names, at most
AVERAGES = ("macro", "weighted")
Array = Any


@dataclass(frozen=True)
class ClassRow:
    """The scores of one class; roc_auc is None if no image or every image is of this class."""

    name: str
    precision: float
    recall: float
    f1: float
    roc_auc: float | None
    support: int
    predicted: int


@dataclass(frozen=True)
class Bin:
    """The predictions with a probability in one bin: their number, mean probability, and share of right predictions."""

    images: int
    probability: float
    accuracy: float


@documented(
    {},
    classes="a row for each class: name, precision, recall, f1, roc_auc, support, and how often the class was "
    "predicted",
    accuracy="the share of right predictions",
    macro="the means of precision, recall and f1 over the classes that occur",
    weighted="the means of precision, recall and f1, weighted by the number of images of each class",
    roc_auc="the mean area under the ROC curve of each class against the rest, over the classes that have such an "
    "area; None if no class has one",
    top_k="(k, top-k accuracy); None if there are at most k classes",
    calibration="a row for each range of probabilities: the number of images, their mean probability, and the share "
    "of right predictions",
    calibration_error="the mean distance between mean probability and share of right predictions, weighted by the "
    "number of images",
    majority="(name, accuracy) of always guessing the largest class",
)
@dataclass(frozen=True)
class ClassificationReport:
    """The result of `classification_report`; `print(report)` shows a table, and `as_dict()` gives a dict for JSON.

    Example:
        >>> report = mn.training.classification_report([0, 1], [[0.9, 0.1], [0.3, 0.7]], target_names=["cat", "dog"])
        >>> report.classes[1].name, report.classes[1].recall, report.as_dict()["macro"]["f1"]
        ('dog', 1.0, 1.0)
    """

    classes: list[ClassRow]
    accuracy: float
    macro: dict[str, float]
    weighted: dict[str, float]
    roc_auc: float | None
    top_k: tuple[int, float] | None
    calibration: list[Bin]
    calibration_error: float
    majority: tuple[str, float]

    @property
    def never_predicted(self) -> list[str]:
        """The classes that have images and are never predicted."""
        return [row.name for row in self.classes if row.support and not row.predicted]

    @property
    def without_images(self) -> list[str]:
        """The classes that have no images, so that nothing is known about them."""
        return [row.name for row in self.classes if not row.support]

    def as_dict(self) -> dict[str, Any]:
        """Return a dict from the names of the fields to all numbers."""
        return {
            "classes": [vars(row) for row in self.classes],
            "macro": self.macro,
            "weighted": self.weighted,
            "roc_auc": self.roc_auc,
            "top_k": None if self.top_k is None else {"k": self.top_k[0], "accuracy": self.top_k[1]},
            "calibration": [vars(one) for one in self.calibration],
            "calibration_error": self.calibration_error,
            "never_predicted": self.never_predicted,
            "without_images": self.without_images,
        }

    def shown(self) -> list[ClassRow]:
        """Return the classes in order. If there are more than LINES classes, return those with the lowest f1."""
        if len(self.classes) <= LINES:
            return self.classes
        known = [row for row in self.classes if row.support or row.predicted]
        return sorted(known, key=lambda row: row.f1)[:LINES]

    def sentences(self) -> list[str]:
        """Return the sentences to print beside the table."""
        said = []
        if (more := len(self.classes) - len(self.shown())) > 0:
            said.append(f"these are the {len(self.shown())} classes with the lowest f1; {more:,} "
                        f"{'class is' if more == 1 else 'classes are'} not shown")  # fmt: skip
        said += _named("never predicted", self.never_predicted) + _named("no images of", self.without_images)
        if self.top_k is not None:
            said.append(f"top-{self.top_k[0]} accuracy {self.top_k[1]:.3f}")
        if self.roc_auc is not None:
            said.append(f"AUROC {self.roc_auc:.3f}, the mean of each class against the rest")
        sure = sum(one.images * one.probability for one in self.calibration) / sum(b.images for b in self.calibration)
        said.append(
            f"calibration error {self.calibration_error:.3f}: predictions have a mean probability of {sure:.3f}, and "
            f"{self.accuracy:.3f} of them are right"
        )
        return said

    def table(self) -> list[str]:
        """Return a line for each class that is shown, and the two averages."""
        averages = {f"{name} average": getattr(self, name) for name in AVERAGES}
        names = [clipped(row.name, LETTERS) for row in self.shown()]
        width = max(map(len, ("class", *averages, *names)))
        lines = [f"{'class':{width}}  precision  recall     f1  AUROC   images"]
        for name, row in zip(names, self.shown(), strict=True):
            area = "" if row.roc_auc is None else f"{row.roc_auc:.3f}"
            scores = f"{row.precision:9.3f}  {row.recall:6.3f}  {row.f1:5.3f}"
            scores = scores if row.support or row.predicted else " " * len(scores)
            lines.append(f"{name:{width}}  {scores}  {area:5}  {row.support:7,}")
        for name, scores in averages.items():
            numbers = f"{scores['precision']:9.3f}  {scores['recall']:6.3f}  {scores['f1']:5.3f}"
            lines.append(f"{name:{width}}  {numbers}")
        return lines

    def __str__(self) -> str:
        guess = f"accuracy {self.accuracy:.3f}; always guessing {quoted(self.majority[0])} gives {self.majority[1]:.3f}"
        return "\n".join([*self.table(), guess, *self.sentences()])


@documented(
    {},
    y_true="the true class of each image, N integers from 0 on",
    y_score="N x classes, the probabilities that the model gives: `F.softmax(logits, 1)`",
    target_names="the names of the classes; None takes their numbers",
    k="the k of the top-k accuracy",
)
@checked
def classification_report(
    y_true: Any, y_score: Any, *, target_names: Sequence[str] | None = None, k: int = 5
) -> ClassificationReport:
    """Report precision, recall, f1 and AUROC by class and on average, top-k accuracy, and calibration.

    The report also has the accuracy of always guessing the largest class. It names classes that have images but are
    never predicted, and classes without images. Raises ValueError if y_score does not hold probabilities, or does not
    fit y_true.

    Example:
        >>> report = mn.training.classification_report([0, 1, 1], [[0.9, 0.1], [0.6, 0.4], [0.7, 0.3]])
        >>> report.never_predicted, report.macro["f1"], report.majority
        (['1'], 0.25, ('1', 0.6666666666666666))
    """
    true, scores = labels_and_scores("classification_report", y_true, y_score)
    count = scores.shape[1]
    names = list(map(str, range(count))) if target_names is None else list(target_names)
    if len(names) != count:
        raise ValueError(
            f"classification_report: target_names has {len(names)} names and y_score has {count} classes; expected the "
            "same number"
        )
    if scores.min() < 0 or np.abs(scores.sum(1) - 1).max() > 0.01:
        raise ValueError(
            f"classification_report: y_score goes from {scores.min():g} to {scores.max():g}, and the largest sum of a "
            f"row is {scores.sum(1).max():g}; expected probabilities: F.softmax(logits, 1)"
        )
    guessed = scores.argmax(1)
    by_class = precision_recall_fscore_support(true, guessed, labels=range(count))
    areas = roc_auc_score(true, scores, average=None)
    predicted, support = np.bincount(guessed, minlength=count), by_class[3]
    rows = [
        ClassRow(name, float(p), float(r), float(f1), None if np.isnan(area) else float(area), int(n), int(m))
        for name, p, r, f1, area, n, m in zip(names, *by_class[:3], areas, support, predicted, strict=True)
    ]
    averages = [precision_recall_fscore_support(true, guessed, average=average)[:3] for average in AVERAGES]
    macro, weighted = (dict(zip(("precision", "recall", "f1"), found, strict=True)) for found in averages)
    known = [row.roc_auc for row in rows if row.roc_auc is not None]
    bins, error = _calibration(true == guessed, np.minimum(scores.max(1), 1))
    largest = int(support.argmax())
    return ClassificationReport(
        rows,
        float((true == guessed).mean()),
        macro,
        weighted,
        float(np.mean(known)) if known else None,
        (k, top_k_accuracy_score(true, scores, k=k)) if k < count else None,
        bins,
        error,
        (names[largest], float(support[largest] / len(true))),
    )


def scores_of(labels: Array, probabilities: Array, names: Sequence[str], k: int = 5) -> ClassificationReport:
    """Return the report on arrays. If there is not a name for each class, classes are called by their numbers."""
    fitting = names if len(names) == probabilities.shape[1] else None
    return classification_report(labels, probabilities, target_names=fitting, k=k)


def _calibration(right: Array, probability: Array) -> tuple[list[Bin], float]:
    counts, hits, sums = in_bins("classification_report", right, probability, BINS)
    bins = [Bin(int(n), float(p / n), float(hit / n)) for n, hit, p in zip(counts, hits, sums, strict=True) if n]
    return bins, float(np.abs(hits - sums).sum() / counts.sum())


def _named(what: str, names: Sequence[str]) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return [f"{what}: {', '.join(map(quoted, names[:NAMED]))}{more}"]
