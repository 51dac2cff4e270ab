"""Lab 11: checks a distance, three formulas, a function that shrinks cases, and cases that show planted and real bugs.

Cases come back as numbers. The judge runs the suspects, the reference and minorm in its own process, and onnxruntime in
a separate one. A case earns points if the tool that the task names is wrong on it, and another tool is right on it. So
numbers that break every tool earn nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from minorm.labs import oracles, suspects
from minorm.labs.calling.objects import Callback
from minorm.labs.checks.variants.lab11_find_the_bug import FEWEST, V
from minorm.labs.comparing import Wrong, close, equal, numbers, parts, true
from minorm.labs.lab import Lab

LAB = Lab(
    11,
    "lab11_find_the_bug",
    "Find the bug",
    "Two tools disagree about a node: which one is wrong, and what is the smallest model that proves it?",
    minutes=150,
    needs=(1,),
    packages=("onnx", "onnxruntime"),
    variants=V,
)
LP, LRN, MVN = "LpNormalization", "LRN", "MeanVarianceNormalization"
QUESTIONS = 2000
TOOLS = 60.0  # seconds: starting onnxruntime counts too, between two questions to the student
SHOWN = {"planted": 1e-3, "real": 1e-2}  # further than this from the formula is wrong
AGREES = 1e-3
REAL = {
    "reference, LpNormalization": 1,
    "reference, LRN": 2,
    "reference, BatchNormalization": 5,
    "onnxruntime, MeanVarianceNormalization": 1,
    "onnxruntime, GroupNormalization": 4,
    "onnxruntime, BatchNormalization": 5,
}
_ONE = np.ones((1, 1, 1, 1))
WITNESSES = {  # whether a tool still has its bug
    "reference, LpNormalization": oracles.case(LP, 22, [-3], p=1),
    "reference, LRN": oracles.case(LRN, 13, np.ones((1, 3, 1, 1)), size=1, alpha=1.0),
    "reference, BatchNormalization": oracles.case("BatchNormalization", 9, _ONE, [2], [0], [0], [1]),
    "onnxruntime, MeanVarianceNormalization": oracles.case(MVN, 13, 2 * _ONE),
    "onnxruntime, GroupNormalization": oracles.case(
        "GroupNormalization", 21, [[[3e4, 3e4 + 2]]], [1], [0], num_groups=1
    ),
    "onnxruntime, BatchNormalization": oracles.case(
        "BatchNormalization", 9, _ONE, [1], [0], [0], [1], outputs=list("ymvab")
    ),
}


# 11.1


def distance(got: Any, right: Any) -> float:
    """Return how far the results are from the right ones: max |got - right| / max(floor, max |right|).

    This is task 11.1.
    """
    if len(got) != len(right):
        return float("inf")
    found = [0.0]
    for a, b in zip(got, right, strict=True):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        if a.shape != b.shape or not np.array_equal(np.isnan(a), np.isnan(b)):
            return float("inf")
        with np.errstate(invalid="ignore"):
            off = np.where((a == b) | np.isnan(a), 0, np.abs(a - b))
        scale = max([float(V.floor), *np.abs(b[~np.isnan(b)]).tolist()])
        if off.size and off.max() > 0:
            found.append(float(off.max()) / scale if np.isfinite(scale) else float("inf"))
    return max(found)


def _distance(student: Any, got: list[Any], right: list[Any], what: str) -> None:
    shown = f"disagreement of {what}"
    found = numbers(student.disagreement(got, right), shown, "a number")
    close(found, np.float64(distance(got, right)), shown)


@LAB.check("11.1", "largest error, relative to the largest number", visible=True)
def errors(student: Any, rng: np.random.Generator) -> None:
    a, b = rng.standard_normal((2, 3, 4))
    _distance(student, [a], [a], "equal arrays")
    _distance(student, [a], [b], "two arrays")
    _distance(student, [1000 * a, a], [1000 * b, b + 1], "two arrays each")
    _distance(student, [a / 1000], [b / 1000], "small numbers")


@LAB.check("11.1", "shapes and lengths", visible=True)
def lengths(student: Any, rng: np.random.Generator) -> None:
    a = rng.standard_normal((3, 1))
    for got, right, what in (
        ([a], [a, a], "one array and two"),
        ([a], [a.T], "shapes (3, 1) and (1, 3)"),
        ([a], [a[:1]], "shapes (3, 1) and (1, 1)"),
        ([a[:0]], [a[:0]], "arrays without elements"),
    ):
        _distance(student, got, right, what)


@LAB.check("11.1", "NaN and infinity")
def special(student: Any, rng: np.random.Generator) -> None:
    a, n, i = np.array([1.0, 2.0, 4.0]), np.array([1.0, np.nan, 4.0]), np.array([1.0, np.inf, 4.0])
    _distance(student, [n], [a], "a NaN in the answer only")
    _distance(student, [a], [n], "a NaN in the right result only")
    _distance(student, [n], [n + np.array([0, 0, 1])], "NaN in the same place, another number differs")
    _distance(student, [i], [i], "equal infinities")
    _distance(student, [i], [a], "infinity in the answer only")
    _distance(student, [i], [-i], "infinities with opposite signs")
    _distance(student, [a, n], [a, a], "a NaN in the second array")
    half = np.array([300.0, 1], np.float16)
    _distance(student, [half], [half + np.float16(200)], "float16")


# 11.2


def truth(case: Any) -> list[Any]:
    """Return the right answer to a case, in float64."""
    if case["operator"] in ("BatchNormalization", "GroupNormalization"):
        return oracles.formula(case)
    x, said = np.asarray(case["inputs"][0], np.float64), case["attributes"]
    if case["operator"] == LP:
        axis = said.get("axis", -1)
        norm = np.linalg.norm(np.moveaxis(x, axis, -1), said.get("p", 2), axis=-1, keepdims=True)
        return [np.divide(x, np.moveaxis(norm, -1, axis), out=np.zeros_like(x), where=np.moveaxis(norm, -1, axis) != 0)]
    if case["operator"] == LRN:
        count, size = x.shape[1], said["size"]
        places = np.arange(count)
        off = places - places[:, None]
        band = (off >= -((size - 1) // 2)) & (off <= -(-(size - 1) // 2))
        sums = np.einsum("ij,nj...->ni...", band.astype(np.float64), x * x)
        return [x * (said.get("bias", 1.0) + said.get("alpha", 1e-4) / size * sums) ** -said.get("beta", 0.75)]
    axes = tuple(said.get("axes", (0, 2, 3)))
    c = x - x.mean(axes, keepdims=True)
    return [c / (np.sqrt((c * c).mean(axes, keepdims=True)) + 1e-9)]


def _formula(student: Any, case: Any) -> None:
    what = f"formula of {case['operator']}, x {case['inputs'][0].shape}, {case['attributes'] or 'no attributes'}"
    (found,) = parts(student.formula(case), 1, what)
    close(found, truth(case)[0], what, rtol=1e-9, atol=1e-12, dtype=np.float64)


@LAB.check("11.2", "LpNormalization", visible=True)
def lp(student: Any, rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 4, 5))
    attributes: tuple[dict[str, Any], ...] = ({}, {"p": 1}, {"axis": 1}, {"p": 1, "axis": 0})
    for said in attributes:
        _formula(student, oracles.case(LP, 13, x, **said))


@LAB.check("11.2", "LRN", visible=True)
def lrn(student: Any, rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 6, 3, 2))
    for said in ({"size": 3}, {"size": 5, "alpha": 1.0, "bias": 2.0}, {"size": 1, "beta": 0.5, "alpha": 0.3}):
        _formula(student, oracles.case(LRN, 13, x, **said))


@LAB.check("11.2", "MeanVarianceNormalization", visible=True)
def mvn(student: Any, rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 3, 4, 5)) + 3
    attributes: tuple[dict[str, Any], ...] = ({}, {"axes": [1, 2]}, {"axes": [3]})
    for said in attributes:
        _formula(student, oracles.case(MVN, 13, x, **said))


@LAB.check("11.2", "norms of 0, even windows, constant data", points=2)
def corners(student: Any, rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 5))
    x[0] = 0
    _formula(student, oracles.case(LP, 13, x))
    _formula(student, oracles.case(LP, 13, x, p=1, axis=-2))
    for size in (2, 4, 12):
        _formula(student, oracles.case(LRN, 13, rng.standard_normal((3, 5, 2)), size=size, alpha=2.0))
    _formula(student, oracles.case(MVN, 13, np.full((2, 1, 3, 1), 7.0)))
    _formula(student, oracles.case(MVN, 13, rng.standard_normal((2, 3, 4, 5)) * 1e-9 + 1e-3))


# 11.3

PREDICATES: dict[str, tuple[Callable[[Any], bool], int, int]] = {  # fails; elements and other than 0 that must be left
    "fails with a negative number": (lambda x: bool((x < 0).any()), 1, 1),
    "fails with a number above 100": (lambda x: bool((x > 100).any()), 1, 1),
    "fails where two channels differ": (lambda x: x.shape[1] > 1 and bool((x[:, :1] != x[:, 1:]).any()), 2, 1),
    "fails with three samples or more": (lambda x: len(x) >= 3, 3, 0),
    "fails with three rows of four": (lambda x: x.shape[2] >= 3 and x.shape[3] >= 4, 12, 0),
    "fails with a sum of 5 or more": (lambda x: bool(np.abs(x).sum() >= 5), 99, 99),
    "fails always": (lambda x: x.size > 0, 1, 0),
}


def _shrink(student: Any, rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> tuple[Any, str]:
    fails, size, others = PREDICATES[name]
    x = rng.normal(0, 20, shape).astype(np.float32)
    x.flat[int(rng.integers(x.size))] = 230.5
    x.flat[int(rng.integers(x.size))] = -230.5
    asked = 0

    def tried(case: Any) -> bool:
        nonlocal asked
        asked += 1
        return fails(np.asarray(case["inputs"][0]))

    what = f"smallest of {'x'.join(map(str, shape))}, {name}"
    given, serving = oracles.case(LRN, 13, x, size=3), {"fails": tried}
    case = student.call("smallest", (given, Callback("fails")), {}, serving)
    changed = [remark for remark in student.remarks if remark.startswith("smallest ")]
    try:
        oracles.checked(case)
    except ValueError as error:
        raise Wrong(what, "a case", str(error)) from None
    left = case["inputs"][0]
    equal(case["attributes"], {"size": 3}, f"attributes after {what}")
    true(fails(left), what, "a case that fails", "a case that does not fail")
    true(left.size <= size, what, f"at most {size} elements", f"{left.size}, shape {left.shape}")
    many = np.count_nonzero(left)
    true(many <= others, what, f"at most {others} numbers other than 0", f"{many}")
    true(not changed, f"the given case, after {what}", "no change", "a changed case")
    true(asked <= QUESTIONS, what, f"at most {QUESTIONS} questions", f"{asked}")
    return left, what


@LAB.check("11.3", "fewer elements", points=2, visible=True)
def fewer(student: Any, rng: np.random.Generator) -> None:
    for name in ("fails with three samples or more", "fails with a negative number", "fails always"):
        _shrink(student, rng, name, (3, 5, 4, 3))


@LAB.check("11.3", "simpler numbers", visible=True)
def simpler(student: Any, rng: np.random.Generator) -> None:
    left, what = _shrink(student, rng, "fails where two channels differ", (3, 5, 4, 3))
    equal(np.sort(left.ravel()), np.array([0, V.simple], np.float32), what)
    left, what = _shrink(student, rng, "fails with a number above 100", (2, 5, 3))
    true(float(left.max()).is_integer(), what, "a whole number", f"{left.max()}")


@LAB.check("11.3", "other shapes, and sums of whole numbers")
def other_shapes(student: Any, rng: np.random.Generator) -> None:
    _shrink(student, rng, "fails with three rows of four", (2, 3, 8, 9))
    _shrink(student, rng, "fails with three samples or more", (7, 1))
    _shrink(student, rng, "fails where two channels differ", (1, 2))
    left, what = _shrink(student, rng, "fails with a sum of 5 or more", (4, 6))
    true(all(float(v).is_integer() for v in left.ravel()), what, "whole numbers", str(left.ravel()))


# 11.4 and 11.5


def _answer(oracle: Callable[[Any], list[Any]], case: Any) -> tuple[float, str]:
    """Return how far the oracle's answer to the case is from the right answer, as a number and as a text.

    The distance is infinite for a crash and NaN for a refusal.
    """
    try:
        off = distance(oracle(case), truth(case))
    except oracles.NoAnswer as failure:
        return (float("inf") if failure.crashed else float("nan")), str(failure)
    return off, f"{off:.3g} apart"


def _case(cases: Any, name: str, what: str, operator: str) -> Any:
    """Return the case with this name; raise Wrong unless it is valid and small."""
    true(isinstance(cases, dict) and name in cases, what, f"a case called {name!r}", "no such case")
    case = cases[name]
    try:
        oracles.checked(case)
        true(case["operator"] == operator, what, f"a case of {operator}", case["operator"])
        oracles.check(case)
        truth(case)
    except ImportError:
        raise
    except Exception as error:
        if isinstance(error, Wrong):
            raise
        raise Wrong(what, "a valid case", " ".join(f"{error}".split())[:200]) from None
    return case


def _shows(oracle: Callable[[Any], list[Any]], case: Any, bound: float, others: list[str], what: str) -> None:
    """Raise Wrong unless `oracle` is wrong on the case and one of the oracles named in `others` is right."""
    off, words = _answer(oracle, case)
    true(off > bound, what, f"an answer more than {bound:g} from the formula", words)
    for name in others:
        if _answer(oracles.ORACLES[name], case)[0] <= AGREES:
            return
    raise Wrong(what, f"another oracle within {AGREES:g} of the formula", "the case breaks all other oracles")


def _require_few(case: Any, fewest: int, what: str) -> None:
    size = oracles.size(case)
    true(size <= fewest, what, f"at most {fewest} element{'s' * (fewest > 1)}", f"{size}")


def _planted(student: Any, name: str, few: bool) -> None:
    suspect = name + V.series
    what = f"the case for suspect {suspect}"
    case = _case(student.planted(), suspect, what, suspects.OPERATORS[name])
    _shows(oracles.suspect(suspect), case, SHOWN["planted"], ["minorm"], what)
    if few:
        _require_few(case, FEWEST[V.series][name], what)


@functools.cache
def mended(name: str) -> bool:
    """Return whether the installed version of the tool `name` no longer has the bug that the lab asks for."""
    return not _answer(oracles.ORACLES[name.split(", ", maxsplit=1)[0]], WITNESSES[name])[0] > SHOWN["real"]


def _real(student: Any, name: str, few: bool) -> None:
    what = f"the case {name!r}"
    tool, operator = name.split(", ")
    cases = student.defects()
    if mended(name):
        return
    case = _case(cases, name, what, operator)
    _shows(
        oracles.ORACLES[tool], case, SHOWN["real"], [other for other in ("minorm", "reference") if other != tool], what
    )
    if few:
        _require_few(case, REAL[name], what)


for _name in suspects.OPERATORS:

    @LAB.check("11.4", f"suspect {_name} is shown", visible=True)
    def planted(student: Any, rng: np.random.Generator, name: str = _name) -> None:
        _planted(student, name, few=False)


@LAB.check("11.4", "the fewest elements: A, B, C", points=3, visible=True)
def small_first(student: Any, rng: np.random.Generator) -> None:
    for name in "ABC":
        _planted(student, name, few=True)


@LAB.check("11.4", "the fewest elements: D, E, F", points=3)
def small_second(student: Any, rng: np.random.Generator) -> None:
    for name in "DEF":
        _planted(student, name, few=True)


for _name in REAL:

    @LAB.check("11.5", f"{_name} is shown", visible=True, seconds=TOOLS)
    def real(student: Any, rng: np.random.Generator, name: str = _name) -> None:
        _real(student, name, few=False)


@LAB.check("11.5", "the fewest elements: reference", points=3, seconds=TOOLS)
def small_reference(student: Any, rng: np.random.Generator) -> None:
    for name in REAL:
        if name.startswith("reference"):
            _real(student, name, few=True)


@LAB.check("11.5", "the fewest elements: onnxruntime", points=3, seconds=TOOLS)
def small_runtime(student: Any, rng: np.random.Generator) -> None:
    for name in REAL:
        if name.startswith("onnxruntime"):
            _real(student, name, few=True)
