"""A first look at a file finds copies and variants before the file runs, and the CSV lists them."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import minorm as mn
from minorm.cli import main
from minorm.labs import catalogue, cells
from minorm.labs.judge import first_look
from minorm.labs.varied import rendering

LAB = catalogue.find(0)
SOLUTIONS = Path(__file__).resolve().parents[3] / "examples" / "labs" / "solutions"
SOLUTION = (SOLUTIONS / "lab00_axes.py").read_text()
OTHER = (SOLUTIONS / "lab01_forward.py").read_text()


def test_a_copy_is_one_whatever_its_comments_and_its_kind_of_file() -> None:
    mine = first_look.look(SOLUTION, "a.py", LAB)
    assert mine["remarks"] == []
    renamed = SOLUTION.replace("# %%\n", "# %%\n# all my own work\n\n")
    assert first_look.look(renamed, "b.py", LAB) == mine
    assert first_look.look(cells.to_notebook(cells.read_percent(SOLUTION)), "c.ipynb", LAB) == mine
    assert first_look.look(SOLUTION + "\n# %%\nx = 1\n", "d.py", LAB)["code"] != mine["code"]


@pytest.mark.parametrize(
    ("text", "remark"),
    [
        ("", "the file has no code"),
        ("# %% [markdown]\n# # Lab 0: Axes\n\n# %%\n# nothing yet\n", "the file has no code"),
        (catalogue.notebook(LAB), "the file is unchanged since it was handed out"),
        (OTHER, "the file says that it is of lab 1; expected lab 0"),
    ],
)
def test_what_is_not_compared_is_said(text: str, remark: str) -> None:
    assert first_look.look(text, "a.py", LAB) == {
        "code": None, "prints": [], "remarks": [remark], "variant": ""
    }  # fmt: skip


def test_a_file_says_which_variant_it_is() -> None:
    variant = LAB.variants.of(2027)
    stub = catalogue.notebook(LAB.of_variant(variant))
    found = first_look.look(stub, "a.py", LAB)
    assert found["variant"] == variant.code
    assert found["remarks"] == ["the file is unchanged since it was handed out"]
    mine = first_look.look(rendering.rendered(SOLUTION, LAB.variants, variant), "a.py", LAB)
    assert mine["code"] is not None
    assert mine["remarks"] == []


def test_a_file_of_another_variant_is_graded_as_the_one_that_is_asked() -> None:
    mine, other = (LAB.variants.of(year) for year in (2027, 2028))
    assert first_look.asked(LAB, mine.code, mine.code) == (LAB.of_variant(mine), "")
    assert first_look.asked(LAB, mine.code, None) == (LAB.of_variant(mine), "")
    assert first_look.asked(LAB, "", None) == (LAB, "")
    for said, code, words in (
        (other.code, mine.code, f"it is variant {other.code}; graded as variant {mine.code}"),
        ("", mine.code, f"it is the lab without a variant; graded as variant {mine.code}"),
        (mine.code, "", f"it is variant {mine.code}; graded as the lab without a variant"),
        ("ABC", "", "it names the variant 'ABC', which this lab does not have; graded as the lab without a variant"),
    ):
        assert first_look.asked(LAB, said, code) == (LAB.of_variant(LAB.variants.read(code)), words)
    with pytest.raises(ValueError, match="has no variant 'ABC'"):
        first_look.asked(LAB, "ABC", None)


def test_seeds_are_told_apart() -> None:
    assert first_look.seed_hash(1) == first_look.seed_hash(1) != first_look.seed_hash(2)
    assert len(first_look.seed_hash(1)) == 12


def test_the_csv_and_the_pages_of_a_class(tmp_path: Path) -> None:
    handed_in = tmp_path / "all"
    handed_in.mkdir()
    half = SOLUTION.replace("def to_mask", "def not_to_mask")
    for name, text in {"ann.py": half, "ben.py": "# ben\n" + half, "cy.py": "", "d<b>y.py": "x = 1\n"}.items():
        (handed_in / name).write_text(text)
    (handed_in / "eve.txt").write_text("hello")
    grades, reports = tmp_path / "g.csv", tmp_path / "pages"
    options = ["--seed", "7", "-o", str(grades), "--reports", str(reports)]
    assert main(["labs", "grade", "0", str(handed_in), *options]) == 0
    with open(grades, newline="") as file:
        rows = {row["submission"]: row for row in csv.DictReader(file)}
    assert {name: row["same as"] for name, row in rows.items()} == {
        "ann.py": "ben.py", "ben.py": "ann.py", "cy.py": "", "d<b>y.py": "", "eve.txt": ""
    }  # fmt: skip
    assert "the file has no code" in rows["cy.py"]["notes"]
    assert {row["version"] for row in rows.values()} == {mn.__version__}
    assert {row["seed hash"] for row in rows.values()} == {first_look.seed_hash(7)}
    assert sorted(path.name for path in reports.iterdir()) == [
        "ann.py.html", "ben.py.html", "cy.py.html", "d_b_y.py.html", "eve.txt.html"
    ]  # fmt: skip
    page = (reports / "ann.py.html").read_text()
    assert f"{rows['ann.py']['score']} of {rows['ann.py']['points']} points" in page
    assert "ben" not in page
    assert "expected a .py file" in (reports / "eve.txt.html").read_text()
    assert "d&lt;b&gt;y.py" in (reports / "d_b_y.py.html").read_text()
