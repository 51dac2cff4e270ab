"""Lab 15: typically wrong answers lose the points they should, and no others; no work, no points."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minorm.labs import museum
from minorm.labs.checks import lab15_museum as checks
from minorm.labs.checks.planted import lab15_museum as planted

WILD = {"batch_norm and group_norm: A to E", "layer_norm and lp_norm: F to H"}
BATCH_WILD, LAYER_WILD = sorted(WILD)
FIRST, SECOND = "A, B, C and D", "E, F, G and H"
CAUSES = {letter: f"the cause of {letter}, and no other" for letter in museum.PLAQUES}
BATCH, LAYER = "batch_norm and group_norm", "layer_norm and lp_norm"
ODD_BATCH, ODD_LAYER = f"odd shapes, offsets and types: {BATCH}", f"odd shapes, sizes and types: {LAYER}"
RIGHT = "your tests pass on the right implementation"
BUGS = {f"bug: {name}" for name in checks.LAB.items[-1].planted}  # type: ignore[union-attr]


@pytest.fixture
def lost_of(monkeypatch: pytest.MonkeyPatch, lost: Any) -> Any:
    """lost_of("15.3", (old, new), ...): as `lost`, of one or two tasks alone, which takes a tenth of the time."""

    def titles(tasks: str, *changes: tuple[str, str], seed: int = 1) -> set[str]:
        some = [item for item in ITEMS if item.task in tasks]
        monkeypatch.setattr(checks.LAB, "items", some)
        found: set[str] = lost(15, *changes, seed=seed)
        return found

    return titles


ITEMS = list(checks.LAB.items)
D_CASE = "x = np.float32([[[10_000, 10_002]]])"
RNG = "    rng = np.random.default_rng(seed)\n"
OF_E = '"s": np.ones(2), "b": np.zeros(2), "num_groups": 2}'
H_WILD = "rng.uniform(300, 900, (2, 5))"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # one x for all seeds
        ([(RNG, "    rng = np.random.default_rng(0)\n")], WILD),
        # an offset at which D is right to two digits
        ([("standard_normal((2, 4, 5)) + 10_000)", "standard_normal((2, 4, 5)) + 100)")], {BATCH_WILD}),
        # fewer elements than in the wild
        ([(H_WILD, "rng.uniform(300, 900, (2, 2))")], {LAYER_WILD}),
        # numbers on which a right program is as wrong: eps is larger than float16 knows of their variance
        ([('{"x": x, "s": np.ones(5), "b": np.zeros(5)}', '{"x": x, "s": np.full(5, 3e38), "b": np.zeros(5)}'),
          ("x = np.float32(1e20 *", "x = np.float16(")], {LAYER_WILD}),
        # shapes that do not fit
        ([(OF_E, OF_E.replace("(2)", "(3)"))], {BATCH_WILD}),
        # shown, but not small; not short; not shown
        ([(D_CASE, "x = np.float32([[[10_000, 10_002, 10_004]]])")], {FIRST}),
        ([(D_CASE, "x = np.float32([[[10_000.125, 10_002.5]]])")], {FIRST}),
        ([(D_CASE, "x = np.float32([[[1_000, 1_002]]])")], {FIRST}),
        ([('{"x": np.float16([300])}', '{"x": np.float16([30])}')], {SECOND}),
    ],
)  # fmt: skip
def test_cases(lost_of: Any, changes: list[tuple[str, str]], expected: set[str]) -> None:
    assert lost_of("15.1, 15.2", *changes) == expected


# The formula on random numbers: it finds every fault of the room, and so explains none
FORMULA = """
    rng = np.random.default_rng(0)
    x, s, b = rng.standard_normal((5, 3)) + 1, np.ones(3), np.zeros(3)
    got = norm(x, s, b, np.full(3, 7.0), np.full(3, 9.0))
    for mine, right in zip(got, batch_norm(x, s, b, np.full(3, 7.0), np.full(3, 9.0))):
        np.testing.assert_allclose(mine, right, rtol=1e-9, atol=1e-9)
