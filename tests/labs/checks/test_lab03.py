"""Lab 3: typically wrong answers lose the points they should, and no others; weak tests find fewer bugs."""

from __future__ import annotations

from typing import Any

import pytest

GRAPH = {"dx from the graph", "other shapes and a large eps"}
TERMS = {"dx from the formula", "sum dx = 0 and sum dx * xhat = 0"}
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
            TERMS,
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
        ("    dc = g * rstd\n", DIFFERENCES, GRAPH),
        ("((x4 - k) - d) * rstd", "(x4 - k) * rstd", {BATCH, LAYER, GUARD}),
        ("like(nest, rstd * (g", "like(nest, 1.01 * rstd * (g", {BATCH, LAYER, RMS, GUARD, TRAINS}),
    ],
)
def test_wrong_answers(lost: Any, old: str, new: str, expected: set[str]) -> None:
    assert lost(3, (old, new)) == expected


BUGS_OF_DX = {name for name in BUGS if " dx " in name or " ds " in name}
LATER = "globals()['n'] = n = globals().get('n', 0) + 1; assert n < 3; rng = np.random.default_rng(0)\n"
CHECK_Y = "np.testing.assert_allclose(y, expected, rtol=1e-8, atol=1e-10)"
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


TESTS = """
import minorm as mn
import minorm.functional as F
from minorm import nn
def test_forward(norm): pass
def test_backward(norm): pass
def arrays():
    rng = np.random.default_rng(0)
    return 0.01 * rng.standard_normal((3, 2, 5)) + 1, *rng.standard_normal((2, 2)), rng.standard_normal((3, 2, 5))
"""
FUNCTIONAL = """
def test_forward(norm):
    x, s, b, dy = arrays()
    y = F.batch_norm(mn.tensor(x), None, None, mn.tensor(s), mn.tensor(b), True, eps=1e-3).numpy()
    assert np.allclose(norm.forward(x, s, b, eps=1e-3), y)
"""
LAYER = """
def test_backward(norm):
    x, s, b, dy = arrays()
    v = mn.tensor(x)
    v.requires_grad = True
    layer = nn.BatchNorm1d(2, dtype=mn.float64)
    layer(v).backward(mn.tensor(dy))
    assert np.allclose(norm.backward(dy, x, np.ones(2))[0], v.grad.numpy())
"""
TORCH = """
import torch
def test_forward(norm):
    x, s, b, dy = arrays()
    given = [torch.from_numpy(v) for v in (x, s, b)]
    y = torch.nn.functional.batch_norm(given[0], None, None, *given[1:], training=True, eps=1e-3).numpy()
    assert np.allclose(norm.forward(x, s, b, eps=1e-3), y)
"""
OWN = """
def test_forward(norm):
    x, s, b, dy = arrays()
    y, axes = norm.forward(x, s, b, eps=1e-3), (0, 2)
    c = x - x.mean(axes, keepdims=True)
    rstd = 1 / np.sqrt((c * c).mean(axes, keepdims=True) + 1e-3)
    assert np.allclose(y, c * rstd * s[:, None] + b[:, None])
    dx, ds, db = norm.backward(dy, x, s, eps=1e-3)
    assert np.allclose(dx, three_terms(dy * s[:, None], c * rstd, rstd, axes))
    assert np.allclose((ds, db), parameter_gradients(dy, c * rstd, axes))
"""
INVARIANTS = """
def test_forward(norm):
    x, s, b, dy = arrays()
    y = norm.forward(x, s, b, eps=1e-3)
    along = lambda v: v[:, None]
    xhat = (y - along(b)) / along(s)
    assert np.abs(xhat.sum(axis=(0, 2))).max() < 1e-9
    var = x.var(axis=(0, 2))
    assert np.allclose(np.square(xhat).mean(axis=(0, 2)), var / (var + 1e-3))
    dx, ds, db = norm.backward(dy, x, s, eps=1e-3)
    assert np.abs(dx.sum(axis=(0, 2))).max() < 1e-9 * np.abs(dx).max()
    h = 1e-6
    for v, gradient in ((x, dx), (s, ds), (b, db)):
        step = np.random.default_rng(1).standard_normal(v.shape)
        moved = [norm.forward(*(w + sign * h * step if w is v else w for w in (x, s, b)), eps=1e-3) for sign in (1, -1)]
        slope = ((moved[0] - moved[1]) * dy).sum() / (2 * h)
        assert abs(slope - (gradient * step).sum()) < 1e-5 * max(1, abs(slope))
"""


@pytest.mark.parametrize("text", [OWN, INVARIANTS])
def test_honest_tests_find_all_bugs(rows_of_tests: Any, text: str) -> None:
    assert {row.title for row in rows_of_tests(3, TESTS + text) if row.status != "passed"} == set()


@pytest.mark.parametrize("text", [FUNCTIONAL, LAYER, pytest.param(TORCH, marks=pytest.mark.slow)])
def test_comparisons_with_a_library_earn_nothing_and_are_told_why(rows_of_tests: Any, text: str) -> None:
    rows = rows_of_tests(3, TESTS + text)
    assert sum(row.earned for row in rows) == 0
    assert "cannot be used here; use a formula, an invariant or a finite difference of your own" in rows[0].got


@pytest.mark.slow
def test_nor_do_they_behind_walls(judge_changed: Any) -> None:
    """Functions that the file imported earlier are closed as well."""
    kept = "\nfrom minorm.functional import batch_norm\nfrom minorm.kernels.cpu.norm import forward as kernel\n"
    text = FUNCTIONAL.replace("F.batch_norm", "batch_norm")
    report = judge_changed(3, ("# %% [markdown]\n# ## To think about", f"# %%{kept}{TESTS}{text}\n# %% [markdown]\n#"))
    assert report.by_task()["3.5"][0] == 0
    assert report.by_task()["3.4"][0] == report.by_task()["3.4"][1]
    assert "cannot be used here" in next(row.got for row in report.outcomes if row.task == "3.5")
