"""The time that a submission has in all: for loading its file, in every process, and for all checks together.

Each check has its own limit besides. A file that stays just below that everywhere, or sleeps whenever it is loaded,
would still hold the grader for many minutes. Only the time in which the judge waits for the submission's code counts,
and where it waits for several processes at once, it counts once; what the judge computes itself is nobody's fault.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

DEADLINE = 60.0  # seconds


class Allowance:
    """So many seconds, of which those are spent that pass within `waiting`."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._lock = threading.Lock()
        self._waiting, self._since, self._spent = 0, 0.0, 0.0

    @property
    def left(self) -> float:
        """Seconds that are left; not above 0 when they are used up."""
        with self._lock:
            running = time.monotonic() - self._since if self._waiting else 0.0
            return self.seconds - self._spent - running

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """While this is open, in any number of threads, the time counts."""
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
