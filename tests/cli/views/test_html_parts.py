"""Parts of pages: names are shown as text, and pictures are PNG files that other programs read."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
import pytest

from minorm.cli.views import html_parts


def test_a_page_loads_nothing_and_escapes_its_title() -> None:
    text = html_parts.page("<b>&\x1b", ["<p>one</p>", "", "<p>two</p>"])
    assert "<title>&lt;b&gt;&amp;\\x1b</title>" in text
    assert "<p>one</p>\n<p>two</p>" in text
    assert "default-src 'none'" in text


def test_a_table_has_its_numbers_to_the_right() -> None:
    text = html_parts.table(("a", "b", "c"), [("<x>", "1", "2")], numbers=2)
    assert "<td>&lt;x&gt;</td>" in text
    assert re.findall(r'<(t[hd]) class="number">(\w)', text) == [("th", "b"), ("th", "c"), ("td", "1"), ("td", "2")]


def test_pairs_are_escaped() -> None:
    assert "<dt>&lt;k</dt><dd>v&amp;</dd>" in html_parts.pairs([("<k", "v&")])


@pytest.mark.parametrize("channels", [1, 3])
def test_a_png_has_the_bytes(channels: int) -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, (channels, 5, 7)).astype(np.uint8)
    text = html_parts.image(html_parts.png(pixels), 'a"b')
    assert 'alt="a&quot;b"' in text
    found = re.search('base64,([^"]+)', text)
    assert found is not None
    with image.open(io.BytesIO(base64.b64decode(found[1]))) as read:
        assert np.array_equal(np.asarray(read).reshape(5, 7, channels), pixels.transpose(1, 2, 0))
