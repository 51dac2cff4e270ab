"""Limits a submission's total time: for loading its file, in every process, and for all checks together.

Each check also has its own limit. A file that stays just below that limit in every check, or sleeps whenever it is
loaded, would still hold up the grader for many minutes. Only the time in which the judge waits for the submission's
code counts. If the judge waits for several processes at once, this time counts once. The judge's own computing time
does not count.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

DEADLINE = 60.0  # seconds


class Allowance:
    """A budget of seconds. The time spent inside `waiting` is taken from it."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._lock = threading.Lock()
        self._waiting, self._since, self._spent = 0, 0.0, 0.0

    @property
    def left(self) -> float:
        """The seconds that are left; 0 or less when they are used up."""
        with self._lock:
            running = time.monotonic() - self._since if self._waiting else 0.0
            return self.seconds - self._spent - running

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time inside the `with` block; time in several threads at once counts once."""
        with self._lock:
            if not self._waiting:
                self._since = time.monotonic()
            self._waiting += 1
        try:
            yield
        finally:
            with self._lock:
                self._waiting -= 1
                if not self._waiting:
                    self._spent += time.monotonic() - self._since
