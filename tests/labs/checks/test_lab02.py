"""Lab 2: typically wrong answers lose the points they should, and no others."""

from __future__ import annotations

from typing import Any

import pytest

NAIVE = {"naive: the formula", "naive: good near 0, no digit right at 10,000"}
WELFORD = {"Welford: the formula", "Welford: error bound up to 100,000"}
CHAN = {"Chan: the formula", "Chan: error bound up to 100,000"}
SHIFTED = {"shifted: k, d and var", "shifted: seven digits wherever the data lies"}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        # float64 on the way: not what the formula does in float32
        (
            "np.square(x).mean(axis=0) - np.square(x.mean(axis=0))",
            "(np.square(x, dtype=float).mean(axis=0) - np.square(x.mean(axis=0, dtype=float))).astype(x.dtype)",
            NAIVE,
        ),
        # NumPy's own
        (
            "np.square(x).mean(axis=0) - np.square(x.mean(axis=0))",
            "x.var(axis=0)",
            NAIVE,
        ),
        # the naive formula in disguise
        (
            "np.square(x - x.mean(axis=0)).mean(axis=0)",
            "(x * (x - x.mean(axis=0))).mean(axis=0) * np.float32(1)",
            {"two passes: error bound up to 100,000"},
        ),
        (
            "np.square(x - x.mean(axis=0)).mean(axis=0)",
            "np.square(x - x.mean(axis=0)).sum(axis=0) / (len(x) - 1)",
            {"two passes: the formula", "two passes: error bound up to 100,000"},
        ),
        # both factors with the new mean
        ("M = M + delta * (value - mean)", "M = M + (value - mean) ** 2", WELFORD),
        # both with the old one
        ("M = M + delta * (value - mean)", "M = M + delta * delta", WELFORD),
        # the count begins at 0
        ("delta / i\n", "delta / (i + 1)\n", WELFORD),
        ("return M / len(x)\n", "return M / (len(x) - 1)\n", WELFORD),
        # the means do not matter
        ("M1 + M2 + delta * delta * (n1 * n2 / n)", "M1 + M2", {"Chan: two pieces as one", *CHAN}),
        ("mean1 + delta * (n2 / n)", "(mean1 + mean2) / 2", {"Chan: two pieces as one", *CHAN}),
        # variances averaged
        ("return M / n\n", "return M / n * (n - 1) / n\n", CHAN),
        # the first value alone
        ("k = x[:4].mean(axis=0)", "k = x[0]", SHIFTED),
        # d forgotten
        ("np.square(t).mean(axis=0) - np.square(d)\n", "np.square(t).mean(axis=0)\n", SHIFTED),
        # no shift at all
        ("t = x - k\n    d =", "t, k = x, 0 * k\n    d =", SHIFTED),
        # one number for the mean
        (
            "return k.ravel().astype(np.float64), d.ravel(), var.ravel()",
            "return (k.ravel() + d.ravel()).astype(x.dtype).astype(float), 0 * d.ravel(), var.ravel()",
            {"BatchNorm with your moments", "LayerNorm and RMSNorm with your moments"},
        ),
        # a k that x's type does not have
        (
            "keepdims=True, dtype=np.float64).astype(x.dtype)",
            "keepdims=True, dtype=np.float64)",
            {"BatchNorm with your moments", "LayerNorm and RMSNorm with your moments"},
        ),
        ("    if not centered:\n", "    if False:\n", {"LayerNorm and RMSNorm with your moments"}),
    ],
)
def test_wrong_answers(lost: Any, old: str, new: str, expected: set[str]) -> None:
    assert lost(2, (old, new)) == expected
