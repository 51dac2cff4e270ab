"""Threads take turns at samples that are read in no time.

A decoder gives Python's lock away while it works and wants it back after each picture. Two threads that decode small
ones spend more time on handing it to and fro than they win: 6,000 PNGs of 32 pixels a second where one thread alone
reads 13,000. So a thread reads its whole batch before the next one begins, as long as a sample takes less than SHORT.
Who waits for a disk or a network, and does not compute, need not take turns.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

SHORT = 150e-6  # seconds of computing a sample
# A sample that takes so many times what is computed in it waits for something else, and threads that read together wait
# for each other as well.
ALONE, TOGETHER = 4.0, 16.0


class Turns:
    """`with turns.of(samples)` around the reading of a batch; what the last batch took decides about the next."""

    def __init__(self) -> None:
        self.taken = True  # whether threads take turns at present; the first batch, which is waited for, comes sooner
        self._lock = threading.Lock()

    @contextmanager
    def of(self, samples: int) -> Iterator[None]:
        """One thread at a time, while samples are short."""
        alone = self.taken
        with self._lock if alone else nullcontext():
            start, began = time.perf_counter(), time.thread_time()
            yield
            passed, computed = time.perf_counter() - start, time.thread_time() - began
        self.taken = computed < SHORT * samples and passed < (ALONE if alone else TOGETHER) * computed
