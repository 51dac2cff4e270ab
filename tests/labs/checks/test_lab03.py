"""Lab 3: typically wrong answers lose the points they should, and no others; weak tests find fewer bugs."""

from __future__ import annotations

from typing import Any

import pytest

GRAPH = {"the graph against finite differences", "other shapes and a large eps"}
TERMS = {"the formula against finite differences", "sum dx = 0 and sum dx * xhat = 0"}
BATCH, LAYER = "your backward in BatchNorm", "in Layer- and GroupNorm"
RMS, GUARD = "in RMSNorm, which is not centered", "in MeanVarianceNorm, eps outside the root"
TRAINS = "the digits network trains as with the library"
RIGHT = "your tests pass on the right implementation"
BUGS = {
    "bug: the variance divides by m - 1",
    "bug: eps outside the root",
    "bug: dx without mean(g)",
    "bug: dx without xhat * mean(g * xhat)",
    "bug: statistics over the batch alone",
    "bug: sums in float16",
    "bug: ds from x instead of xhat",
}

DIFFERENCES = """
    def f(v):
        c = v - v.mean(axis=axes, keepdims=True)
        return (g * c / np.sqrt((c * c).mean(axis=axes, keepdims=True) + eps)).sum()
    dx = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += 1e-5
        down[i] -= 1e-5
        dx[i] = (f(up) - f(down)) / 2e-5
    return dx
    dc = g * rstd
"""


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        # the mean is a constant
        ("return dc + dmean / m\n", "return dc\n", GRAPH),
        # the variance is a constant
        ("    dc = dc + 2 * c * dvar / m\n", "", GRAPH),
        # a row's average without its m
        ("dc = dc + 2 * c * dvar / m", "dc = dc + 2 * c * dvar", GRAPH),
        ("-0.5 * rstd**3 * drstd", "-0.5 * rstd * drstd", GRAPH),
        # c is used twice: the second gradient replaces the first
        ("dc = dc + 2 * c * dvar / m", "dc = 2 * c * dvar / m", GRAPH),
        ("rstd * (g - mean_g - xhat * mean_gx)\n", "rstd * (g - xhat * mean_gx)\n", TERMS),
        ("rstd * (g - mean_g - xhat * mean_gx)\n", "rstd * (g - mean_g)\n", TERMS),
        ("rstd * (g - mean_g - xhat * mean_gx)\n", "rstd * (g - mean_g + xhat * mean_gx)\n", TERMS),
        # sums for means
        ("mean_g = g.mean(axis=axes, keepdims=True)", "mean_g = g.sum(axis=axes, keepdims=True)", TERMS),
        # the right directions, the wrong length
        (
            "return rstd * (g - mean_g - xhat * mean_gx)\n",
            "return g - mean_g - xhat * mean_gx\n",
            {"the formula against finite differences"},
        ),
        ("dy.sum(axis=axes)\n", "dy.mean(axis=axes)\n", {"BatchNorm's and LayerNorm's"}),
        (
            "(dy * xhat).sum(axis=axes), ",
            "(dy * xhat).sum(axis=axes, keepdims=True), ",
            {"BatchNorm's and LayerNorm's"},
        ),
        # the scale forgotten
        ("dy4 if s is None else dy4 * parameters(nest, s)", "dy4", {BATCH, LAYER, TRAINS}),
        ("dy4 if s is None else dy4 * parameters(nest, s)", "dy4 * parameters(nest, s)", {LAYER, RMS, GUARD}),
        (" if equation.centered else 0", "", {RMS}),
        ("mean_gx = slope * ", "mean_gx = ", {GUARD}),
        # finite differences in place of the graph
        ("    dc = g * rstd\n", DIFFERENCES, {"other shapes and a large eps"}),
        ("((x4 - k) - d) * rstd", "(x4 - k) * rstd", {BATCH, LAYER, GUARD}),
        ("like(nest, rstd * (g", "like(nest, 1.01 * rstd * (g", {BATCH, LAYER, RMS, GUARD, TRAINS}),
    ],
)
def test_wrong_answers(lost: Any, old: str, new: str, expected: set[str]) -> None:
    assert lost(3, (old, new)) == expected


BUGS_OF_DX = {name for name in BUGS if " dx " in name or " ds " in name}
LATER = "globals()['n'] = n = globals().get('n', 0) + 1; assert n < 3; rng = np.random.default_rng(0)\n"
CHECK_Y = "np.testing.assert_allclose(norm.forward(x, s, b, eps=1e-3), expected, rtol=1e-8, atol=1e-10)"
CHECK_DX = "assert abs((sides[0] - sides[1]) / 2e-5 - gradient[index]) < 1e-6"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # finite differences of a wrong forward agree with its backward where both are wrong alike
        ([(CHECK_Y, "pass")], {"bug: statistics over the batch alone"}),
        ([(CHECK_DX, "pass")], BUGS_OF_DX),
        # batches without positions
        ([("for shape in ((4, 3), (3, 2, 5)):", "for shape in ((4, 3),):"), (CHECK_DX, "pass")], None),
        # a test that is wrong: then no bug counts
        ([("/ np.sqrt(var + 1e-3)", "/ np.sqrt(var)")], {RIGHT, *BUGS}),
        # tests that always fail, or fail at random, or from some time on
        ([(CHECK_DX, "assert False")], {RIGHT, *BUGS}),
        ([(CHECK_DX, "assert np.random.default_rng().random() < 0.9")], {RIGHT, *BUGS}),
        ([(CHECK_Y, "pass"), (CHECK_DX, "pass"),
          ("rng = np.random.default_rng(0)\n", LATER)],
         {RIGHT, *BUGS}),
        # tests that look at nothing
        ([(CHECK_Y, "pass"), (CHECK_DX, "pass")], {RIGHT, *BUGS}),
    ],
)  # fmt: skip
def test_weak_and_wrong_tests(lost: Any, changes: list[tuple[str, str]], expected: set[str] | None) -> None:
    if expected is None:
        assert "bug: statistics over the batch alone" in lost(3, *changes)
    else:
        assert lost(3, *changes) == expected
