"""Each begun day counts as late, and a score never falls below 0."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from minorm.labs.judge.lateness import DAY, Lateness, moment

DUE = moment("2026-12-01T12:00:00+00:00")


def test_a_date_without_a_zone_is_of_this_machine() -> None:
    assert datetime(2026, 12, 1, 12, tzinfo=UTC).timestamp() == DUE
    assert moment("2026-12-01 12:00") == datetime(2026, 12, 1, 12).timestamp()
    for text in ("tomorrow", "", "2026-13-01"):
        with pytest.raises(ValueError, match="is not a date; expected one such as"):
            moment(text)


@pytest.mark.parametrize(
    ("after", "days", "left"),
    [(-1, 0, 1.0), (0, 0, 1.0), (1, 1, 0.9), (DAY, 1, 0.9), (DAY + 1, 2, 0.8), (20 * DAY, 20, 0.0)],
)
def test_each_day_that_has_begun_costs_a_tenth(after: float, days: int, left: float) -> None:
    rule = Lateness(DUE)
    assert rule.days(DUE + after) == days
    assert rule.left(DUE + after) == pytest.approx(left)


def test_after_the_last_day_nothing_counts() -> None:
    rule = Lateness(DUE, per_day=5, last_day=2)
    assert [rule.left(DUE + day * DAY) for day in (0, 1, 2, 2.1)] == pytest.approx([1, 0.95, 0.9, 0])


def test_columns() -> None:
    found = Lateness(DUE).columns(DUE + 1.5 * DAY, 17.0)
    assert (found["days late"], found["score after lateness"]) == (2, "13.6")
    assert datetime.fromisoformat(found["handed in"]).timestamp() == DUE + 1.5 * DAY
    assert set(Lateness(DUE).columns(None, 17.0).values()) == {""}
