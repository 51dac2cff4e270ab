"""Draws a curve in plain characters: each column is the mean of one or more points, and the axes have numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

WIDTH, HEIGHT = 60, 10


def curve(values: Sequence[float], ends: tuple[str, str], name: str, top: float | None = None) -> list[str]:
    """Return lines of text that draw the values from left to right.

    The axis below them has the texts `ends` at its ends and the text `name` in its middle.

    top  the value at the upper end of the drawing; larger values are drawn at this end. None means the largest value
    """
    columns = min(WIDTH, len(values))
    shown = np.array([part.mean() for part in np.array_split(np.asarray(values, np.float64), columns)])
    low, high = float(min(shown)), float(max(shown) if top is None else max(top, min(shown)))
    share = (np.minimum(shown, high) - low) / ((high - low) or 1.0)
    rows = np.rint(share * (HEIGHT - 1)).astype(int)
    grid = np.full((HEIGHT, columns), " ")
    grid[HEIGHT - 1 - rows, np.arange(columns)] = "*"
    labels = {0: f"{high:.3g}", HEIGHT - 1: f"{low:.3g}"}
    width = max(map(len, labels.values()))
    found = [f"{labels.get(i, ''):>{width}} |{''.join(row).rstrip()}" for i, row in enumerate(grid)]
    axis = f"{ends[0]}{name:^{max(len(name) + 2, columns - len(ends[0]) - len(ends[1]))}}{ends[1]}"
    return [*found, f"{'':{width}} +{'-' * columns}", f"{'':{width}}  {axis}"]
