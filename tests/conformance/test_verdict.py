"""Verdicts find each planted defect, its size and its output, and never call a right result wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from minorm.conformance import framework_formula
from minorm.conformance.cases import all_cases
from minorm.conformance.runtime_calls import Outcome, ask
from minorm.conformance.verdict import Cell, allowed, counted, judge
from tests.conformance.planted import REFUSED, RIGHT, WRONG

CASES = {(c.operator, c.opset, c.name): c for c in all_cases()}
TRAINING = CASES["BatchNormalization", 15, "training, float32"]


def exact(case: Any) -> list[Any]:
    with np.errstate(over="ignore"):
        due = [pair for pair in framework_formula.due(case) if pair[0] is not None]
        return [value.astype(dtype) for value, dtype in due][: len(case.wanted)]


def test_every_planted_mistake_is_found(planted: Any, places: dict[str, int]) -> None:
    found = ask(planted, list(places.values()), seconds=6)
    cells = {name: judge(all_cases()[place], "planted", found[place]) for name, place in places.items()}
    for name, said in WRONG.items():
        assert cells[name].verdict == "wrong", name
        assert cells[name].said.startswith(said), name
        assert not cells[name].defect
    assert [cells[name].verdict for name in RIGHT] == ["right", "right"]
    assert cells[REFUSED].verdict == "unsupported"
    assert cells["training, float32"].error == pytest.approx(0.01, rel=0.2)


@pytest.mark.parametrize("place", range(0, len(all_cases()), 7))
def test_the_formula_itself_rounded_once_is_right(place: int) -> None:
    case = all_cases()[place]
    if any(value is None for value, _ in framework_formula.due(case)[: len(case.wanted)]):
        pytest.skip("no text settles what the statistics of an empty batch are")
    cell = judge(case, "formula", Outcome("answered", "", tuple(exact(case))))
    assert cell.verdict == "right", cell
    assert cell.digits is not None
    assert cell.digits >= {"float64": 15, "float32": 6.5, "float16": 2.9, "bfloat16": 2.0}[cell.type]


def test_a_little_too_much_is_wrong_and_a_little_less_is_right() -> None:
    y, *statistics = exact(TRAINING)
    scale = max(1.0, float(np.abs(y).max()))
    for factor, verdict in ((0.9, "right"), (1.1, "wrong")):
        off = y.copy()
        off.flat[3] += np.float32(factor * 1e-4 * scale)
        assert judge(TRAINING, "x", Outcome("answered", "", (off, *statistics))).verdict == verdict


def test_an_offset_excuses_a_rounded_mean_and_no_cancellation() -> None:
    case = CASES["InstanceNormalization", 22, "offset 1e+04"]
    x, scale, bias = case.inputs
    s, b = (p.reshape(1, -1, 1, 1) for p in (scale, bias))
    two_pass = x - x.mean((2, 3), keepdims=True)
    two_pass = two_pass / np.sqrt((two_pass**2).mean((2, 3), keepdims=True) + np.float32(1e-5)) * s + b
    assert judge(case, "x", Outcome("answered", "", (two_pass,))).verdict == "right"
    squares = (x * x).mean((2, 3), keepdims=True) - x.mean((2, 3), keepdims=True) ** 2
    with np.errstate(invalid="ignore"):
        naive = (x - x.mean((2, 3), keepdims=True)) / np.sqrt(squares + np.float32(1e-5)) * s + b
    assert judge(case, "x", Outcome("answered", "", (naive,))).verdict == "wrong"


def test_what_is_beyond_the_type_is_infinite_there() -> None:
    case = CASES["BatchNormalization", 15, "training, values 1e20"]
    results = exact(case)
    assert np.isinf(results[2]).all()
    assert judge(case, "x", Outcome("answered", "", tuple(results))).verdict == "right"


def test_float64_that_is_computed_in_float32_is_judged_as_such() -> None:
    stashed = CASES["LayerNormalization", 17, "float64"]
    assert allowed(stashed, np.dtype(np.float64)) == 1e-4
    assert allowed(CASES["LayerNormalization", 17, "float64, stash float64"], np.dtype(np.float64)) == 1e-9


def test_counting() -> None:
    cells = [
        Cell("LRN", 13, "a", "x", "right", "float32", 1e-5, 5.0),
        Cell("LRN", 13, "b", "x", "right", "float16", 1e-3, 3.0),
        Cell("LRN", 13, "c", "x", "wrong", "float32", 1.0),
        Cell("LRN", 13, "d", "x", "unsupported"),
    ]
    assert counted(cells) == (2, 1, 1, 5.0)
    assert counted([]) == (0, 0, 0, None)
