"""Draws a quantization: for each layer, the noise of its weight and of its output, and its cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from minorm.plots import BLUE, PLAIN, VERMILLION
from minorm.quantization import LayerNoise
from minorm.support.safe_names import printable

MOST, LOUDEST = 60, 80.0  # the most layers to draw, and the dB at which bars end


def picture(rows: Sequence[LayerNoise], title: str) -> Figure:
    """Return a figure with a row for each layer, in the order in which the layers run."""
    shown = rows[:MOST]
    places = np.arange(len(shown))
    with mpl.rc_context(PLAIN):
        figure = Figure(figsize=(11, 1.6 + 0.32 * len(shown)), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08))
        FigureCanvasAgg(figure)
        figure.suptitle(printable(f"{title}: signal to quantization noise"), x=0.01, ha="left", fontweight="bold")
        left, right = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
        _bars(left, places - 0.2, [row.weight for row in shown], BLUE, "weight")
        _bars(left, places + 0.2, [row.output for row in shown], VERMILLION, "output")
        left.set_yticks(places, [printable(row.name) for row in shown])
        left.invert_yaxis()
        left.set_xlabel("dB")
        figure.legend(loc="outside lower left", ncols=2)
        costs = [100 * (row.cost or 0.0) for row in shown]
        right.barh(places, costs, color=VERMILLION, height=0.4)
        right.set_xlim(min(0.0, *costs), max(1.0, *costs))
        right.set_xlabel("score lost when only this layer is rounded, %")
    return figure


def _bars(axes: Any, places: Any, values: Sequence[float], colour: str, label: str) -> None:
    axes.barh(places, np.clip(values, 0, LOUDEST), color=colour, height=0.38, label=label)
