"""Compute scores of a classifier from labels and probabilities in NumPy, with scikit-learn's names and conventions.

Labels are numbers that count from 0. Of two classes with equal scores, the class with the lower number comes first, as
in `argmax`.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.support.argument_errors import checked
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor

Array = Any
Y_TRUE = {"y_true": "the true class of each sample: N integers that count from 0"}
BINS = {"n_bins": "the number of bins of equal width from 0 to 1"}
AVERAGES = (None, "macro", "weighted")


@documented(
    Y_TRUE,
    y_pred="the predicted class of each sample, N integers",
    labels="the classes to score, in this order; None takes the classes that occur in y_true or y_pred",
    average="None gives a number for each class; 'macro' gives the mean of these numbers, 'weighted' their mean "
    "weighted by support",
)
@checked
def precision_recall_fscore_support(
    y_true: Any, y_pred: Any, *, labels: Any = None, average: str | None = None
) -> tuple[Any, Any, Any, Any]:
    """precision = right / predicted, recall = right / support, fscore = 2 right / (predicted + support).

    Returns (precision, recall, fscore, support). Support is the number of samples of each class, or None if `average`
    is given. If a divisor is 0, the quotient is 0. For example, the precision of a class that is never predicted is 0.

    Example:
        >>> precision, recall, fscore, support = mn.training.precision_recall_fscore_support([0, 0, 1, 1], [0, 1, 1, 1])
        >>> recall
        array([0.5, 1. ])

    The same as scikit-learn's function of this name with beta=1 and zero_division=0.
    """
    operation = "precision_recall_fscore_support"
    true, guessed = (_labels(operation, name, y) for name, y in (("y_true", y_true), ("y_pred", y_pred)))
    _same_length(operation, true, "y_pred", guessed)
    if average not in AVERAGES:
        raise ValueError(f"{operation}: average={average!r}; expected one of {', '.join(map(repr, AVERAGES))}")
    scored = np.union1d(true, guessed) if labels is None else _labels(operation, "labels", labels)
    right, predicted, support = (_counts(found, scored) for found in (true[true == guessed], guessed, true))
    scores = _share(right, predicted), _share(right, support), _share(2 * right, predicted + support)
    if average is None:
        return *scores, support
    weights = support if average == "weighted" else np.ones(len(scored))
    precision, recall, fscore = (float((score * weights).sum() / max(weights.sum(), 1)) for score in scores)
    return precision, recall, fscore, None


@documented(
    Y_TRUE,
    y_score="N numbers, the score of class 1, for two classes; otherwise N x classes, a score for each class",
    average="None gives an area for each class; 'macro' gives the mean of these areas, 'weighted' their mean weighted "
    "by support",
)
@checked
def roc_auc_score(y_true: Any, y_score: Any, *, average: str | None = "macro") -> Any:
    """P(score of a sample of the class > score of a sample of another class) + P(the scores are equal) / 2.

    This is the area under the ROC curve of each class against the rest. It is NaN for a class that no sample or every
    sample has. An average leaves these classes out, and it is NaN if no class is left.

    Example:
        >>> mn.training.roc_auc_score([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
        0.75

    The same as scikit-learn's function of this name with multi_class="ovr". Hanley and McNeil 1982.
    """
    if average not in AVERAGES:
        raise ValueError(f"roc_auc_score: average={average!r}; expected one of {', '.join(map(repr, AVERAGES))}")
    if np.ndim(_array(y_score)) == 1:
        true, scores = _labels("roc_auc_score", "y_true", y_true), _numbers("roc_auc_score", "y_score", y_score)
        _same_length("roc_auc_score", true, "y_score", scores)
        if len(true) and true.max() > 1:
            raise ValueError(
                f"roc_auc_score: y_score.shape is {scores.shape}, the form for two classes, but y_true has class "
                f"{true.max()}; expected N x classes"
            )
        return _area(true == 1, scores)
    true, scores = labels_and_scores("roc_auc_score", y_true, y_score)
    areas = np.array([_area(true == label, scores[:, label]) for label in range(scores.shape[1])])
    if average is None:
        return areas
    known = ~np.isnan(areas)
    weights = (np.bincount(true, minlength=len(areas)) if average == "weighted" else np.ones(len(areas)))[known]
    return float((areas[known] * weights).sum() / weights.sum()) if known.any() else float("nan")


@documented(
    Y_TRUE,
    y_score="N x classes, a score for each class: logits or probabilities",
    k="a sample counts as right if its true class is one of the k classes with the highest scores",
)
@checked
def top_k_accuracy_score(y_true: Any, y_score: Any, *, k: int = 2) -> float:
    """Return the share of samples whose class is one of the k classes with the highest scores; k=1 gives the accuracy.

    Example:
        >>> mn.training.top_k_accuracy_score([0, 1, 2], [[0.5, 0.3, 0.2], [0.5, 0.3, 0.2], [0.5, 0.3, 0.2]])
        0.6666666666666666

    The same as scikit-learn's function of this name, except for equal scores: of two classes with the same score,
    minorm puts the class with the lower number first, and scikit-learn the class with the higher number.
    """
    if not isinstance(k, int) or k < 1:
        raise ValueError(f"top_k_accuracy_score: k={k!r}; expected an int of at least 1")
    true, scores = labels_and_scores("top_k_accuracy_score", y_true, y_score)
    own = scores[np.arange(len(true)), true][:, None]
    tied_before = (scores == own) & (np.arange(scores.shape[1]) < true[:, None])
    return float((((scores > own) | tied_before).sum(1) < k).mean())


@documented(
    BINS,
    y_true="whether each sample belongs to the class, or was predicted right: N numbers, 0 or 1",
    y_prob="the predicted probability of each sample, N numbers from 0 to 1",
)
@checked
def calibration_curve(y_true: Any, y_prob: Any, *, n_bins: int = 5) -> tuple[Array, Array]:
    """(prob_true, prob_pred): the share of ones and the mean probability in each bin that is not empty.

    Bin i has the probabilities p with i / n_bins < p <= (i + 1) / n_bins, and bin 0 also has p = 0. For a model of
    several classes, y_true is 1 for each right prediction and 0 for each wrong one, and y_prob is the largest
    probability. A model whose probabilities can be believed has prob_true = prob_pred.

    Example:
        >>> mn.training.calibration_curve([0, 1, 1, 1], [0.1, 0.3, 0.8, 0.9], n_bins=2)
        (array([0.5, 1. ]), array([0.2 , 0.85]))

    The same as scikit-learn's function of this name with strategy="uniform".
    """
    counts, right, probability = in_bins("calibration_curve", y_true, y_prob, n_bins)
    found = counts > 0
    return right[found] / counts[found], probability[found] / counts[found]


@documented(
    BINS,
    y_true="whether each prediction is right: N numbers, 0 or 1",
    y_prob="the predicted probability of each sample, N numbers from 0 to 1",
)
@checked
def expected_calibration_error(y_true: Any, y_prob: Any, *, n_bins: int = 10) -> float:
    """error = sum over bins b of n_b / N * |prob_true_b - prob_pred_b|, with n_b of the N samples in bin b.

    prob_true and prob_pred are the same as in `calibration_curve`.

    Example:
        >>> round(mn.training.expected_calibration_error([0, 1, 1, 1], [0.1, 0.3, 0.8, 0.9], n_bins=2), 3)
        0.225

    Guo et al. 2017, "On Calibration of Modern Neural Networks".
    """
    counts, right, probability = in_bins("expected_calibration_error", y_true, y_prob, n_bins)
    return float(np.abs(right - probability).sum() / counts.sum())


def in_bins(operation: str, y_true: Any, y_prob: Any, n_bins: int) -> tuple[Array, Array, Array]:
    """Return the number of samples, the number of ones, and the sum of probabilities in each bin, as three arrays."""
    true, probability = _labels(operation, "y_true", y_true), _numbers(operation, "y_prob", y_prob)
    if probability.ndim != 1 or not len(probability):
        raise ValueError(f"{operation}: y_prob.shape is {probability.shape}; expected a number for each sample")
    _same_length(operation, true, "y_prob", probability)
    if true.max() > 1:
        raise ValueError(
            f"{operation}: y_true has {true.max()}; expected 1 for a right prediction, and 0 for a wrong one"
        )
    if not (probability.min() >= 0 and probability.max() <= 1):
        raise ValueError(
            f"{operation}: y_prob goes from {probability.min():g} to {probability.max():g}; expected from 0 to 1"
        )
    if not isinstance(n_bins, int) or n_bins < 1:
        raise ValueError(f"{operation}: n_bins={n_bins!r}; expected an int of at least 1")
    places = np.searchsorted(np.linspace(0, 1, n_bins + 1)[1:-1], probability)
    counts, right, sums = (np.bincount(places, weights, n_bins) for weights in (None, true, probability))
    return counts, right, sums


def labels_and_scores(operation: str, y_true: Any, y_score: Any) -> tuple[Array, Array]:
    """Return the arguments as arrays of shapes N and N x classes; raise ValueError if they do not fit together."""
    true, scores = _labels(operation, "y_true", y_true), _numbers(operation, "y_score", y_score)
    if scores.ndim != 2 or not scores.size:
        raise ValueError(f"{operation}: y_score.shape is {scores.shape}; expected N x classes, a score for each class")
    _same_length(operation, true, "y_score", scores)
    if true.max() >= scores.shape[1]:
        raise ValueError(
            f"{operation}: y_true has class {true.max()}; expected less than {scores.shape[1]}, the number of classes "
            "in y_score"
        )
    return true, scores


def _area(positive: Array, scores: Array) -> float:
    """Return (sum of the positives' ranks - smallest possible sum) / number of pairs of a positive and a negative."""
    _, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2  # the mean rank of equal scores
    ours, others = int(positive.sum()), int((~positive).sum())
    if not ours or not others:
        return float("nan")
    return float((ranks[places][positive].sum() - ours * (ours + 1) / 2) / (ours * others))


def _counts(found: Array, scored: Array) -> Array:
    counted = Counter(found.tolist())
    return np.array([counted[label] for label in scored.tolist()], np.int64)


def _share(part: Array, whole: Array) -> Array:
    return part / np.maximum(whole, 1)


def _array(given: Any) -> Array:
    return given.detach().cpu().numpy() if isinstance(given, Tensor) else np.asarray(given)


def _labels(operation: str, name: str, given: Any) -> Array:
    found = _array(given)
    if found.dtype == bool or not found.size:
        found = found.astype(np.int64)
    whole = np.issubdtype(found.dtype, np.integer)
    if found.ndim != 1 or not whole or (found.size and found.min() < 0):
        least = f" with {found.min()}" if whole and found.size and found.min() < 0 else ""
        raise ValueError(
            f"{operation}: {name} has shape {found.shape} and type {found.dtype}{least}; expected N integers from 0 on"
        )
    return found


def _numbers(operation: str, name: str, given: Any) -> Array:
    array = _array(given)
    found = array.astype(np.float64) if dtypes.is_float(array.dtype) or array.dtype.kind in "iub" else array
    if found.dtype != np.float64:
        raise ValueError(f"{operation}: {name} has type {array.dtype}; expected numbers")
    if np.isnan(found).any():
        place = tuple(int(i) for i in np.argwhere(np.isnan(found))[0])
        raise ValueError(f"{operation}: {name}[{', '.join(map(str, place))}] is NaN; expected numbers")
    return found


def _same_length(operation: str, true: Array, name: str, other: Array) -> None:
    if len(true) != len(other) or not len(true):
        raise ValueError(
            f"{operation}: y_true has {len(true)} samples, but {name} has {len(other)}; expected the same number, and "
            "at least one"
        )
