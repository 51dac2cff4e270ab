"""Lab 11: typical wrong answers lose their points and no others; the installed versions have the bugs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minorm.labs import oracles, suspects
from minorm.labs.checks import lab11_find_the_bug as checks

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

ERRORS, LENGTHS, SPECIAL = "largest error, relative to the largest number", "shapes and lengths", "NaN and infinity"
LP, LRN, MVN = "LpNormalization", "LRN", "MeanVarianceNormalization"
CORNERS = "norms of 0, even windows, constant data"
FEWER, SIMPLER, OTHERS = "fewer elements", "simpler numbers", "other shapes, and sums of whole numbers"
FIRST, SECOND = "the fewest elements: A, B, C", "the fewest elements: D, E, F"
REFERENCE, RUNTIME = "the fewest elements: reference", "the fewest elements: onnxruntime"
LP_CASE = 'case("LpNormalization", 22, [-1], p=1)'


@pytest.fixture
def unreal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks but the last: real tools are not asked."""
    monkeypatch.setattr(checks.LAB, "items", [item for item in checks.LAB.items if item.task != "11.5"])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # the error alone
        ([("size = max(1, np.nanmax(np.abs(b)))", "size = 1")], {ERRORS, SPECIAL}),
        # relative, also for small numbers
        ([("max(1, np.nanmax(np.abs(b)))", "np.nanmax(np.abs(b))")], {ERRORS}),
        # broadcasting hides a wrong shape
        ([("if a.shape != b.shape or (", "if (")], {LENGTHS}),
        # zip hides a missing output
        ([("    if len(got) != len(right):\n        return np.inf\n", ""), ("strict=True", "strict=False")], {LENGTHS}),
        # NaN is never larger than a number
        ([(" or (np.isnan(a) != np.isnan(b)).any()", ""), ("(a != b) & ~np.isnan(a)", "np.abs(a - b) > 0"),
          ("np.nanmax(np.abs(b))", "np.abs(b).max()")], {SPECIAL}),
        # no abs, as in the reference
        ([("(np.abs(x) ** p)", "(x ** p)")], {LP, CORNERS}),
        # 0 / 0
        ([("np.where(norm == 0, 1, norm)", "norm")], {CORNERS}),
        # even windows the wrong way round
        ([("c - (size - 1) // 2)", "c - size // 2)"), ("c + size // 2)", "c + (size - 1) // 2)")], {CORNERS}),
        # alpha is not divided by size
        ([(" / size * sums", " * sums")], {LRN, CORNERS}),
        # positions only
        ([('said.get("axes", (0, 2, 3))', 'said.get("axes", (2, 3))')], {MVN, CORNERS}),
        # eps inside the root
        ([("(x.std(axes, keepdims=True) + 1e-9)", "np.sqrt(x.var(axes, keepdims=True) + 1e-9)")], {MVN, CORNERS}),
        # halves only
        ([("range(length if length > 2 else 0)", "range(0)")], {OTHERS}),
        # one index after the other: slow, but right
        ([("if length > 1:", "if length > 99:"), ("if length > 2 else 0", "if length > 1 else 0")], set()),
        # numbers are not made simpler
        ([("for simple in (0, 1, np.rint(x[place])):", "for simple in ():")], {FEWER, SIMPLER, OTHERS}),
        # only zeros are tried
        ([("for simple in (0, 1, np.rint(x[place])):", "for simple in (0,):")], {SIMPLER, OTHERS}),
        # only one step
        ([("    while (better := search(case)) is not None:", "    if (better := search(case)) is not None:")],
         {FEWER, SIMPLER, OTHERS}),
        # the case itself is changed
        ([("                    changed = x.copy()", "                    changed = x")], {FEWER, SIMPLER, OTHERS}),
        # a case on which the suspect is right
        ([('"A": oracles.case("LpNormalization", 13, [0])', '"A": oracles.case("LpNormalization", 13, [1])')],
         {"suspect A is shown", FIRST}),
        # too large
        ([("np.ones((1, 1, 1, 1)), size=3, alpha=1.0)", "np.ones((2, 1, 1, 1)), size=3, alpha=1.0)")], {SECOND}),
        # a case of another operator
        ([('"E": oracles.case("MeanVarianceNormalization", 13, two.reshape(2, 1, 1, 1))',
           '"E": oracles.case("LpNormalization", 13, [0])')], {"suspect E is shown", SECOND}),
    ],
)  # fmt: skip
def test_wrong_answers(unreal: None, lost: Any, changes: list[tuple[str, str]], expected: set[str]) -> None:
    assert lost(11, *changes) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # all oracles agree; larger than needed
        (
            [(LP_CASE, 'case("LpNormalization", 22, [1], p=1)'),
             ("9, one, [1], [0], [0], [1]\n", "9, [one[0], one[0]], [1], [0], [0], [1]\n")],
            {"reference, LpNormalization is shown", REFERENCE},
        ),
        # a refusal, which is not a bug; a model that is not valid; a case that is missing
        (
            [('"MeanVarianceNormalization", 13, one\n', '"MeanVarianceNormalization", 13, one.astype(np.float16)\n'),
             ("[1], [0], num_groups=1", "[1], [0]"), ('"reference, LRN":', '"reference, LR":')],
            {"onnxruntime, MeanVarianceNormalization is shown", "onnxruntime, GroupNormalization is shown",
             "reference, LRN is shown", REFERENCE, RUNTIME},
        ),
    ],
)  # fmt: skip
def test_wrong_cases_of_real_bugs(
    monkeypatch: pytest.MonkeyPatch, lost: Any, changes: list[tuple[str, str]], expected: set[str]
) -> None:
    monkeypatch.setattr(checks.LAB, "items", [item for item in checks.LAB.items if item.task == "11.5"])
    assert lost(11, *changes) == expected


