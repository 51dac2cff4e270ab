"""The page: verdicts as they are shown, notes that they point at, and the marks between which it stands."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

pytest.importorskip("onnx")

from minorm.conformance.report import Report
from minorm.conformance.results_page import BEGIN, END, page, text
from minorm.conformance.verdict import Cell

CELLS = [
    Cell("LRN", 1, "size 3", "minorm", "right", "float32", 1e-7, 7.0),
    Cell("LRN", 1, "size 3", "torch", "unsupported", said="no | such `thing`"),
    Cell("LRN", 13, "size 3", "minorm", "right", "float32", 1e-7, 7.0),
    Cell("LRN", 13, "size 3", "torch", "wrong", "float32", 0.5, None, "y is off by 0.5", "is upside down"),
    Cell("LRN", 13, "size 4", "minorm", "right", "float32", 2e-5, 4.7),
    Cell("LRN", 13, "size 4", "torch", "wrong", "float32", None, None, "y holds NaN or infinity instead of numbers"),
]


def test_what_it_shows() -> None:
    shown = text(Report({"minorm": "1.0", "torch": None}, CELLS), dt.date(2026, 1, 2))
    lines = shown.splitlines()
    assert lines[0] == "Measured on 2026-01-02: minorm 1.0, torch not installed."
    assert "| LRN 1 | 1 right (7.0) | 1 unsupported |" in lines
    assert "| LRN 13 | 2 right (4.7) | **2 wrong** |" in lines
    assert "| size 3 | 1, 13 | 7 | 1: - [1]; 13: **0.5** [2] |" in lines
    assert "| size 4 | 13 | 5 | **NaN** [3] |" in lines
    assert "1. PyTorch refuses: `no | such 'thing'`" in lines
    assert "2. PyTorch is upside down" in lines
    assert "3. PyTorch: y holds NaN or infinity instead of numbers (no known defect)" in lines


def test_gradients_have_their_own_table_and_causes_lead_to_their_pages() -> None:
    said = "y is off by 0.5", "is upside down", "upside-down"
    gradients = Cell("LRN", 13, "gradients, size 3", "torch", "wrong", "float32", 0.5, None, *said)
    shown = text(Report({}, [*CELLS, gradients]), dt.date(2026, 1, 2))
    before, _, rest = shown.partition("### Gradients, masks and plain averages")
    assert "| PyTorch | 0 / **2** / 1: no number |" in before
    assert "| PyTorch | 0 / **1** / 0: 5e-01 |" in rest
    assert "| PyTorch | [is upside down](conformance/upside-down.md) | 1 | LRN |" in rest
    assert "gradients, size 3" not in rest.partition("### By version")[2]


def test_it_stands_between_its_marks() -> None:
    assert page(f"a {BEGIN} old {END} z", "new") == f"a {BEGIN}\n\nnew\n\n{END} z"
    with pytest.raises(ValueError, match="the page lacks the marks"):
        page("nothing", "new")


def test_the_page_of_the_documentation_has_been_generated() -> None:
    written = (Path(__file__).parents[2] / "docs" / "conformance.md").read_text(encoding="utf-8")
    assert BEGIN in written
    assert "Measured on 20" in written
    assert "no known defect" not in written
