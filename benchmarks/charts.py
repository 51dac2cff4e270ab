"""The charts of docs/benchmarks.md, drawn from its tables into docs/images: `python -m benchmarks.charts`.

SVG by hand: a few rectangles and words, small, and the same to the byte wherever they are drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).resolve().parent.parent / "docs"
BLUE, VERMILLION, GREY = "#0072B2", "#D55E00", "#7F7F7F"  # Okabe and Ito's, as in minorm/plots.py
LEFT, RIGHT, WIDTH, ROW, TOP = 330, 640, 690, 34, 46  # pixels: bars from and to, the picture; a row, the title


class Row(NamedTuple):
    """A line of a chart: its words, and the numbers that become bars or dots, in the order of the legend."""

    name: str
    values: list[float]


def rows(page: str, section: str, column: str, series: int = 1) -> list[Row]:
    """Return a column's numbers from the section's first table that has it; each series is another column of that name.

    A cell may hold several, with commas between them.
    """
    for table in page.partition(f"\n## {section}\n")[2].partition("\n## ")[0].split("\n\n"):
        lines = [
            [cell.strip().strip("*") for cell in line.strip("|").split("|")] for line in table.strip().splitlines()
        ]
        places = [place for place, title in enumerate(lines[0] if lines else []) if title == column][:series]
        if places:
            return [
                Row(line[0], [float(number) for place in places for number in line[place].split(",")])
                for line in lines[2:]
            ]
    raise ValueError(
        f"docs/benchmarks.md: no table in {section!r} has a column {column!r}; change benchmarks/charts.py"
    )


def chart(title: str, rows: list[Row], legend: Sequence[str] = ()) -> str:
    """Bars that a legend names, else dots on a logarithmic axis; with a line at 1: to its right minorm is faster."""
    low, high = 0.5, TOP + ROW * len(rows)
    most = math.ceil(2.1 * max(max(row.values) for row in rows)) / 2

    def at(value: float) -> float:
        share = value / most if legend else math.log(value / low) / math.log(most / low)
        return round(LEFT + share * (RIGHT - LEFT), 1)

    parts = [words(12, 20, title, "bold")]
    for i, (word, color) in enumerate(zip(legend, (BLUE, VERMILLION), strict=False)):
        parts += [f'<rect x="{LEFT + 130 * i}" y="30" width="10" height="10" fill="{color}"/>']
        parts += [words(LEFT + 130 * i + 15, 39, word)]
    ticks = [n / 2 for n in range(int(2 * most) + 1)] if legend else (0.5, 1, 2, 5, 10, 20, 30)
    for tick in ticks:
        parts += [f'<path d="M{at(tick)} {TOP}V{high}" stroke="{GREY}" stroke-width="{1.5 if tick == 1 else 0.3}"/>']
        parts += [words(at(tick), high + 15, f"{tick:g}", anchor="middle")]
    for i, row in enumerate(rows):
        middle = TOP + ROW * i + ROW // 2
        parts += [words(LEFT - 8, middle + 4, row.name, anchor="end")]
        parts += _bars(row, at, middle) if legend else _dots(row, at, middle)
    size = f'width="{WIDTH}" height="{high + 24}" viewBox="0 0 {WIDTH} {high + 24}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">\n' + "\n".join(
        ['<rect width="100%" height="100%" rx="6" fill="white"/>', *parts, "</svg>\n"]
    )


def _bars(row: Row, at: Callable[[float], float], middle: int) -> list[str]:
    height, parts = (ROW - 8) // len(row.values), []
    for i, (value, color) in enumerate(zip(row.values, (BLUE, VERMILLION), strict=False)):
        y = middle - height * len(row.values) // 2 + height * i
        parts += [f'<rect x="{LEFT}" y="{y}" width="{at(value) - LEFT:.1f}" height="{height - 1}" fill="{color}"/>']
        parts += [words(at(value) + 5, y + height // 2 + 4, f"{value:.2f}")]
    return parts


def _dots(row: Row, at: Callable[[float], float], middle: int) -> list[str]:
    return [
        f'<circle cx="{at(value)}" cy="{middle}" r="5" fill="{BLUE}" fill-opacity="0.6"><title>{value}</title></circle>'
        for value in row.values
    ]


def words(x: float, y: float, text: str, weight: str = "normal", anchor: str = "start") -> str:
    """Return a text of the picture as SVG."""
    return f'<text x="{x}" y="{y}" font-weight="{weight}" text-anchor="{anchor}">{escape(text)}</text>'


def charts(page: str) -> dict[str, str]:
    """Return, by file name, the pictures of the page's tables."""
    steps = rows(page, "A training step", "best", series=2)
    norms = rows(page, "Normalizations", "eager")
    products = rows(page, "Single operations", "NumPy")
    return {
        "speed-steps.svg": chart("A training step: PyTorch's time / minorm's", steps, ["v4, AVX-512", "v3, AVX2"]),
        "speed-norms.svg": chart("Normalizations, a dot a shape: PyTorch's time / minorm's", norms),
        "speed-products.svg": chart("Matrix products: NumPy's time / minorm's", products, ["y"]),
    }


if __name__ == "__main__":
    for name, picture in charts((DOCS / "benchmarks.md").read_text(encoding="utf-8")).items():
        (DOCS / "images" / name).write_text(picture, encoding="utf-8")
        print(DOCS / "images" / name)
