from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from minorm.cli.views.drawing import Box, cut, escaped, svg

SVG = "{http://www.w3.org/2000/svg}"


def test_boxes_lines_bars_and_links() -> None:
    boxes = [
        Box("x", "1x3x8x8", "value"),
        Box("conv", "Conv", "trained", 0.5, "block-1", "conv: 9 parameters"),
        Box("y"),
    ]
    root = ET.fromstring(svg(boxes, [(0, 1), (1, 2), (0, 2)], "a graph"))
    assert root.get("aria-label") == "a graph"
    assert [e.get("class") for e in root.iter("rect")] == ["value", "trained", "bar", "plain"]
    assert len(list(root.iter("path"))) == 3
    assert [e.get("href") for e in root.iter("a")] == ["#block-1"]
    assert [e.text for e in root.iter("title")] == ["x", "conv: 9 parameters", "y"]
    assert [e.text for e in root.iter("text")] == ["x", "1x3x8x8", "conv", "Conv", "y"]
    width = float(root.get("width") or 0)
    for rect in root.iter("rect"):
        assert 0 <= float(rect.get("x") or 0) <= float(rect.get("x") or 0) + float(rect.get("width") or 0) <= width


@pytest.mark.parametrize(
    "name", ['<script>alert("1")</script>', "a&b'c", "\u202eright\x00to left\x1b[2J", "x" * 10_000]
)
def test_names_cannot_become_markup(name: str) -> None:
    text = svg([Box(name, name, title=name)], [], name)
    root = ET.fromstring(text)
    assert {e.tag for e in root.iter()} == {"svg", "g", "title", "rect", "text"}
    assert len(text) < 3000
    assert "\u202e" not in text
    assert "\x1b" not in text


def test_a_long_text_loses_its_middle() -> None:
    assert cut("encoder.layers.encoder_layer_11.self_attention", 20) == "encoder.la…attention"
    assert cut("short", 20) == "short"
    assert escaped("<b>") == "&lt;b&gt;"
