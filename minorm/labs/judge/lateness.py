"""What a late submission is worth: a share of the points is taken off for each day that has begun."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from typing import Any

DAY = 86400.0


@dataclass(frozen=True)
class Lateness:
    """The rule of a course.

    due       seconds since 1970
    per_day   percent of the score that each day takes which has begun
    last_day  after so many days nothing counts any more; None for no such day
    """

    due: float
    per_day: float = 10.0
    last_day: int | None = None

    def days(self, when: float) -> int:
        """How many days late, each that has begun as one."""
        return max(math.ceil((when - self.due) / DAY), 0)

    def left(self, when: float) -> float:
        """The share of the score that counts, from 0 to 1."""
        days = self.days(when)
        if self.last_day is not None and days > self.last_day:
            return 0.0
        return max(1 - self.per_day / 100 * days, 0.0)

    def columns(self, when: float | None, score: float) -> dict[str, Any]:
        """Columns of the table; empty ones for a submission without a date."""
        if when is None:
            return {"handed in": "", "days late": "", "score after lateness": ""}
        return {
            "handed in": datetime.fromtimestamp(when).astimezone().isoformat(timespec="minutes"),
            "days late": self.days(when),
            "score after lateness": f"{round(score * self.left(when), 2):g}",
        }


def moment(text: str) -> float:
    """`2026-12-01 23:59` as seconds since 1970; ValueError for what is no date.

    A date without a time zone is of this machine's.
    """
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{text!r} is no date; expected one such as '2026-12-01 23:59'") from None
