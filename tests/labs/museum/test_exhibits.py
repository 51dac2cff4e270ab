"""Each exhibit answers as its tool did, by the page of docs/conformance/ that its plaque names."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minorm.labs import museum
from minorm.labs.museum import PLAQUES

PAGES = Path(__file__).resolve().parents[3] / "docs" / "conformance"
lettered = pytest.mark.parametrize("letter", PLAQUES)


def arrays(text: str) -> dict[str, Any]:
    """`x = [[1, 2]] (float16)` and so on, by name."""
    found = re.findall(r"(\w+) = (\[.*?\])(?: \((float\d\d)\))?(?=\n|$|, \w+ = )", text)
    return {
        name: np.array(json.loads(numbers.replace("nan", "NaN").replace("inf", "Infinity")), kind or "float32")
        for name, numbers, kind in found
    }


def page(letter: str) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return the arguments on the page, and each tool's result."""
    plaque = PLAQUES[letter]
    text = (PAGES / plaque.page).read_text()
    operator, _, said = re.findall(r"^(\w+), opset (\d+)(.*), in \[", text, re.MULTILINE)[0]
    assert operator == plaque.operator.split()[0]
    values = arrays(re.findall(r"```text\n(.*?)```", text, re.DOTALL)[0])
    names = {"scale": "s", "bias": "b", "mean": "running_mean", "var": "running_var"}
    case: dict[str, Any] = {names.get(name, name): value for name, value in values.items()}
    case |= {name: int(value) for name, value in re.findall(r"(num_groups|axis|p) (-?\d+)", said)}
    rows = re.findall(r"^\| (.+?) \| (y = .*?) \|$", text, re.MULTILINE)
    return case, {who: arrays(answer) for who, answer in rows}


@lettered
def test_the_exhibit_gives_what_the_tool_gave(letter: str) -> None:
    case, answers = page(letter)
    plaque = PLAQUES[letter]
    (theirs,) = (answer for who, answer in answers.items() if re.fullmatch(rf"{re.escape(plaque.tool)} [\d.]+\w*", who))
    given = museum.exhibit(letter)(**case)
    got = dict(zip(("y", "mean", "var"), given if isinstance(given, tuple) else (given,), strict=False))
    for name, expected in theirs.items():
        np.testing.assert_allclose(got[name], expected, rtol=2e-5, atol=1e-6)
    assert museum.off(letter, case) > 0.01


@lettered
def test_the_measure_has_the_pages_formula(letter: str) -> None:
    case, answers = page(letter)
    given = museum.right(PLAQUES[letter].function, case)
    got = dict(zip(("y", "mean", "var"), given if isinstance(given, tuple) else (given,), strict=False))
    for name, expected in answers["the formula"].items():
        np.testing.assert_allclose(got[name], expected, rtol=1e-3 if expected.dtype == np.float16 else 2e-5)


@lettered
def test_a_plaque_fits_the_guide(letter: str) -> None:
    plain, turned = (museum.guide(causes).splitlines()["ABCDEFGH".index(letter)] for causes in (False, True))
    plaque = PLAQUES[letter]
    for said in (letter, plaque.function, plaque.tool, plaque.version, plaque.operator):
        assert said in plain
        assert said in turned
    assert plaque.complaint in plain
    assert plaque.page not in plain
    assert turned.endswith(f"docs/conformance/{plaque.page}")
