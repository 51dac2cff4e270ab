"""Charts: well-formed SVG with every number in it, for any numbers."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minorm.cli.views import charts
from minorm.training.metrics.classification_report import Bin

ANY = st.one_of(st.none(), st.floats(-1e6, 1e6), st.sampled_from([float("nan"), float("inf")]))


@settings(max_examples=60, deadline=None)
@given(values=st.lists(ANY, max_size=50), percent=st.booleans())
def test_lines_stay_inside_the_drawing(values: list[float | None], percent: bool) -> None:
    text = charts.lines("<loss>", {"train": values, "a & b": values[::-1]}, min(1, len(values)), percent)
    known = [v for v in values if v is not None and np.isfinite(v)]
    if not known:
        assert text == ""
        return
    root = ET.fromstring(text)
    dots = [node for node in root.iter() if node.tag == "circle"]
    assert len(dots) == (2 * len(known) if len(known) <= 40 else 0)
    for dot in dots:
        assert 0 <= float(dot.get("cx", "-1")) <= charts.WIDTH
        assert charts.TOP - 1 <= float(dot.get("cy", "-1")) <= charts.HEIGHT - charts.BOTTOM + 1


@pytest.mark.parametrize("count", [2, 10, 24, 100])
def test_a_confusion_matrix_has_a_cell_for_each_number(count: int) -> None:
    rng = np.random.default_rng(count)
    matrix = rng.integers(0, 3, (count, count)) * rng.integers(0, 9000, (count, count))
    root = ET.fromstring(charts.confusion(matrix, [f"<class {i}>" for i in range(count)]))
    cells = [node for node in root.iter() if node.tag == "rect" and node.get("class") in ("right", "wrong")]
    assert len(cells) == np.count_nonzero(matrix)
    assert sum(node.get("class") == "right" for node in cells) == np.count_nonzero(np.diag(matrix))
    titles = {node.text for node in root.iter() if node.tag == "title"}
    i, j = np.argwhere(matrix)[0]
    assert f"<class {i}> taken for <class {j}>: {matrix[i, j]:,}" in titles


def test_long_names_of_classes_end_in_dots_and_are_whole_where_the_mouse_points() -> None:
    text = charts.confusion(np.ones((2, 2), int), ["a lorry with a trailer", "exactly 18 letters"])
    assert text.count(">a lorry with a tr…<") == 2
    assert text.count(">exactly 18 letters<") == 2
    assert "a lorry with a trailer taken for exactly 18 letters: 1" in text


def test_calibration_has_a_dot_for_each_bin_and_a_bar_to_the_diagonal() -> None:
    bins = [Bin(4, 0.0, 1.0), Bin(400, 0.5, 0.25), Bin(1, 1.0, 1.0)]
    root = ET.fromstring(charts.calibration(bins))
    width, height = charts.WIDTH - charts.LEFT - charts.RIGHT, charts.HEIGHT - charts.TOP - charts.BOTTOM
    dots = [node for node in root.iter() if node.tag == "circle"]
    bars = [node.get("d", "") for node in root.iter() if node.get("class") == "bar"]
    for one, dot, bar in zip(bins, dots, bars, strict=True):
        x = charts.LEFT + width * one.probability
        right, given = (charts.TOP + height * (1 - share) for share in (one.accuracy, one.probability))
        assert float(dot.get("cx", "")) == pytest.approx(x, abs=0.06)
        assert float(dot.get("cy", "")) == pytest.approx(right, abs=0.06)
        assert bar == f"M{x:.1f} {given:.1f}V{right:.1f}"
    assert float(dots[1].get("r", "")) == max(float(dot.get("r", "")) for dot in dots)
    assert [title.text for title in root.iter() if title.tag == "title"][1] == (
        "400 images: probability 50.0%, right 25.0%"
    )
