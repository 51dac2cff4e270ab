"""Every cause has a page and a file: small, true by the formula, and wrong in the runtimes that it names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from minorm.conformance import cause_pages, file_cases
from minorm.conformance.case import OUTPUTS
from minorm.conformance.causes import CAUSES
from minorm.conformance.defects import KNOWN
from minorm.conformance.framework_formula import due
from minorm.conformance.minorm_calls import answer, gradients
from minorm.conformance.runtime_calls import Outcome, ask, missing
from minorm.conformance.runtimes import RUNTIMES
from minorm.conformance.verdict import WRONG, judge

FOLDER = Path(__file__).parents[2] / "docs" / "conformance"
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|nan|inf)")
EVERY = pytest.mark.parametrize("name", CAUSES)


def page(name: str) -> str:
    return (FOLDER / f"{name}.md").read_text(encoding="utf-8")


def rows(name: str) -> dict[str, str]:
    """Return the table's results by runtime, without the version."""
    found = re.findall(r"^\| (.+?)(?: [\d.]+\w*)? \| (.+) \|$", page(name), re.MULTILINE)
    return {who: given for who, given in found if who != "who"}


@EVERY
def test_the_file_is_small_sound_and_what_the_code_says(name: str) -> None:
    written = (FOLDER / f"{name}.onnx").read_bytes()
    assert len(written) <= 1024
    proto = onnx.load_from_string(written)
    assert proto == cause_pages.file(CAUSES[name].case)
    if (proto.graph.node[0].op_type, proto.opset_import[0].version) != ("GroupNormalization", 18):  # withdrawn since
        onnx.checker.check_model(proto)


@EVERY
def test_the_page_has_the_formulas_numbers_and_minorm_gives_them(name: str) -> None:
    case = CAUSES[name].case
    values = due(case)
    numbers = [
        float(x) for part in rows(name)["the formula"].split(", gradient ") for x in NUMBER.findall(_plain(part))
    ]
    expected = np.concatenate([np.ravel(values[place][0]) for place, _ in case.wanted])
    np.testing.assert_allclose(numbers, expected, rtol=1e-5, atol=1e-7)
    given = answer(case) if case.kind == OUTPUTS else gradients(case)
    assert judge(case, "minorm", Outcome("answered", "", tuple(given))).verdict == "right"


def _plain(text: str) -> str:
    """Remove types and shapes: their digits are not results."""
    return re.sub(r"\(\w+\)|of shape \(.*?\)|1 / std", "", text)


@EVERY
def test_the_file_is_judged_as_the_page_says(name: str) -> None:
    case = CAUSES[name].case
    if case.kind != OUTPUTS:
        pytest.skip("no file asks for gradients")
    ((found,), (since,)) = (read := file_cases.read(FOLDER / f"{name}.onnx")).cases, read.since
    assert found.operator == case.operator
    assert since <= case.opset
    assert found.held == case.held
    assert len(found.inputs) == len(case.inputs)
    for a, b in zip(found.inputs, case.inputs, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(due(found)[0][0], due(case)[0][0])


@EVERY
def test_who_is_named_is_known_for_it(name: str) -> None:
    accused = {RUNTIMES[who].title for defect in KNOWN if defect.cause == name for who in defect.runtimes}
    named = set(rows(name)) - {"the formula"}
    assert named
    assert named <= accused


def test_the_index_lists_them_and_nothing_else_lies_there() -> None:
    assert (FOLDER / "README.md").read_text(encoding="utf-8") == cause_pages.index()
    assert {path.stem for path in FOLDER.iterdir()} == {"README", *CAUSES}
    assert {defect.cause for defect in KNOWN} == set(CAUSES)


@pytest.mark.parametrize(
    "name", [n if n in ("onnxruntime", "reference") else pytest.param(n, marks=pytest.mark.slow) for n in RUNTIMES]
)
def test_a_runtime_is_wrong_where_a_page_says_so(name: str) -> None:
    runtime = RUNTIMES[name]
    if missing(runtime):
        pytest.skip(missing(runtime))
    cases: list[Any] = [cause.case for cause in CAUSES.values()]
    said = [place for place, cause in enumerate(CAUSES) if runtime.title in rows(cause) and name != "minorm"]
    outcomes = ask(runtime, said, cases=cases)
    for place in said:
        cell = judge(cases[place], name, outcomes[place])
        assert (cell.verdict, cell.cause) == (WRONG, list(CAUSES)[place]), cell


def test_numbers_are_shown_in_one_line() -> None:
    assert cause_pages.shown(np.array([[1, 2.5], [-3e20, np.nan]], np.float32)) == "[[1, 2.5], [-3e+20, nan]]"
    assert cause_pages.shown(np.array([1 / 3])) == "[0.333333333333] (float64)"
    assert cause_pages.shown(np.zeros((0, 2), np.float32)) == "no values, of shape (0, 2)"
