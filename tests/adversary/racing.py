"""One case of test_indices.py, forward and backward for some seconds, while a thread writes right and wrong positions.

    racing.py NAME [SECONDS]

Errors about wrong positions are caught; an address out of bounds ends the process.
"""

from __future__ import annotations

import sys
import threading
import time

import numpy as np
from test_indices import CASES

import minorm as mn


def race(name: str, seconds: float) -> int:
    """How many times both passes ran to their end."""
    case, rng = CASES[name], np.random.default_rng(0)
    factor = max(1, 20_000 // int(np.prod(case.places)))
    rows = case.places[0] == case.shape[0]
    places, shape = (factor * case.places[0], *case.places[1:]), case.shape
    if rows:  # as many examples as labels
        shape = (factor * shape[0], *shape[1:])
    elif len(case.places) == 1 and name not in ("x[i]", "x[i] = y", "bincount"):
        places = case.places  # as many as x has slices
    right = rng.integers(0, case.limit, places)
    wrong = np.where(rng.random(places) < 0.5, right, rng.integers(-(2**40), 2**40, places))
    index, stop = right.copy(), threading.Event()

    def write() -> None:
        while not stop.is_set():
            np.copyto(index, wrong)  # without Python's lock
            np.copyto(index, right)

    writer = threading.Thread(target=write)
    writer.start()
    done, end = 0, time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            x = mn.tensor(rng.standard_normal(shape), requires_grad=True)
            try:
                case.call(x, mn.from_numpy(index)).sum().backward()
                done += 1
            except (IndexError, ValueError, RuntimeError, MemoryError, OverflowError):
                pass
    finally:
        stop.set()
        writer.join()
    return done


if __name__ == "__main__":
    sys.setswitchinterval(1e-5)
    print(race(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 2.0))
