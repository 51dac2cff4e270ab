"""Takes a share of a late submission's points off for each day that has begun."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from typing import Any

DAY = 86400.0


@dataclass(frozen=True)
class Lateness:
    """A course's rule for late submissions.

    due       seconds since 1970
    per_day   percent of the score that each begun day costs
    last_day  the number of days after which a submission earns nothing; None if there is no such day
    """

    due: float
    per_day: float = 10.0
    last_day: int | None = None

    def days(self, when: float) -> int:
        """Return how many days late the submission is; a begun day counts as a full day."""
        return max(math.ceil((when - self.due) / DAY), 0)

    def left(self, when: float) -> float:
        """Return the share of the score, from 0 to 1, that a submission of this time keeps."""
        days = self.days(when)
        if self.last_day is not None and days > self.last_day:
            return 0.0
        return max(1 - self.per_day / 100 * days, 0.0)

    def columns(self, when: float | None, score: float) -> dict[str, Any]:
        """Return the columns of the table; empty ones for a submission without a date."""
        if when is None:
            return {"handed in": "", "days late": "", "score after lateness": ""}
        return {
            "handed in": datetime.fromtimestamp(when).astimezone().isoformat(timespec="minutes"),
            "days late": self.days(when),
            "score after lateness": f"{round(score * self.left(when), 2):g}",
        }


def moment(text: str) -> float:
    """Convert `2026-12-01 23:59` to seconds since 1970; raise ValueError if the text is not a date.

    A date without a time zone is in the time zone of this machine.
    """
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{text!r} is not a date; expected one such as '2026-12-01 23:59'") from None
