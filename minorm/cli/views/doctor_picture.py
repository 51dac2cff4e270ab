"""Draws a diagnosis: for each layer, the distribution of its outputs in training and evaluation, its gap and offset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from minorm.plots import BLUE, GREY, PLAIN, VERMILLION
from minorm.support.safe_names import printable

if TYPE_CHECKING:
    from minorm.diagnosis import Diagnosis

QUANTILES = (0.01, 0.25, 0.5, 0.75, 0.99)
MOST = 40  # layers that are drawn
WIDE = 30  # if outputs are larger, the axis is logarithmic
COLOURS = {"error": VERMILLION, "warning": VERMILLION, "note": GREY}


def picture(found: Diagnosis, title: str) -> Figure:
    """Return a figure with a row for each layer, in the order in which they run.

    `figure.savefig("doctor.png", dpi=130)` writes the picture.
    """
    measured = found.measured
    assert measured is not None
    norms, rows = measured.norms[:MOST], found.layers[:MOST]
    with mpl.rc_context(PLAIN):
        height = 2.2 + 0.42 * len(norms)
        figure = Figure(figsize=(13, height), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08))
        FigureCanvasAgg(figure)
        figure.suptitle(printable(f"{title}: {_count(found)}"), x=0.01, ha="left", fontsize=13, fontweight="bold")
        left, right = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
        for place, norm in enumerate(norms):
            _distribution(left, place - 0.17, norm.sampled("R"), BLUE)
            _distribution(left, place + 0.17, norm.sampled("E"), VERMILLION)
        _labels(left, found, rows)
        _bars(right, rows)
        modes = [
            mpl.lines.Line2D([], [], color=BLUE, linewidth=5, label="with the batch's statistics"),
            mpl.lines.Line2D([], [], color=VERMILLION, linewidth=5, label="in evaluation"),
        ]
        figure.legend(handles=modes, loc="outside lower left", ncols=2)
        figure.legend(handles=_bar_handles(), loc="outside lower right", ncols=3)
    return figure


def _count(found: Diagnosis) -> str:
    parts = [(sum(f.severity == s for f in found.findings), s) for s in ("error", "warning", "note")]
    return ", ".join(f"{n} {s}{'s' if n > 1 else ''}" for n, s in parts if n) or "nothing found"


def _distribution(axes: Any, height: float, values: Any, colour: str) -> None:
    """Draw a thin line from the 1 % to the 99 % quantile, a thick line over the middle half, a dot at the median."""
    low, first, middle, third, high = np.quantile(values, QUANTILES)
    axes.plot([low, high], [height] * 2, color=colour, linewidth=1.2, solid_capstyle="butt")
    axes.plot([first, third], [height] * 2, color=colour, linewidth=6, solid_capstyle="butt")
    axes.plot([middle], [height], "o", color="white", markeredgecolor=colour, markersize=4)


def _labels(axes: Any, found: Diagnosis, rows: list[dict[str, Any]]) -> None:
    axes.set_yticks(range(len(rows)), [f"{printable(row['layer'])}  {row['kind']}" for row in rows])
    worst = {f.layer: COLOURS[f.severity] for f in reversed(found.findings) if f.severity != "note"}
    for label, row in zip(axes.get_yticklabels(), rows, strict=True):
        if row["layer"] in worst:
            label.set(color=worst[row["layer"]], fontweight="bold")
    axes.set(ylim=(len(rows) - 0.5, -0.5), xlabel="output: 1 %, 25 %, 50 %, 75 %, 99 %")
    axes.set_title("Outputs of each normalization")
    if max(map(abs, axes.get_xlim())) > WIDE:
        axes.set_xscale("symlog", linthresh=5)
        axes.xaxis.set_major_formatter("{x:g}")  # 10 to a power would be a formula


def _bars(axes: Any, rows: list[dict[str, Any]]) -> None:
    for place, row in enumerate(rows):
        if row["offset"] is None:
            axes.text(0.02, place, "no running statistics", va="center", color=GREY, fontsize=9)
            continue
        axes.barh(place - 0.17, row["offset"], 0.3, color=BLUE)
        axes.barh(place + 0.17, row["gap"], 0.3, color=VERMILLION)
        axes.plot([row["offset_limit"]] * 2, [place - 0.4, place + 0.06], color="black", linewidth=1.5)
    limit = max([1.0, *(max(row["offset"], row["gap"]) for row in rows if row["offset"] is not None)])
    axes.set(xlim=(0, 1.1 * limit), xlabel="in standard deviations")
    axes.set_title("Evaluation against the batch's statistics")
    axes.tick_params(axis="y", length=0)


def _bar_handles() -> list[Any]:
    return [
        mpl.patches.Patch(color=BLUE, label="offset: of the layer's own running statistics"),
        mpl.lines.Line2D([], [], color="black", linewidth=1.5, label="limit above which it is a finding"),
        mpl.patches.Patch(color=VERMILLION, label="gap: of the layer's output, caused by all layers so far"),
    ]
