"""Draw the guide's pictures that are not results of a program: `guide-*.svg` in the pages.

    python docs/images/drawings.py

writes them beside this file; the same matplotlib writes the same bytes. Needs: pip install matplotlib.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

mpl.rcParams.update({"svg.hashsalt": "minorm", "font.size": 10})
BLUE, ORANGE, GREY = "#1f77b4", "#d95f02", "#555555"
TINTS = {BLUE: "#dcebf7", ORANGE: "#fde5d0", GREY: "#eeeeee"}


def canvas(width: float, height: float, across: float, down: float) -> tuple[Figure, Any]:
    """A figure of width x height inches, and axes that go from (0, 0) to (across, down)."""
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0.01, 0.01, 0.98, 0.98))
    axes.set(xlim=(0, across), ylim=(0, down), aspect="equal")
    axes.set_axis_off()
    return figure, axes


def box(axes: Any, x: float, y: float, text: str, color: str = GREY, width: float = 2.0, height: float = 0.9) -> None:
    """A rounded box with its middle at (x, y)."""
    corner = (x - width / 2, y - height / 2)
    style = "round,pad=0,rounding_size=0.15"
    axes.add_patch(FancyBboxPatch(corner, width, height, boxstyle=style, ec=color, fc=TINTS[color], lw=1.2))
    axes.text(x, y, text, ha="center", va="center")


def arrow(axes: Any, start: tuple[float, float], end: tuple[float, float], color: str = GREY, bend: float = 0) -> None:
    """An arrow from start to end."""
    shape = f"arc3,rad={bend}"
    axes.add_patch(
        FancyArrowPatch(start, end, connectionstyle=shape, arrowstyle="-|>", mutation_scale=12, color=color, lw=1.2)
    )


def graph() -> Figure:
    """y = a * b + exp(a): forward in blue, gradients in orange."""
    figure, axes = canvas(7, 2.9, 14, 5.8)
    box(axes, 1.2, 4.2, "a = 2", BLUE)
    box(axes, 1.2, 1.4, "b = 3", BLUE)
    box(axes, 6, 4.2, "Exp\n7.39", width=2.2, height=1.2)
    box(axes, 6, 1.4, "Mul\n6", width=2.2, height=1.2)
    box(axes, 10.6, 2.8, "Add\n13.39", width=2.2, height=1.2)
    axes.text(13.1, 2.8, "y", ha="center", va="center")
    arrow(axes, (11.8, 2.9), (12.8, 2.9), BLUE)
    arrow(axes, (12.8, 2.65), (11.8, 2.65), ORANGE)
    axes.text(12.3, 2.25, "1", color=ORANGE, ha="center")
    for start, end, told, where in (
        ((2.3, 4.2), (4.8, 4.2), "exp(a) = 7.39", (3.55, 4.75)),
        ((2.3, 1.4), (4.8, 1.4), "a = 2", (3.55, 0.7)),
        ((2.2, 3.7), (4.8, 1.9), "b = 3", (2.4, 2.5)),
        ((7.2, 4.0), (9.4, 3.2), "1", (8.6, 4.05)),
        ((7.2, 1.6), (9.4, 2.4), "1", (8.6, 1.45)),
    ):
        arrow(axes, start, end, BLUE, 0.12)
        arrow(axes, end, start, ORANGE, 0.12)
        axes.text(*where, told, color=ORANGE, ha="center", va="center")
    axes.text(0.2, 5.45, "numbers", color=BLUE)
    axes.text(2.4, 5.45, "gradients", color=ORANGE)
    axes.text(13.8, 0.25, "a.grad = 7.39 + 3     b.grad = 2", color=ORANGE, ha="right")
    return figure


def cells(axes: Any, left: float, top: float, rows: list[list[str]], faint: Callable[[int, int], bool]) -> None:
    """A table of unit cells; those that are repeated are drawn faint."""
    for i, row in enumerate(rows):
        for j, text in enumerate(row):
            shadow = faint(i, j)
            corner = (left + j, top - i - 1)
            color = TINTS[GREY] if shadow else TINTS[BLUE]
            axes.add_patch(Rectangle(corner, 1, 1, ec=GREY, fc=color, lw=0.8, ls=":" if shadow else "-"))
            axes.text(left + j + 0.5, top - i - 0.5, text, ha="center", va="center", color="0.6" if shadow else "black")


def broadcasting() -> Figure:
    """(2, 1) + (3,): each is repeated until both are (2, 3)."""
    figure, axes = canvas(7, 1.9, 14, 3.8)
    cells(axes, 0.5, 3, [["10"] * 3, ["20"] * 3], lambda _, j: j > 0)
    cells(axes, 5.5, 3, [["1", "2", "3"]] * 2, lambda i, _: i > 0)
    cells(axes, 10.5, 3, [["11", "12", "13"], ["21", "22", "23"]], lambda *_: False)
    for x, text in ((4.5, "+"), (9.5, "=")):
        axes.text(x, 2, text, ha="center", va="center", fontsize=15)
    for x, text in ((2, "(2, 1)"), (7, "(3,)"), (12, "(2, 3)")):
        axes.text(x, 0.45, text, ha="center", va="center")
    return figure


def axes_of_norms() -> Figure:
    """Which elements of (N, C, H * W) share a mean and a variance: a square is all positions of an image's channel."""
    figure, axes = canvas(7, 2.3, 28, 9.2)
    images, channels = 3, 4
    norms = {
        "BatchNorm": {(n, 1) for n in range(images)},
        "InstanceNorm": {(1, 1)},
        "GroupNorm, 2 groups": {(1, c) for c in range(channels // 2)},
        "LayerNorm": {(1, c) for c in range(channels)},
    }
    for place, (name, shared) in enumerate(norms.items()):
        left = 1.6 + 6.7 * place
        for n in range(images):
            for c in range(channels):
                corner = (left + 1.25 * c, 5.2 - 1.55 * n)
                colors = {"ec": ORANGE, "fc": "#f6a05c"} if (n, c) in shared else {"ec": GREY, "fc": TINTS[GREY]}
                axes.add_patch(Rectangle(corner, 1.1, 1.4, lw=0.9, **colors))
        axes.text(left + 2.45, 7.5, name, ha="center")
    for n in range(images):
        axes.text(1.2, 5.9 - 1.55 * n, str(n), ha="center", va="center", color=GREY)
    axes.text(0.45, 4.35, "N", ha="center", va="center", color=GREY)
    axes.text(1.6 + 2.45, 1.15, "C", ha="center", va="center", color=GREY)
    axes.text(27.6, 0.2, "a box is one channel of one image, with its H x W values", ha="right", color=GREY)
    return figure


def travels() -> Figure:
    """The way of a model through files."""
    figure, axes = canvas(7, 2.1, 14, 4.2)
    box(axes, 1.6, 3.2, "nn.Module", BLUE, 2.6)
    box(axes, 7, 3.2, "model.onnx", ORANGE, 2.6)
    box(axes, 12.4, 3.2, "a Module\nthat trains", BLUE, 2.6, 1.2)
    box(axes, 7, 0.8, "onnxruntime, other programs", GREY, 5.4)
    arrow(axes, (2.95, 3.2), (5.65, 3.2))
    axes.text(4.3, 3.4, "export", ha="center")
    arrow(axes, (8.35, 3.4), (11.05, 3.4))
    axes.text(9.7, 3.6, "load", ha="center")
    arrow(axes, (11.05, 3.0), (8.35, 3.0))
    axes.text(9.7, 2.5, "export", ha="center")
    arrow(axes, (6.7, 2.7), (6.7, 1.3))
    arrow(axes, (7.3, 1.3), (7.3, 2.7))
    return figure


DRAWINGS = {"graph": graph, "broadcasting": broadcasting, "axes": axes_of_norms, "onnx": travels}


def draw(folder: Path) -> None:
    """Write all of them."""
    for name, drawing in DRAWINGS.items():
        drawing().savefig(folder / f"guide-{name}.svg", facecolor="white", metadata={"Date": None})


if __name__ == "__main__":
    draw(Path(__file__).resolve().parent)
