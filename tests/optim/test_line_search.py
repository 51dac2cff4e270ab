"""The line search on functions of one variable: what it finds meets both Wolfe conditions."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from minorm.optim.line_search import Point, cubic_minimum, strong_wolfe

C1, C2 = 1e-4, 0.9
LINES: dict[str, tuple[Callable[[float], float], Callable[[float], float]]] = {
    "parabola": (lambda t: (t - 3) ** 2, lambda t: 2 * (t - 3)),
    "far": (lambda t: (t - 300) ** 2, lambda t: 2 * (t - 300)),
    "waves": (lambda t: math.sin(3 * t) - 4 * t + t * t, lambda t: 3 * math.cos(3 * t) - 4 + 2 * t),
    "steep": (lambda t: math.exp(5 * t) - 20 * t, lambda t: 5 * math.exp(5 * t) - 20),
}


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("first", [1e-3, 0.5, 1.0, 20.0])
def test_the_conditions_hold(name: str, first: float) -> None:
    loss, slope = LINES[name]
    asked = []

    def at(t: float) -> Point:
        asked.append(t)
        return Point(t, loss(t), None, slope(t))

    start = Point(0.0, loss(0), None, slope(0))
    found, calls = strong_wolfe(at, start, first, most=25, reach=1.0)
    assert calls == len(asked)
    assert found.t in asked
    assert found.loss <= start.loss + C1 * found.t * start.slope
    assert abs(found.slope) <= C2 * abs(start.slope)


def test_it_asks_no_more_often_than_it_may() -> None:
    calls = []

    def at(t: float) -> Point:  # it falls for ever
        calls.append(t)
        return Point(t, -t, None, -1.0)

    found, asked = strong_wolfe(at, Point(0.0, 0.0, None, -1.0), 1.0, most=4, reach=1.0)
    assert asked == len(calls) == 5
    assert found.t == max(calls)


def test_a_cubic_by_its_formula() -> None:
    """t^3 - 3 t has its minimum at 1, whichever two points it is seen from."""
    points = [Point(t, t**3 - 3 * t, None, 3 * t * t - 3) for t in (0.25, 2.0)]
    for a, b in (points, points[::-1]):
        np.testing.assert_allclose(cubic_minimum(a, b, (0.25, 2.0)), 1.0, rtol=1e-12)
    assert cubic_minimum(*points, (1.5, 2.0)) == 1.5


@pytest.mark.parametrize("slope", [math.nan, math.inf])
def test_the_middle_where_no_cubic_helps(slope: float) -> None:
    a = Point(1.0, 0.0, None, -1.0)
    assert cubic_minimum(a, Point(2.0, 0.0, None, slope), (1.0, 2.0)) == 1.5
    assert cubic_minimum(a, a, (1.0, 2.0)) == 1.5