"""
A_BODY = "    x = np.random.default_rng(0).standard_normal((5, 3)) + 1\n    s, b = np.array([1.0, 2.0, -1.0])"
A_SAYS = "np.testing.assert_allclose(fresh, old, rtol=1e-9, atol=1e-9)"
SAME_AS_A = "assert not np.array_equal(fresh, museum.exhibit('A')(x, s, b, np.zeros(3), np.ones(3))[0])"
HALF = [
    ("mean, var, momentum=1.0)", "mean, var, momentum=0.5)"),
    ("new_mean, mean, rtol", "new_mean, (mean + x.mean(0)) / 2, rtol"),
    ("new_var, var, rtol", "new_var, (var + x.var(0)) / 2, rtol"),
]
C_MEAN, C_VAR = "mean, var = x[0], np.array([4.0, 8.0])", "new_var, var / 2,"
D_SCALES = "s, b = np.ones(4, np.float32), np.zeros(4, np.float32)"
E_SCALES = "s, b = np.array([1.0, 2.0, -3.0]), np.array([0.0, 1.0, 5.0])"
G_SAYS = "large, norm(x, s, b, eps=0.0), atol=1e-4"
H_SAYS = "np.testing.assert_allclose(norm(x), norm(x / np.float16(128)), atol=2e-3)"
H_X = "np.array([[300, 400], [500, 1200]], np.float16)"


@pytest.mark.parametrize(
    ("letter", "changes"),
    [
        ("A", [(A_BODY, FORMULA + A_BODY)]),
        # the same running statistics twice
        ("A", [("np.full(3, 7.0), np.full(3, 9.0))", "np.zeros(3), np.ones(3))")]),
        # it knows the exhibit, and none of its siblings
        ("A", [(A_SAYS, SAME_AS_A)]),
        # 0.5, which hides the fault, and shows the neighbour's m - 1
        ("B", HALF),
        # A shows as well
        ("C", [(C_MEAN, "mean, var = x[0] + 1, np.array([4.0, 8.0])")]),
        # B shows as well
        ("C", [("b, mean, var, momentum=0.5)", "b, mean, var, momentum=0.9)"), (C_VAR, "new_var, var * 0.9,")]),
        # no offset to speak of
        ("D", [("np.float32(10_000)", "np.float32(100)")]),
        # scales of groups, where E is wrong as well
        ("D", [(D_SCALES, D_SCALES.replace("4, np", "2, np")), ("far, norm(x", "far, group_norm(x")]),
        # equal scales
        ("E", [(E_SCALES, "s, b = np.ones(3), np.zeros(3)")]),
        # a property that no norm has
        ("F", [("x.reshape(2, 12), s", "x.reshape(2, 12) + np.arange(12), s")]),
        # not large enough; float64, where nothing overflows and the neighbour rounds
        ("G", [("2.0**67", "2.0**40")]),
        ("G", [(G_SAYS, "large, norm(x.astype(float), s, b, eps=0.0), rtol=1e-12")]),
        # zeros, and signs with p = 1, belong to the neighbours
        ("H", [(H_X, H_X.replace("500, 1200", "0, 0")), ("norm(x / np.float16(128))", "[[0.6, 0.8], [0, 0]]")]),
        ("H", [(H_SAYS, "np.testing.assert_allclose(norm(-x, p=1), -lp_norm(x, p=1), atol=2e-3)")]),
        # it fails with an error, not with an assertion; it never fails; it always fails
        ("H", [(H_X, "unknown([[300, 400]])")]),
        ("H", [(H_SAYS, "pass")]),
        ("H", [(H_SAYS, "assert False")]),
    ],
)  # fmt: skip
def test_causes(lost_of: Any, letter: str, changes: list[tuple[str, str]]) -> None:
    assert lost_of("15.3", *changes) == {CAUSES[letter]}


def test_the_seed_chooses_the_siblings(lost: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that looks at the running mean alone misses one of three."""
    monkeypatch.setattr(checks.LAB, "items", [item for item in ITEMS if getattr(item, "title", "") == CAUSES["B"]])
    change = ("    np.testing.assert_allclose(new_var, var, rtol=1e-9)\n", "")
    found = [lost(15, change, seed=seed) for seed in range(1, 9)]
    assert {CAUSES["B"]} in found
    assert set() in found