def test_a_crash_counts_and_ends_nobody_else(monkeypatch: pytest.MonkeyPatch, lost: Any) -> None:
    monkeypatch.setattr(
        checks.LAB, "items", [i for i in checks.LAB.items if "time, BatchNorm" in getattr(i, "title", "")]
    )
    crash = '"BatchNormalization", 15, one, [1], [0], [0], [1], outputs=["y", "", ""], training_mode=1'
    assert lost(11, ('"BatchNormalization", 9, one, [1], [0], [0], [1], outputs=five', crash)) == set()


def test_a_mended_tool_gives_the_point_away(monkeypatch: pytest.MonkeyPatch, lost: Any) -> None:
    monkeypatch.setattr(checks.LAB, "items", [i for i in checks.LAB.items if "ence, Lp" in getattr(i, "title", "")])
    assert lost(11, (LP_CASE, "1")) == {"reference, LpNormalization is shown"}
    checks.mended.cache_clear()
    monkeypatch.setitem(oracles.ORACLES, "reference", checks.truth)
    assert lost(11, (LP_CASE, "1")) == set()
    checks.mended.cache_clear()


@pytest.mark.parametrize(
    "changes",
    [
        {"operator": "Conv"},
        {"opset": 30},
        {"inputs": []},
        {"inputs": [np.zeros(2000, np.float32)]},
        {"inputs": [np.array([np.inf], np.float32)]},
        {"attributes": {"p": 1.5}},
        {"attributes": {"q": 1}},
        {"attributes": {"axis": True}},
        {"attributes": {"axis": 1000}},
        {"outputs": []},
        {"more": 1},
    ],
)
def test_no_other_model_reaches_the_tools(changes: dict[str, Any]) -> None:
    case = oracles.case("LpNormalization", 13, [1.0, 2.0])
    oracles.checked(case)
    with pytest.raises(ValueError, match=r"\w"):
        oracles.model({**case, **changes})


def test_suspects_are_right_but_for_their_bug() -> None:
    """On ordinary cases all six agree with the formula."""
    x = np.random.default_rng(0).standard_normal((1, 5, 3, 4)).astype(np.float32)
    said: dict[str, dict[str, Any]] = {"C": {"size": 3}, "D": {"size": 1}, "F": {}, "E": {}, "A": {}, "B": {}}
    for name, operator in suspects.OPERATORS.items():
        case = oracles.case(operator, 13, x, **said[name])
        assert checks.distance(oracles.suspect(name)(case), checks.truth(case)) < 1e-5


def test_numbers_on_which_everything_breaks_show_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    case = oracles.case("LpNormalization", 13, [1.0, 2.0])

    def broken(_: Any) -> list[Any]:
        return [np.array([np.nan, np.nan])]

    checks._shows(broken, case, 1e-3, ["minorm"], "it")
    monkeypatch.setitem(oracles.ORACLES, "minorm", broken)
    with pytest.raises(checks.Wrong, match="the case breaks all"):
        checks._shows(broken, case, 1e-3, ["minorm"], "it")
