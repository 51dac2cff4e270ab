"""The one random generator: initialisation, dropout and shuffling draw from it, `manual_seed` resets it.

Its state is a plain dict of integers, so that a checkpoint can hold it and a resumed run draws the same numbers.

Each rank of a distributed run has a generator of its own (`streams`): rank 0 the one that all programs have, rank r the
same jumped ahead r times. So what a rank draws does not depend on which process carries it.

A forked child goes on where its parent stood: both draw the same numbers, until `manual_seed` sets them apart. A fork
waits for a draw that is under way in another thread, so that the child gets a state between two draws.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from minorm.documented import documented
from minorm.mistakes import checked

_made: list[np.random.Generator] = []  # the generator, once there is one
_making = threading.RLock()


class _Rank(threading.local):
    """Of the thread of a rank: its own generator, its number, and how it asks all ranks for their states."""

    generator: np.random.Generator | None = None
    number, size = 0, 1
    gather: Callable[[Any], Any] | None = None


_rank = _Rank()
_ranks: list[
    np.random.Generator
] = []  # those of ranks that run; with none there is no need to ask which thread this is


def generator() -> np.random.Generator:
    """The generator itself, for whatever draws; made when first asked for, as numpy.random is slow to import."""
    if _ranks and _rank.generator is not None:
        return _rank.generator
    if not _made:
        with _making:
            if not _made:
                _made.append(np.random.Generator(np.random.PCG64()))
    return _made[0]


@documented({}, seed="an int of at least 0")
@checked
def manual_seed(seed: int) -> Generator:
    """Restart the generator from `seed`, and return it; the same seed gives the same numbers on every machine.

    Each rank of a distributed run gets numbers of its own. ValueError for what is no such int.

    Example:
        >>> generator = mn.manual_seed(0)
        >>> first = mn.rand(3)
        >>> generator = mn.manual_seed(0)
        >>> mn.rand(3).equal(first)
        True
    """
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ValueError(f"manual_seed: seed must be a non-negative int; got {seed!r}")
    _put(dict(np.random.PCG64(int(seed)).jumped(_rank.number).state))
    return Generator.of(generator())


@documented({}, device="taken, without effect: numbers are drawn on the CPU")
class Generator:
    """A generator of one's own, for the arguments called `generator`.

    Example:
        >>> first, again = (mn.Generator().manual_seed(0) for _ in range(2))
        >>> mn.rand(3, generator=first).equal(mn.rand(3, generator=again))
        True
    """

    def __init__(self, device: Any = None) -> None:  # noqa: ARG002  numbers are drawn on the CPU
        self.numbers = np.random.Generator(np.random.PCG64())

    @classmethod
    @documented({}, numbers="a generator of NumPy")
    def of(cls, numbers: np.random.Generator) -> Generator:
        """One around a generator of NumPy, which both draw from."""
        made = cls.__new__(cls)
        made.numbers = numbers
        return made

    @documented({}, seed="an int of at least 0")
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
    """The generator's state, as nested dicts of strings and integers.

    In a distributed run all ranks must call this together: it holds the states of all, {"ranks": [...]}.
    """
    state = _state()
    if _rank.gather is None:
        return state
    return {"ranks": [_unpacked(row) for row in _rank.gather(_packed(state))]}


def set_state(state: dict[str, Any]) -> None:
    """Put back what `get_state` returned; ValueError where that was taken with another number of ranks."""
    count = len(state["ranks"]) if "ranks" in state else 1
    if count != _rank.size:
        raise ValueError(f"set_state: the state is that of {count} ranks, this program has {_rank.size}")
    _put(state["ranks"][_rank.number] if "ranks" in state else state)


def _state() -> dict[str, Any]:
    bits = generator().bit_generator
    with bits.lock:  # not in the middle of another thread's draw
        return dict(bits.state)


def _put(state: dict[str, Any]) -> None:
    bits = generator().bit_generator
    with bits.lock:
        bits.state = state


# Ranks


def streams(ranks: Sequence[int], state: dict[str, Any] | None = None) -> list[np.random.Generator | None]:
    """Generators for these ranks, from the state that rank 0's has now; None for rank 0, which uses that one itself."""
    bits: Any = np.random.PCG64()
    bits.state = _state() if state is None else state
    return [np.random.Generator(bits.jumped(rank)) if rank else None for rank in ranks]


@contextmanager
def stream(
    own: np.random.Generator | None, number: int, size: int, gather: Callable[[Any], Any] | None
) -> Iterator[None]:
    """Inside, this thread is rank `number` of `size` and draws from a generator of `streams`.

    gather  an array of this rank's -> those of all ranks along a new first axis; None where there is one rank
    """
    before = _rank.__dict__.copy()
    _rank.__dict__.update(generator=own, number=number, size=size, gather=gather)
    if own is not None:
        _ranks.append(own)
    try:
        yield
    finally:
        _rank.__dict__.clear()
        _rank.__dict__.update(before)
        if own is not None:
            _ranks.remove(own)


def _packed(state: dict[str, Any]) -> Any:
    """The state of PCG64 as six uint64."""
    numbers = [state["state"]["state"], state["state"]["inc"]]
    words = [word for number in numbers for word in (number >> 64, number & (1 << 64) - 1)]
    return np.array([*words, state["has_uint32"], state["uinteger"]], np.uint64)


def _unpacked(words: Any) -> dict[str, Any]:
    high, low, high_inc, low_inc, has, left = (int(word) for word in words)
    pair = {"state": high << 64 | low, "inc": high_inc << 64 | low_inc}
    return {"bit_generator": "PCG64", "state": pair, "has_uint32": has, "uinteger": left}


# NumPy locks a generator while it draws. Of all threads a fork takes only its own along: a lock that another one held
# would stay locked in the child for ever, and so would the half of numpy.random that another one was importing.


def _before_fork() -> None:
    _making.acquire()
    for made in (*_made, *_ranks):
        made.bit_generator.lock.acquire()


def _after_fork() -> None:
    for made in (*_made, *_ranks):
        made.bit_generator.lock.release()
    _making.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
