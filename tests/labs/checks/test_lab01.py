"""Lab 1: typically wrong answers lose the points they should, and no others."""

from __future__ import annotations

from typing import Any

import pytest

FIVE = {"five norms of images", "five norms of odd shapes", "without scale and bias"}
PLUGGED = {"your forward in BatchNorm", "your forward in five other layers"}
XHAT = {"xhat", "the place of eps"}
ALL_MOMENTS = {"mean and variance", "without centering", "odd shapes"}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        # N - 1 for N
        (
            "np.square(x - mean).mean(axis=axes, keepdims=True)",
            "np.square(x - mean).sum(axis=axes, keepdims=True) / (x.size // mean.size - 1)",
            {*ALL_MOMENTS, *XHAT, "rows of equal numbers; without centering", *FIVE, *PLUGGED},
        ),
        # the standard deviation for the variance
        (
            "np.square(x - mean).mean(axis=axes, keepdims=True)",
            "np.square(x - mean).mean(axis=axes, keepdims=True) ** 0.5",
            {*ALL_MOMENTS, *XHAT, "rows of equal numbers; without centering", *FIVE, *PLUGGED},
        ),
        # centered is ignored
        (
            "    if not centered:\n        mean = np.zeros_like(mean)\n",
            "",
            {
                "without centering",
                "rows of equal numbers; without centering",
                *FIVE,
                "your forward in five other layers",
            },
        ),
        # eps outside the root
        (
            "return (x - mean) / np.sqrt(var + eps)",
            "return (x - mean) / (np.sqrt(var) + eps)",
            {"xhat", "the place of eps", "rows of equal numbers; without centering", *FIVE},
        ),
        # no eps
        (
            "return (x - mean) / np.sqrt(var + eps)",
            "return (x - mean) / np.sqrt(var)",
            {"xhat", "the place of eps", "rows of equal numbers; without centering", *FIVE},
        ),
        # scale and bias aligned at their ends, which shows only if lengths differ
        (
            "parameter.reshape(parameter.shape + (1,) * behind)",
            "parameter",
            {
                "scale and bias",
                "scale or bias alone, equal lengths",
                "five norms of images",
                "five norms of odd shapes",
            },
        ),
        # BatchNorm of images alone
        (
            "normalize(x, (0, *range(2, x.ndim)), eps)",
            "normalize(x, (0, 2, 3), eps)",
            {"five norms of odd shapes", "without scale and bias"},
        ),
        # every G-th channel is a group
        (
            (
                "split = x.reshape(n, num_groups, c // num_groups, *x.shape[2:])\n"
                "    xhat = normalize(split, tuple(range(2, split.ndim)), eps)"
            ),
            (
                "split = x.reshape(n, c // num_groups, num_groups, *x.shape[2:])\n"
                "    xhat = normalize(split, (1, *range(3, split.ndim)), eps)"
            ),
            {"five norms of images", "five norms of odd shapes"},
        ),
        # rstd without the guard of MeanVarianceNormalization would pass; without centering does not
        ("moments(x4, (2, 3), equation.centered)", "moments(x4, (2, 3))", {"your forward in five other layers"}),
        ("Statistics.of(mean, 0 * mean, var, rstd)", "Statistics.of(mean, mean, var, rstd)", PLUGGED),
    ],
)
def test_wrong_answers(lost: Any, old: str, new: str, expected: set[str]) -> None:
    assert lost(1, (old, new)) == expected
