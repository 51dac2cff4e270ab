"""Lets threads take turns if reading and changing a sample takes very little time.

Decoders and NumPy release Python's lock while they work, and need the lock again after each step. If the steps are
short, two threads lose more time by passing the lock than they gain: two threads read 6,000 PNGs of 32 pixels a second,
but one thread alone reads 13,000. So one thread makes batch after batch as long as a sample takes less than SHORT.
Threads that wait for a disk or a network do not compute, so they need not take turns.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

SHORT = 150e-6  # seconds of computing for a sample
# If a sample takes this many times its computing time, the thread waits for something else. The factor is larger for
# threads that read together, because they also wait for each other.
ALONE, TOGETHER = 4.0, 16.0


class Turns:
    """Lets threads take turns.

    A thread runs each task in `with turns.turn()`. In the task, it reads samples in `with turns.of(samples)`.

    taken  whether threads take turns now. They take turns at first, so that the first batch comes sooner
    """

    def __init__(self, taken: bool = True) -> None:
        self.taken = taken
        self._lock = threading.Lock()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Let only one thread at a time run the block as long as samples take little time.

        After the block, the same thread may enter it again at once.
        """
        if self.taken:
            with self._lock:
                if self.taken:  # after a wait, turns may have ended
                    yield
                    return
        yield

    @contextmanager
    def of(self, samples: int) -> Iterator[None]:
        """Measure the time in which the block reads `samples` samples, and decide whether threads take turns."""
        limit, start, began = ALONE if self.taken else TOGETHER, time.perf_counter(), time.thread_time()
        yield
        passed, computed = time.perf_counter() - start, time.thread_time() - began
        self.taken = computed < SHORT * samples and passed < limit * computed
