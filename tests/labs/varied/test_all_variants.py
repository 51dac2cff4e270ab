"""The variants of every lab: each has a solution with full marks, which does not pass as another year's."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from minorm.labs import catalogue, cells
from minorm.labs.calling import submission
from minorm.labs.calling.student import Here
from minorm.labs.judge.recognizing import OF_PLAIN
from minorm.labs.lab import SECONDS, Lab
from minorm.labs.scores import Outcome
from minorm.labs.stubs import stub
from minorm.labs.varied import rendering

YEARS = ("2026", "2027")
MORE = ("2028", "2029", "2030", "2031", "spring")
VARIED = [number for number in catalogue.numbers() if catalogue.find(number).variants]
NOT_VARIED = {7, 8, *range(12, 19)}  # docs/labs.md says why
numbered = pytest.mark.parametrize("number", VARIED)
TASKS = {  # a task of each lab that last year's solution must lose
    0: "0.3", 1: "1.4", 2: "2.5", 3: "3.2", 4: "4.4", 5: "5.2", 6: "6.2", 9: "9.3", 10: "10.4", 11: "11.1"
}  # fmt: skip
LONG = {5: ("5.2", "5.3")}  # tasks of a lab that takes too long as a whole


def of(number: int, year: str, quick: bool = True) -> Lab:
    """A lab in the variant of a year; quick: without the checks that train for long."""
    lab = catalogue.find(number)
    if quick:
        lab = replace(lab, items=[item for item in lab.items if item.seconds <= SECONDS])
    return lab.of_variant(lab.variants.of(year))


def solution(number: int, year: str) -> str:
    lab = of(number, year)
    path = catalogue.reference(lab)
    assert path is not None
    return rendering.rendered(path.read_text(), lab.variants, lab.variant)


def judged(lab: Lab, text: str) -> list[Outcome]:
    module, notes = submission.load(text, "mine.py")
    assert not notes
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return lab.run(Here(module, lab.beside), 1)


def failed(rows: list[Outcome]) -> list[Outcome]:
    return [row for row in rows if row.status != "passed"]


def test_which_labs_vary_and_in_how_many_things() -> None:
    assert set(catalogue.numbers()) - set(VARIED) == NOT_VARIED
    assert all(len(catalogue.find(number).variants.rows) >= 3 for number in VARIED)


@numbered
def test_the_text_says_what_the_table_replaces(number: int) -> None:
    lab = catalogue.find(number)
    path = catalogue.reference(lab)
    assert path is not None
    assert rendering.missing(path.read_text(), lab.variants) == []


@pytest.mark.parametrize("year", YEARS)
@numbered
def test_the_solutions_of_two_years_earn_full_marks(number: int, year: str) -> None:
    lab = of(number, year)
    if number in LONG:
        lab = replace(lab, items=[item for item in lab.items if item.task in LONG[number]])
    rows = judged(lab, solution(number, year))
    assert failed(rows) == []
    assert sum(row.points for row in rows) == lab.points


@pytest.mark.slow
@pytest.mark.parametrize("year", [*YEARS, *MORE])
@numbered
def test_the_solution_of_each_variant_earns_full_marks(number: int, year: str) -> None:
    lab = of(number, year, quick=False)
    rows = judged(lab, solution(number, year))
    assert failed(rows) == []
    assert sum(row.points for row in rows) == lab.points == catalogue.find(number).points


@numbered
def test_a_solution_does_not_pass_as_another_years(number: int) -> None:
    task = TASKS[number]
    for year, graded in ((YEARS[0], YEARS[1]), (YEARS[1], MORE[0]), ("plain", YEARS[0])):
        rows = judged(of(number, graded).of_task(task), solution(number, year))
        assert failed(rows), f"{year}'s solution passes as {graded}'s"


@pytest.mark.slow
@numbered
def test_how_much_a_solution_of_another_year_loses(number: int) -> None:
    lab = of(number, YEARS[1])
    rows = judged(lab, solution(number, YEARS[0]))
    assert sum(row.earned for row in rows) <= 0.75 * lab.points
    assert len({row.task for row in failed(rows)}) >= 3


@numbered
@pytest.mark.parametrize("year", YEARS)
def test_a_variants_stubs_are_a_notebook(number: int, year: str) -> None:
    lab = of(number, year)
    text = catalogue.notebook(lab)
    assert text == stub(solution(number, year))
    found = cells.read_percent(text)
    assert rendering.said(found) == lab.variant.code
    plain = cells.read_percent(catalogue.notebook(catalogue.find(number)))
    added = ("## The numbers of this variant", "VARIANT = ")
    assert [cell.tags for cell in found if not cell.text.startswith(added)] == [cell.tags for cell in plain]
    for cell in found:
        if not cell.markdown:
            compile(cell.text, "cell", "exec")
            assert all(len(line) <= 120 for line in cell.text.splitlines()), cell.text


def constants(number: int, year: str) -> dict[str, Any]:
    """The values that a variant's notebook shows."""
    found = next(cell.text for cell in cells.read_percent(solution(number, year)) if cell.text.startswith("VARIANT"))
    names: dict[str, Any] = {}
    exec(found, names)
    return {name: value for name, value in names.items() if re.fullmatch(r"[A-Z_]+", name) and name != "VARIANT"}