VAR_STEP = "running_var.astype(np.float64) * momentum + var *"
UNBIASED = VAR_STEP.replace("var *", "wide.var(axis=axes, ddof=int(x.size > x.shape[1])) *")
AXES = "    axes = tuple(range(axis % x.ndim, x.ndim))\n"
NORM = "    wide = x.astype(np.float64)\n    norm ="
LIBRARY = """    import minorm as mn, minorm.functional as F
    if x.size:
        y = F.normalize(mn.tensor(x.astype(float)), p, axis, eps=1e-300)
        return y.numpy().astype(x.dtype)
"""
MEASURE = "    return museum.exhibit_errors._RIGHT['layer_norm'](x, s, b, axis, eps).astype(x.dtype)\n"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ((VAR_STEP, UNBIASED.replace("running_wide", "running")), {BATCH, ODD_BATCH}),
        (("np.repeat(v, channels // len(v))", "np.tile(v, channels // len(v))"), {BATCH, ODD_BATCH}),
        (("groups = x.astype(np.float64)", "groups = x"), {BATCH, ODD_BATCH}),
        ((AXES, "    axes = tuple(range(axis, x.ndim)) if axis >= 0 else axis\n"), {ODD_LAYER}),
        ((f"{AXES}    wide = x.astype(np.float64)", f"{AXES}    wide = x"), {LAYER, ODD_LAYER}),
        (("norm = (np.abs(wide) ** p)", "norm = (np.abs(x) ** p)"), {LAYER, ODD_LAYER}),
        (("np.where(norm == 0, 1, norm)", "norm"), {ODD_LAYER}),
        (("b.reshape(along)).astype(x.dtype)\n    new", "b.reshape(along))\n    new"), {ODD_BATCH}),
        # the library in place of the formula, right as it is; the measure's own formula
        ((NORM, LIBRARY + NORM), {LAYER, ODD_LAYER}),
        ((AXES, AXES + MEASURE), {LAYER, ODD_LAYER}),
    ],
)
def test_mended_functions(lost_of: Any, change: tuple[str, str], expected: set[str]) -> None:
    assert lost_of("15.4", change) == expected


VAR_SAYS = "np.testing.assert_allclose(new_var, [{}])"
ROWS, OF_ROWS = "np.array([[1.0, 2.0], [3.0, 4.0]])", "[[[-1, -2], [3, 4]]]"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # scales of 1 and equal rows
        ([(ROWS, "np.ones((2, 2))"), (OF_ROWS, "[[[-1, -1], [1, 1]]]")], {"bug: the first row of the scale"}),
        # the running mean alone
        (
            [(VAR_SAYS.format("8.2, 8.5"), "pass"), (VAR_SAYS.format("8.1, 8.1"), "pass")],
            {"bug: the running variance's momentum reversed"},
        ),
        # numbers whose squares float16 has
        ([("np.float16([[300, -400]", "np.float16([[3, -4]")], {"bug: squares in 16 bits"}),
        # a wrong test
        ([("[0.65, 0.85]", "[1.85, 3.65]")], {RIGHT, *BUGS}),
    ],
)
def test_weak_and_wrong_tests(lost_of: Any, changes: list[tuple[str, str]], expected: set[str]) -> None:
    assert lost_of("15.5", *changes) == expected


@pytest.mark.parametrize("letter", museum.PLAQUES)
def test_siblings_and_neighbours_are_right_but_for_their_fault(letter: str) -> None:
    """On ordinary numbers all programs of a room are right: each has one fault, and no other."""
    room = museum.PLAQUES[letter].function
    x = np.random.default_rng(0).standard_normal((60, 4)).astype(np.float16 if room == "lp_norm" else np.float32)
    ordinary: dict[str, Any] = {
        "batch_norm": {"x": x, "s": np.ones(4), "b": np.zeros(4), "running_mean": x.mean(0), "running_var": x.var(0)},
        "group_norm": {"x": x, "s": np.ones(4), "b": np.zeros(4), "num_groups": 2},
        "layer_norm": {"x": x, "s": np.ones(4), "b": np.zeros(4)},
        "lp_norm": {"x": x},
    }[room]
    right = museum.right(room, ordinary)
    for program in (
        museum.exhibit(letter), planted.RIGHT_TOO[room],
        *planted.SIBLINGS[letter].values(), *planted.NEIGHBOURS[room].values(),
    ):  # fmt: skip
        bound = {"batch_norm": 0.05, "group_norm": 1e-3, "lp_norm": 2e-3}.get(room, 1e-5)
        assert museum.distance(program(**ordinary), right) < bound


STAND_IN = "def {0}(*a, **o):\n    return museum.exhibit_errors._RIGHT['{0}'](*a, **o)\n\n\ndef old_{0}(x,"


def test_who_does_nothing_of_it_earns_nothing(lost: Any) -> None:
    """Empty answers, the museum's own formulas in place of each function, tests that look at nothing."""
    tests = [*(f"cause_{letter}" for letter in museum.PLAQUES), *(f"test_{name}" for name in checks.FUNCTIONS)]
    empty = [
        (RNG, "    return {}\n"),
        ("    one = np.ones(1)\n", "    return {}\n"),
        *((f"def {name}(norm):\n", f"def {name}(norm):\n    return\n") for name in tests),
        *((f"def {name}(x,", STAND_IN.format(name)) for name in checks.FUNCTIONS),
    ]
    titles = {item.title for item in checks.LAB.items[:-1]} | {RIGHT, *BUGS}  # type: ignore[union-attr]
    assert lost(15, *empty) == titles
