"""Draws a graph as SVG. Each box has two lines of text and a bar for its cost, and all edges lead down."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

from minorm.cli.views.layered import layout
from minorm.support.safe_names import printable

HEIGHT, STEP, EDGE = 44, 74, 8  # the height of a box, the distance of rows, the margin around the drawing
LETTER, SMALL, LONGEST = 7.2, 6.0, 42  # the width of a letter in the two lines, the most letters that are shown
MOST = 400  # boxes in a drawing


@dataclass(frozen=True)
class Box:
    """A box to draw.

    kind    the box's class in the style sheet
    share   the length of its bar, from 0 to 1
    link    the id in the page to which a click leads; "" for no link
    """

    name: str
    text: str = ""
    kind: str = "plain"
    share: float = 0.0
    link: str = ""
    title: str = ""

    @property
    def width(self) -> float:
        """The width that the box needs for its text."""
        return max(64.0, LETTER * len(cut(self.name)), SMALL * len(cut(self.text))) + 20


def cut(text: str, most: int = LONGEST) -> str:
    """Return the text with printable characters only. If it has more than `most` letters, leave out its middle."""
    shown = printable(text)
    return shown if len(shown) <= most else f"{shown[: most // 2]}…{shown[1 + most // 2 - most :]}"


def escaped(text: str, most: int = 400) -> str:
    """Escape the text for a page, so that text from a file cannot become markup."""
    return html.escape(cut(text, most))


def svg(boxes: Sequence[Box], edges: Sequence[tuple[int, int]], label: str) -> str:
    """Return the drawing; each edge goes from a box to a later box."""
    found = layout([box.width for box in boxes], edges)
    width, height = found.width + 2 * EDGE, found.rows * STEP - (STEP - HEIGHT) + 2 * EDGE
    box = f'viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" height="{height}"'
    parts = [f'<svg {box} role="img" aria-label="{escaped(label)}">']
    for (i, j), bends in zip(edges, found.bends, strict=True):
        points = [(found.x[i], _top(found.row[i]) + HEIGHT)]
        for x, row in bends:
            points += [(x, _top(row)), (x, _top(row) + HEIGHT)]
        parts.append(f'<path class="line" d="{_curve([*points, (found.x[j], _top(found.row[j]))])}"/>')
    parts += [_box(box, found.x[k] + EDGE, _top(found.row[k])) for k, box in enumerate(boxes)]
    return "\n".join([*parts, "</svg>"])


def _top(row: int) -> int:
    return EDGE + row * STEP


def _curve(points: Sequence[tuple[float, int]]) -> str:
    """Return a curve that leads down through the points and is vertical at each point."""
    (x, y), *rest = points
    path = [f"M{x + EDGE:.1f} {y}"]
    for a, b in rest:
        half = (y + b) / 2
        path.append(f"V{b}" if a == x else f"C{x + EDGE:.1f} {half:.1f} {a + EDGE:.1f} {half:.1f} {a + EDGE:.1f} {b}")
        x, y = a, b
    return "".join(path)


def _box(box: Box, x: float, y: int) -> str:
    left, middle = x - box.width / 2, y + (18 if box.text else 27)
    parts = [
        f'<rect class="{box.kind}" x="{left:.1f}" y="{y}" width="{box.width:.1f}" height="{HEIGHT}" rx="7"/>',
        f'<text class="name" x="{x:.1f}" y="{middle}">{html.escape(cut(box.name))}</text>',
    ]
    if box.text:
        parts.append(f'<text class="small" x="{x:.1f}" y="{y + 33}">{html.escape(cut(box.text))}</text>')
    if box.share > 0:
        bar = max(2.0, box.share * (box.width - 14))
        parts.append(f'<rect class="bar" x="{left + 7:.1f}" y="{y + HEIGHT - 6}" width="{bar:.1f}" height="3"/>')
    inside = f"<title>{escaped(box.title or box.name)}</title>" + "".join(parts)
    return f'<a href="#{box.link}">{inside}</a>' if box.link else f"<g>{inside}</g>"
