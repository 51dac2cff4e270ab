"""Draws lines over epochs, a confusion matrix and calibration as SVG, for light and dark pages.

Colours come from the page's style sheet.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from minorm.support.safe_names import for_page
from minorm.training.files.outcome import clipped
from minorm.training.metrics.classification_report import Bin

WIDTH, HEIGHT = 460, 260
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 26, 36
MAX_NAMED_CLASSES = 24  # with at most this many classes, names are beside a confusion matrix
MAX_COUNTED_CLASSES = 16  # with at most this many classes, cells have numbers


def lines(title: str, series: dict[str, Sequence[float | None]], mark: int = 0, percent: bool = False) -> str:
    """Draw each series of numbers as a line over epochs; `mark` is the best epoch. Return "" if there is no number."""
    known = [v for values in series.values() for v in values if v is not None and math.isfinite(v)]
    if not known:
        return ""
    count = max(len(values) for values in series.values())
    low, high, step = _ticks(min(known), max(known))

    def x(epoch: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * ((epoch - 1) / (count - 1) if count > 1 else 0.5)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - low) / (high - low)

    parts = [f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{for_page(title)}">']
    parts.append(f'<text class="title" x="{LEFT}" y="15">{for_page(title)}</text>')
    for k in range(round((high - low) / step) + 1):
        value = low + k * step
        text = f"{100 * value:g} %" if percent else f"{round(value, 10):g}"
        parts.append(f'<path class="grid" d="M{LEFT} {y(value):.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text class="tick end" x="{LEFT - 6}" y="{y(value) + 4:.1f}">{text}</text>')
    every = max(1, math.ceil(count / 10))
    for epoch in range(1, count + 1):
        if epoch % every == 0 or epoch == 1 == count:
            parts += [f'<text class="tick" x="{x(epoch):.1f}" y="{HEIGHT - BOTTOM + 16}">{epoch}</text>']
    parts.append(f'<text class="tick" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 4}">epoch</text>')
    if mark:
        parts.append(f'<path class="mark" d="M{x(mark):.1f} {TOP}V{HEIGHT - BOTTOM}"/>')
        anchor = "end" if x(mark) > WIDTH - 70 else "start"
        place = x(mark) - 4 if anchor == "end" else x(mark) + 4
        parts.append(f'<text class="tick {anchor}" x="{place:.1f}" y="{TOP + 8}">best</text>')
    for number, (name, values) in enumerate(series.items()):
        points = [(x(i), y(v)) for i, v in enumerate(values, 1) if v is not None and math.isfinite(v)]
        if not points:
            continue
        if len(points) > 1:
            path = "L".join(f"{a:.1f} {b:.1f}" for a, b in points)
            parts.append(f'<path class="series s{number}" d="M{path}"/>')
        if len(points) <= 40:
            parts += [f'<circle class="dot s{number}" cx="{a:.1f}" cy="{b:.1f}" r="2.6"/>' for a, b in points]
        right = WIDTH - RIGHT - 74 * (len(series) - number)
        parts.append(f'<path class="series s{number}" d="M{right} 11h16"/>')
        parts.append(f'<text class="tick start" x="{right + 20}" y="15">{for_page(name)}</text>')
    return "".join([*parts, "</svg>"])


def _ticks(least: float, most: float) -> tuple[float, float, float]:
    """Return the first and the last tick of an axis, and the step between two ticks, which is a round number."""
    span = max(most - least, abs(most) * 1e-3, 1e-9)
    power = 10.0 ** math.floor(math.log10(span / 4))
    step = next(power * k for k in (1, 2, 2.5, 5, 10) if span / (power * k) <= 5)
    low, high = math.floor(least / step) * step, math.ceil(most / step) * step
    return low, max(high, low + step), step


def confusion(matrix: Any, names: Sequence[str]) -> str:
    """Draw the matrix with a row for each true class and a column for each predicted class.

    The larger a cell's share of its row, the darker the cell.
    """
    count = len(names)
    cell = 30 if count <= MAX_COUNTED_CLASSES else 18 if count <= MAX_NAMED_CLASSES else max(4, 440 // count)
    letters = max((len(clipped(name)) for name in names), default=1) if count <= MAX_NAMED_CLASSES else 0
    left = top = 26 + round(6.4 * letters)
    side = cell * count
    width, height = left + side + 8, top + side + 8
    shares = matrix / np.maximum(matrix.sum(1, keepdims=True), 1)
    box = f'viewBox="0 0 {width} {height}" style="max-width:{width}px"'
    parts = [f'<svg class="matrix" {box} role="img" aria-label="confusion matrix">']
    parts.append(f'<text class="tick start" x="{left}" y="12">taken for</text>')
    parts.append(f'<text class="tick" transform="translate(12 {top + side / 2}) rotate(-90)">is</text>')
    parts.append(f'<rect class="frame" x="{left}" y="{top}" width="{side}" height="{side}"/>')
    for i, name in enumerate(names):
        if count <= MAX_NAMED_CLASSES:
            short, middle = for_page(clipped(name)), (i + 0.5) * cell
            parts.append(f'<text class="tick end" x="{left - 5}" y="{top + middle + 4:.0f}">{short}</text>')
            turned = f"translate({left + middle + 4:.0f} {top - 5}) rotate(-90)"
            parts.append(f'<text class="tick start" transform="{turned}">{short}</text>')
        for j, other in enumerate(names):
            if not matrix[i, j]:
                continue
            kind, share = ("right" if i == j else "wrong"), max(0.08, float(shares[i, j]))
            place = f'x="{left + j * cell}" y="{top + i * cell}" width="{cell}" height="{cell}"'
            label = for_page(f"{name} taken for {other}: {matrix[i, j]:,}")
            parts.append(f'<rect class="{kind}" {place} fill-opacity="{share:.2f}"><title>{label}</title></rect>')
            if count <= MAX_COUNTED_CLASSES:
                spot = f'x="{left + (j + 0.5) * cell}" y="{top + (i + 0.5) * cell + 4}"'
                bright = " full" if share > 0.55 else ""
                parts.append(f'<text class="number{bright}" {spot}>{_short(int(matrix[i, j]))}</text>')
    return "".join([*parts, "</svg>"])


def calibration(bins: Sequence[Bin]) -> str:
    """Draw the share of right predictions over the predicted probability.

    A bar goes from each point to the diagonal, where the share equals the probability.
    """
    bottom, width = HEIGHT - BOTTOM, WIDTH - LEFT - RIGHT

    def x(share: float) -> float:
        return LEFT + width * share

    def y(share: float) -> float:
        return bottom - (bottom - TOP) * share

    parts = [f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="calibration">']
    parts.append(f'<text class="title" x="{LEFT}" y="15">calibration: share that is right</text>')
    for tick in range(0, 101, 20):
        height, place = y(tick / 100), x(tick / 100)
        parts.append(f'<path class="grid" d="M{LEFT} {height:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text class="tick end" x="{LEFT - 6}" y="{height + 4:.1f}">{tick} %</text>')
        parts.append(f'<text class="tick" x="{place:.1f}" y="{bottom + 16}">{tick}</text>')
    parts.append(f'<text class="tick" x="{LEFT + width / 2}" y="{HEIGHT - 4}">probability in %</text>')
    parts.append(f'<path class="mark" d="M{LEFT} {bottom}L{WIDTH - RIGHT} {TOP}"/>')
    most = max((one.images for one in bins), default=1)
    for one in bins:
        place, radius = x(one.probability), 2.5 + 5 * math.sqrt(one.images / most)
        label = f"{one.images:,} images: probability {one.probability:.1%}, right {one.accuracy:.1%}"
        parts.append(f'<path class="bar" d="M{place:.1f} {y(one.probability):.1f}V{y(one.accuracy):.1f}"/>')
        dot = f'cx="{place:.1f}" cy="{y(one.accuracy):.1f}" r="{radius:.1f}"'
        parts.append(f'<circle class="dot s0" {dot}><title>{label}</title></circle>')
    return "".join([*parts, "</svg>"])


def _short(number: int) -> str:
    """Return the number in few characters, with k for thousands."""
    return str(number) if number < 10_000 else f"{number // 1000}k"
