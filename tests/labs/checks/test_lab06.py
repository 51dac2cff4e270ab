"""Lab 6: typically wrong answers lose the points they should, and no others; weak tests find fewer bugs."""

from __future__ import annotations

from typing import Any

import pytest

UNITS, EDGES, ERRORS = "units in the last place", "powers of two, tiny numbers and 0", "errors in ulp"
NEAREST, TIES, ODD = "to the nearest", "ties", "NaN, infinity, overflow, denormals"
ROOT, OVERFLOW, NO_WIDER = (
    "the root of the mean square",
    "no overflow, no underflow",
    "float64, zeros, rows of different sizes",
)
HALVES, LARGE = "half an ulp in float16 and bfloat16", "large numbers"
WIDER, MIXED = "float32 in float64", "parameters of other types, or none"
LAYER, OTHERS = "your forward in LayerNorm", "in GroupNorm and RMSNorm"
TOWARDS_0 = "bug: rounded towards 0"
RIGHT = "your tests pass on the right implementation"
BUGS = {
    "bug: sums in 16 bits",
    "bug: squares in 16 bits",
    "bug: the mean in 16 bits",
    "bug: eps in 16 bits",
    "bug: rounded three times",
    TOWARDS_0,
    "bug: the variance divides by m - 1",
    "bug: eps outside the root",
}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # one binade too high, and so is the bound of the tests
        ([("np.frexp(v)[1] - 1", "np.frexp(v)[1]")], {UNITS, EDGES, ERRORS, TOWARDS_0}),
        # the spacing goes on shrinking towards 0
        (
            [
                ("np.maximum(np.frexp(v)[1] - 1, SMALLEST[name])", "np.frexp(v)[1] - 1"),
                ("np.where(np.asarray(v) == 0, SMALLEST[name], exponent)", "exponent"),
            ],
            {EDGES},
        ),
        # cut off: rounding towards 0
        ([("(bits + 0x7FFF + (bits >> 16 & 1)) >> 16", "bits >> 16")], {NEAREST, TIES, ODD}),
        # ties away from 0
        ([("(bits + 0x7FFF + (bits >> 16 & 1)) >> 16", "(bits + 0x8000) >> 16")], {TIES, ODD}),
        # NaN forgotten
        ([("np.where(np.isnan(x), 0x7FC0, rounded)", "rounded")], {ODD}),
        # the value, not the bits
        ([("(bits.astype(np.uint32) << 16).view(np.float32)", "bits.astype(np.float32)")], {"and back"}),
        # nothing scaled
        (
            [("    scaled = np.ldexp(x, -exponent)\n", "    exponent = 0 * exponent\n    scaled = x\n")],
            {OVERFLOW, NO_WIDER},
        ),
        # a wider type, and no type is wider than float64
        (
            [
                (
                    "    exponent = np.frexp(np.abs(x).max(axis=-1, keepdims=True))[1]\n",
                    "    return np.sqrt((np.float64(x) ** 2).mean(axis=-1, keepdims=True)).astype(x.dtype)\n",
                ),
                ("    scaled = np.ldexp(x, -exponent)\n", "    scaled, exponent = x, 0\n"),
            ],
            {ROOT, OVERFLOW, NO_WIDER},
        ),
        # one exponent for all rows
        ([("np.abs(x).max(axis=-1, keepdims=True))[1]", "np.abs(x).max())[1]")], {NO_WIDER}),
        # computed in the type of x
        ([("wide = DTYPES[compute]", "wide = x.dtype")], {HALVES, LARGE, WIDER, MIXED}),
        # always float32
        ([("wide = DTYPES[compute]", 'wide = DTYPES["float32"]')], {LARGE, WIDER}),
        # xhat rounded before scale and bias
        (
            [("y = c / np.sqrt(var + wide.type(eps))", "y = (c / np.sqrt(var + wide.type(eps))).astype(x.dtype)")],
            {HALVES, LARGE, WIDER, MIXED},
        ),
        # never rounded
        ([("return y.astype(x.dtype)", "return y")], {HALVES, LARGE, WIDER, MIXED}),
        # a bias of None not thought of
        (
            [("    if b is not None:\n        y = y + b.astype(wide)", "    y = y + b.astype(wide)")],
            {MIXED},
        ),
        # dtype not asked
        ([("    if dtype is None:\n        dtype =", "    if True:\n        dtype =")], {LAYER, OTHERS}),
        # always float32
        ([("np.float32 if x.dtype.itemsize == 2 else x.dtype", "np.float32")], {OTHERS}),
        # centered whatever the equation says
        ([("    if equation.centered:\n", "    if True:\n")], {OTHERS}),
    ],
)
def test_wrong_answers(lost: Any, changes: list[tuple[str, str]], expected: set[str]) -> None:
    assert lost(6, *changes) == expected


