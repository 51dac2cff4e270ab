"""Threads take turns at samples that are read and changed in no time.

Decoders and NumPy give Python's lock away while they work and want it back after each step. Where the steps are short,
two threads spend more time on handing it to and fro than they win: 6,000 PNGs of 32 pixels a second where one thread
alone reads 13,000. So one thread makes batch after batch, as long as a sample takes less than SHORT. Who waits for a
disk or a network, and does not compute, need not take turns.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

SHORT = 150e-6  # seconds of computing a sample
# A sample that takes so many times what is computed in it waits for something else, and threads that read together wait
# for each other as well.
ALONE, TOGETHER = 4.0, 16.0


class Turns:
    """`with turns.turn()` around a thread's next task, in it `with turns.of(samples)`: the last decides about the next.

    taken  whether threads take turns at present; at first they do: the first batch, which is waited for, comes sooner
    """

    def __init__(self, taken: bool = True) -> None:
        self.taken = taken
        self._lock = threading.Lock()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """One thread at a time, while samples are short. Who asks again at once goes on, in the same caches."""
        if self.taken:
            with self._lock:
                if self.taken:  # those who waited need not, where turns were given up in the meantime
                    yield
                    return
        yield

    @contextmanager
    def of(self, samples: int) -> Iterator[None]:
        """See how long these take."""
        limit, start, began = ALONE if self.taken else TOGETHER, time.perf_counter(), time.thread_time()
        yield
        passed, computed = time.perf_counter() - start, time.thread_time() - began
        self.taken = computed < SHORT * samples and passed < limit * computed