@numbered
def test_the_notebook_shows_the_values(number: int) -> None:
    lab = of(number, YEARS[0])
    expected = {
        name.upper(): lab.variants.value(name, lab.variant) for name, row in lab.variants.rows.items() if row.about
    }
    assert constants(number, YEARS[0]) == expected
    assert len(expected) >= 3


def test_one_that_reads_the_names_passes_in_another_year() -> None:
    """That is honest: the task is done with this year's numbers."""
    reads = {
        "eps=1e-5": "eps=EPS",
        "return (x - mean) / np.sqrt(var + eps)": """if PLACE == "least":
        return (x - mean) / np.sqrt(np.maximum(var, eps))
    return (x - mean) / (np.sqrt(var) + eps)""",
    }
    path = catalogue.reference(catalogue.find(1))
    assert path is not None
    text = path.read_text()
    for old, new in reads.items():
        assert old in text
        text = text.replace(old, new)
    for year in YEARS:
        lab = of(1, year)
        mine = rendering.rendered(text.replace("eps=EPS", "eps=1e-5"), lab.variants, lab.variant)
        mine = mine.replace(f"eps={lab.variants.rows['eps'].shown[lab.variant.places['eps']]}", "eps=EPS")
        assert failed(judged(lab.of_task("1.2"), mine)) == []


@pytest.mark.parametrize("number", [0, 1, 2, 3, 4])
def test_a_copy_of_the_plain_solution_is_named(number: int) -> None:
    lab = of(number, YEARS[1])
    lab = replace(lab, items=[item for item in lab.items if item.task == TASKS[number]])
    hints = {row.hint for row in failed(judged(lab, solution(number, "plain")))}
    assert any(OF_PLAIN in hint for hint in hints), hints


@pytest.mark.parametrize(
    ("number", "year", "old", "new", "task", "words"),
    [
        (0, "2027", "row[tuple(slice(None) if axis in axes else", "row[tuple(slice(None) if axis not in axes else",
         "0.4", "have to agree along the kept axes"),
        (0, "2027", "if count == 1:", "if count == 0:", "0.5", "axes of length 1 are kept as loops"),
        (1, "2027", "np.square(x - mean).mean(axis=axes, keepdims=True)",
         "np.square(x - mean).sum(axis=axes, keepdims=True) / (x.size / mean.size - 1)", "1.1", "divided by m - 1"),
        (1, "2027", "if parameter is not None", "if apply is np.multiply and parameter is not None", "1.4",
         "b is not added"),
        (2, "2027", "k = x[:5].mean(axis=0)", "k = x[0]", "2.5", "it has to be the mean of the first five"),
        (2, "2026", "M1 + M2 + delta * delta * (n1 * n2 / n)", "M1 + M2", "2.4", "is missing"),
        (3, "2027", "g - mean_g - xhat", "g - xhat", "3.2", "mean(g)"),
        (3, "2026", "return dc + dmean / m", "return dc", "3.1", "the gradient through the mean is missing"),
        (4, "2027", "np.full(channels, 0.5), []", "np.zeros(channels), []", "4.4", "starts at 0"),
        (4, "2026", "return var * m / (m - 1)", "return var * (m - 1) / m", "4.2", "m - 1"),
    ],
)  # fmt: skip
def test_mistakes_are_named_in_a_variant(number: int, year: str, old: str, new: str, task: str, words: str) -> None:
    text = solution(number, year)
    assert old in text
    rows = judged(of(number, year).of_task(task), text.replace(old, new))
    hints = [row.hint for row in failed(rows)]
    assert any(words in hint for hint in hints), hints
