"""A line search for the strong Wolfe conditions: finds how far to step along a direction in which the loss falls.

    loss(t) <= loss(0) + c1 t slope(0)      the loss falls by at least a share c1 of the fall that the slope predicts
    |slope(t)| <= c2 |slope(0)|             and the slope is flatter than at the start

First t grows until a step is too long. Then both conditions hold for some t in the interval between the last two steps,
and this interval is made smaller and smaller. The next t to try is the minimum of a cubic that has the losses and
slopes of two points. Nocedal and Wright 2006, algorithms 3.5 and 3.6, with minFunc's safeguards.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple


class Point(NamedTuple):
    """The point after a step of length t: its loss, its gradient, and the slope along the direction."""

    t: float
    loss: float
    gradient: Any
    slope: float


def strong_wolfe(
    at: Callable[[float], Point], start: Point, t: float, *, most: int, reach: float,
    c1: float = 1e-4, c2: float = 0.9, tolerance: float = 1e-9,
) -> tuple[Point, int]:  # fmt: skip
    """Return the point that was found, and the number of calls of `at`. This number is at most `most` + 1. t is the
    first guess.

    The search stops when the ends of the interval are closer than tolerance / reach, where `reach` is the direction's
    largest number.
    """

    def too_long(point: Point) -> bool:
        return point.loss > start.loss + c1 * point.t * start.slope

    def is_flat(point: Point) -> bool:
        return abs(point.slope) <= -c2 * start.slope

    before, now, tries = start, at(t), 0
    while tries < most:
        if too_long(now) or (tries > 1 and now.loss >= before.loss):
            break
        if is_flat(now):
            return now, tries + 1
        if now.slope >= 0:
            break
        bounds = now.t + 0.01 * (now.t - before.t), now.t * 10
        before, now, tries = now, at(cubic_minimum(before, now, bounds)), tries + 1
    else:
        before = start

    ends = [before, now]
    low = 0 if before.loss <= now.loss else 1
    was_near = False
    while tries < most and not abs(ends[1].t - ends[0].t) * reach < tolerance:
        left, right = sorted(end.t for end in ends)
        t, was_near = _inside(cubic_minimum(ends[0], ends[1], (left, right)), left, right, was_near)
        now, tries = at(t), tries + 1
        if too_long(now) or now.loss >= ends[low].loss:
            ends[1 - low] = now
            low = 0 if ends[0].loss <= ends[1].loss else 1
            continue
        if not is_flat(now) and now.slope * (ends[1 - low].t - ends[low].t) >= 0:
            ends[1 - low] = ends[low]
        ends[low] = now
        if is_flat(now):
            break
    return ends[low], tries + 1


def _inside(t: float, left: float, right: float, was_near: bool) -> tuple[float, bool]:
    """Return t, moved away from the ends of the interval if necessary, and whether the returned t is near an end.

    t is near an end if its distance from this end is less than a tenth of the interval. If t is at an end, or if the
    previous t was near an end too (`was_near`), t is moved to a tenth of the interval from this end.
    """
    margin = 0.1 * (right - left)
    if min(right - t, t - left) >= margin:
        return t, False
    if was_near or t >= right or t <= left:
        return (right - margin if abs(t - right) < abs(t - left) else left + margin), False
    return t, True


def cubic_minimum(a: Point, b: Point, bounds: tuple[float, float]) -> float:
    """Return the t within bounds that minimizes the cubic with the losses and slopes of the points a and b.

    If there is no such t, return the middle of the bounds.
    """
    left, right = (a, b) if a.t <= b.t else (b, a)
    low, high = bounds
    middle = (low + high) / 2
    if left.t == right.t:
        return middle
    d1 = left.slope + right.slope - 3 * (left.loss - right.loss) / (left.t - right.t)
    square = d1 * d1 - left.slope * right.slope
    if not 0 <= square < math.inf:
        return middle
    d2 = math.sqrt(square)
    below = right.slope - left.slope + 2 * d2
    if below == 0:
        return middle
    t = right.t - (right.t - left.t) * ((right.slope + d2 - d1) / below)
    return middle if math.isnan(t) else min(max(t, low), high)