def test_no_seed_costs_the_solution_a_point(lost: Any) -> None:
    """Bounds are sharp, so a seed of the teacher's own might meet an element on which a right answer misses them."""
    for seed in range(60):
        assert lost(6, seed=seed) == set(), seed


LONG = "((4, 4096), 1, 2, 1e-5),"
SMALL, GUARDED = "((4, 64), 1e-3, 0, 1e-8),", "((4, 64), 0.1, 0, 1e-2),"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # a variance of 1 and the usual eps
        ([(SMALL, ""), (GUARDED, "")], {"bug: eps in 16 bits"}),
        # and short rows
        ([(SMALL, ""), (GUARDED, ""), (LONG, "")], {"bug: eps in 16 bits", "bug: eps outside the root"}),
        # a loose bound
        ([("0.5 * ulp", "1.5 * ulp")], {TOWARDS_0}),
        # a quarter of a unit: no function can do that
        ([("0.5 * ulp", "0.25 * ulp")], {RIGHT, *BUGS}),
        # compared with N - 1: a wrong test
        (
            [("(c * c).mean(axis=-1, keepdims=True) + eps", "c.var(axis=-1, keepdims=True, ddof=1) + eps")],
            {RIGHT, *BUGS},
        ),
    ],
)
def test_weak_and_wrong_tests(lost: Any, changes: list[tuple[str, str]], expected: set[str]) -> None:
    assert lost(6, *changes) == expected


HONEST = """
def test_rows(norm): pass
def test_own(norm):
    rng = np.random.default_rng(3)
    for name in ("float16", "bfloat16"):
        for m, scale, eps in ((6, 1, 1e-5), (4096, 1, 1e-5), (64, 1000, 1e-5), (64, 1e-3, 1e-8), (64, 0.1, 1e-2)):
            x = (rng.standard_normal((8, m)) * scale + 2 * scale * (m > 6)).astype(DTYPES[name])
            s, b = rng.standard_normal((2, m)).astype(DTYPES[name])
            wide = layer_norm(x.astype(np.float64), s, b, eps, "float64")
            off = np.abs(norm.layer_norm(x, s, b, eps=eps).astype(np.float64) - wide)
            assert (off <= 0.5 * ulp(wide, name) + 2e-6 * (np.abs(wide - b) + np.abs(b).astype(np.float64))).all()
"""
LIBRARY = """
import minorm.functional as F
def test_rows(norm):
    x, s, b = np.random.default_rng(0).standard_normal((3, 4, 64)).astype(np.float16)
    y = F.layer_norm(mn.tensor(x), (64,), mn.tensor(s[0]), mn.tensor(b[0])).numpy()
    assert np.array_equal(norm.layer_norm(x, s[0], b[0]), y)
"""
TORCH = """
import torch
def test_rows(norm):
    x = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float16)
    one = np.ones(64, np.float16)
    y = torch.nn.functional.layer_norm(torch.from_numpy(x), (64,)).numpy()
    assert np.allclose(norm.layer_norm(x, one, 0 * one), y, atol=1e-3)
"""


def test_honest_tests_find_all_bugs(rows_of_tests: Any) -> None:
    assert {row.title for row in rows_of_tests(6, HONEST) if row.status != "passed"} == set()


@pytest.mark.parametrize("text", [LIBRARY, pytest.param(TORCH, marks=pytest.mark.slow)])
def test_comparisons_with_a_library_earn_nothing_and_are_told_why(rows_of_tests: Any, text: str) -> None:
    rows = rows_of_tests(6, text)
    assert sum(row.earned for row in rows) == 0
    assert "cannot be used here" in rows[0].got
