"""The one random generator: initialisation, dropout and shuffling draw from it, `manual_seed` resets it.

Its state is a plain dict of integers, so that a checkpoint can hold it and a resumed run draws the same numbers.

A forked child goes on where its parent stood: both draw the same numbers, until `manual_seed` sets them apart. A fork
waits for a draw that is under way in another thread, so that the child gets a state between two draws.
"""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np

from minorm.mistakes import checked

_made: list[np.random.Generator] = []  # the generator, once there is one
_making = threading.RLock()


def generator() -> np.random.Generator:
    """The generator itself, for whatever draws; made when first asked for, as numpy.random is slow to import."""
    if not _made:
        with _making:
            if not _made:
                _made.append(np.random.Generator(np.random.PCG64()))
    return _made[0]


@checked
def manual_seed(seed: int) -> None:
    """Restart the generator from `seed`; the same seed gives the same numbers on every machine."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ValueError(f"manual_seed: seed must be a non-negative int; got {seed!r}")
    set_state(dict(np.random.PCG64(int(seed)).state))


class Generator:
    """A generator of one's own, for the arguments called `generator`: Generator().manual_seed(0)."""

    def __init__(self, device: Any = None) -> None:  # noqa: ARG002  numbers are drawn on the CPU
        self.numbers = np.random.Generator(np.random.PCG64())

    def manual_seed(self, seed: int) -> Generator:
        """Start again from `seed`; returns self."""
        self.numbers = np.random.Generator(np.random.PCG64(int(seed)))
        return self


def source(given: Any = None) -> np.random.Generator:
    """What draws: the generator of all for None, else the one that is handed over, ours or NumPy's."""
    if given is None:
        return generator()
    found = given.numbers if isinstance(given, Generator) else given
    if not isinstance(found, np.random.Generator):
        raise TypeError(f"generator is {type(given).__name__}; expected a Generator of minorm or of NumPy, or None")
    return found


def get_state() -> dict[str, Any]:
    """The generator's state, as nested dicts of strings and integers."""
    bits = generator().bit_generator
    with bits.lock:  # not in the middle of another thread's draw
        return dict(bits.state)


def set_state(state: dict[str, Any]) -> None:
    """Put back what `get_state` returned."""
    bits = generator().bit_generator
    with bits.lock:
        bits.state = state


# NumPy locks a generator while it draws. Of all threads a fork takes only its own along: a lock that another one held
# would stay locked in the child for ever, and so would the half of numpy.random that another one was importing.


def _before_fork() -> None:
    _making.acquire()
    for made in _made:
        made.bit_generator.lock.acquire()


def _after_fork() -> None:
    for made in _made:
        made.bit_generator.lock.release()
    _making.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
