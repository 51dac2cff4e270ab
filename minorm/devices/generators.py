"""The global random generator. Initialisation, dropout and shuffling use it, and `manual_seed` restarts it.

The generator is counter-based: block n of Philox has four words of 64 bits, which depend only on n and a key. So a
kernel on any device can compute the blocks n, n + 1, ... at once, and a seed gives the same numbers on each device
(`take_blocks`). Dropout and uniform numbers are drawn in this way (draws.py). NumPy draws all other numbers on the CPU,
with the same key. The number of a block has four words too; its highest word is 0 for NumPy and 1 for kernels.

The state is a plain dict of integers, so that a checkpoint can contain the state and a resumed run draws the same
numbers. The state names the kind of generator. Earlier versions of minorm used PCG64; a state of PCG64 restores a PCG64
generator, and then NumPy draws all numbers.

Each rank of a distributed run has its own generator (`streams`): rank 0 has the global one, and rank r has a copy that
is jumped ahead r times. So the numbers of a rank do not depend on the process that runs the rank.

A forked child continues from its parent's state: parent and child draw the same numbers until one of them calls
`manual_seed`. A fork waits until draws in other threads have ended, so that the child never gets a state in the middle
of a draw.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from minorm.devices import capture
from minorm.support.argument_errors import checked, kind_of
from minorm.support.documented import documented

_made: list[Generator] = []  # the global generator, once it is made
_making = threading.RLock()


class _Rank(threading.local):
    """A rank's thread-local data: its generator, its number, and a function that gathers the states of all ranks."""

    generator: Generator | None = None
    number, size = 0, 1
    gather: Callable[[Any], Any] | None = None


_rank = _Rank()
_ranks: list[Generator] = []  # generators of running ranks; if it is empty, all threads use the global one


def generator() -> np.random.Generator:
    """Return the NumPy generator of this thread's rank; make it at its first use, since numpy.random imports slowly."""
    return _own().numbers


def _own() -> Generator:
    """Return the generator of this thread's rank."""
    if _ranks and _rank.generator is not None:
        return _rank.generator
    if not _made:
        with _making:
            if not _made:
                _made.append(Generator())
    return _made[0]


@documented({}, seed="an int of at least 0")
@checked
def manual_seed(seed: int) -> Generator:
    """Restart the generator from `seed` and return the generator. A seed gives the same numbers on every machine.

    Each rank of a distributed run gets different numbers. Raises ValueError unless the seed is an int of at least 0.

    Example:
        >>> generator = mn.manual_seed(0)
        >>> first = mn.rand(3)
        >>> generator = mn.manual_seed(0)
        >>> mn.rand(3).equal(first)
        True
    """
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ValueError(f"manual_seed: seed must be a non-negative int; got {seed!r}")
    own = _own()
    own.set_state(np.random.Philox(int(seed)).jumped(_rank.number).state | {"blocks": 0})
    return own


@documented({}, device="accepted, without effect, because one generator draws for all devices")
class Generator:
    """A separate random generator, for the arguments called `generator`.

    Example:
        >>> first, again = (mn.Generator().manual_seed(0) for _ in range(2))
        >>> mn.rand(3, generator=first).equal(mn.rand(3, generator=again))
        True
    """

    def __init__(self, device: Any = None) -> None:  # noqa: ARG002  one for all devices
        self._begin(np.random.Philox(), 0)

    @classmethod
    @documented({}, numbers="a generator of NumPy")
    def of(cls, numbers: np.random.Generator) -> Generator:
        """Return a Generator that draws from the NumPy generator `numbers`.

        Each draw from the Generator or from `numbers` advances the state that they share.
        """
        made = cls.__new__(cls)
        made.numbers, made._where = numbers, None
        return made

    def _begin(self, bits: Any, blocks: int | None) -> None:
        """Start from the bit generator `bits`.

        `blocks` is the number of blocks that kernels have taken. It is None if the generator does not count blocks.
        """
        if getattr(self, "numbers", None) is None or self.numbers.bit_generator is not bits:
            self.numbers: np.random.Generator = np.random.Generator(bits)
        self._where: Any = None
        if blocks is not None:
            place = bits.state["state"]
            self.blocks, self._where = blocks, (int(place["counter"][2]), *place["key"].tolist())

    @documented({}, seed="an int of at least 0")
    def manual_seed(self, seed: int) -> Generator:
        """Restart from `seed`, and return self."""
        self._begin(np.random.Philox(int(seed)), 0)
        return self

    def _take_blocks(self, count: int) -> tuple[int, int, int, int] | None:
        if self._where is None:
            return None
        with self.numbers.bit_generator.lock:
            first = self.blocks
            self.blocks = first + count
        return (first, *self._where)

    def get_state(self) -> dict[str, Any]:
        """Return the generator's state: nested dicts of strings, integers and lists of integers.

        Example:
            >>> generator = mn.Generator().manual_seed(0)
            >>> state = generator.get_state()
            >>> first = mn.rand(3, generator=generator)
            >>> generator.set_state(state)
            >>> mn.rand(3, generator=generator).equal(first)
            True
        """
        bits = self.numbers.bit_generator
        with bits.lock:  # not in the middle of another thread's draw
            return _plain(bits.state) | ({} if self._where is None else {"blocks": self.blocks})

    @documented({}, state="a state that `get_state` returned")
    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from a state of `get_state`.

        If the value is not a state of minorm's generators, raise ValueError and change nothing.

        Example:
            >>> first, again = mn.Generator(), mn.Generator()
            >>> again.set_state(first.get_state())
            >>> mn.rand(3, generator=first).equal(mn.rand(3, generator=again))
            True
        """
        bits: Any = self.numbers.bit_generator
        new = _bits(state, type(bits).__name__)
        with _making, bits.lock:  # not in the middle of a draw, nor of a fork
            if type(new) is type(bits):
                bits.state = new.state
                new = bits
            self._begin(new, state.get("blocks"))


def source(given: Any = None) -> np.random.Generator:
    """Return the NumPy generator of the Generator `given`, or of the global generator if `given` is None."""
    capture.refuse_draws()
    if given is None:
        return generator()
    found = given.numbers if isinstance(given, Generator) else given
    if not isinstance(found, np.random.Generator):
        raise TypeError(f"generator is {type(given).__name__}; expected a Generator of minorm or of NumPy, or None")
    return found


def take_blocks(given: Any, count: int) -> tuple[int, int, int, int] | None:
    """Reserve `count` blocks, which no other draw will use, and return (n, rank, key, key).

    The number of the first reserved block is (n + 1, 0, rank, 1).

    `given` is a Generator, or None for the global generator. Return None if the generator does not count blocks or is a
    NumPy generator.
    """
    own = _own() if given is None else given
    return own._take_blocks(count) if isinstance(own, Generator) else None


def get_state() -> dict[str, Any]:
    """Return the generator's state, as nested dicts of strings and integers.

    In a distributed run, all ranks must call this function together. Then the result has the states of all ranks,
    {"ranks": [...]}.
    """
    state = _own().get_state()
    if _rank.gather is None:
        return state
    return {"ranks": [_unpacked(row) for row in _rank.gather(_packed(state))]}


def set_state(state: dict[str, Any]) -> None:
    """Restore a state from `get_state`; raise ValueError if the number of ranks was different."""
    ranks = state.get("ranks") if isinstance(state, dict) else None
    if ranks is not None and not isinstance(ranks, (list, tuple)):
        raise ValueError(f"set_state: 'ranks' of the state is a {kind_of(ranks)}; expected a list of states")
    count = 1 if ranks is None else len(ranks)
    if count != _rank.size:
        raise ValueError(
            f"set_state: the state is that of {count} ranks, but this program has {_rank.size}; expected "
            "the same number of ranks"
        )
    _own().set_state(state if ranks is None else ranks[_rank.number])


@contextmanager
def kept() -> Iterator[None]:
    """Restore the generator of this rank after the block; other ranks need not call this function."""
    own = _own()
    state = own.get_state()
    try:
        yield
    finally:
        own.set_state(state)


def own_state() -> dict[str, Any]:
    """Return the state of this rank's generator; other ranks need not call this function."""
    return _own().get_state()


@contextmanager
def replayed(state: dict[str, Any]) -> Iterator[None]:
    """During the block, draw from a state that `own_state` returned; restore the generator afterwards."""
    with kept():
        _own().set_state(state)
        yield


def _bits(state: Any, kind: str = "Philox") -> Any:
    """Return a new bit generator in the state `state`, which must be a state of `kind`, Philox or PCG64."""
    if not isinstance(state, dict) or not isinstance(state.get("bit_generator"), str):
        got = f"a dict with {sorted(map(str, state))}" if isinstance(state, dict) else f"a {kind_of(state)}"
        raise ValueError(f"set_state: the state is {got}; expected a dict with 'bit_generator', as get_state() gives")
    name = state["bit_generator"]
    if name not in ("Philox", "PCG64", kind):
        raise ValueError(
            f"set_state: the state is that of {name}; expected Philox, or PCG64, which earlier versions of minorm used"
        )
    bits = getattr(np.random, name)()
    example = _plain(bits.state)
    try:
        bits.state = {key: state[key] for key in example}
        given, blocks = _plain({key: state[key] for key in example}), state.get("blocks", 0)
        bounds = {"blocks": 1 << 63, "has_uint32": 2, "buffer_pos": 5}
        right = _plain(bits.state) == given and all(0 <= int(state.get(key, 0)) < end for key, end in bounds.items())
        right = right and isinstance(blocks, int)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        right = False  # NumPy says only that an integer is required
    if not right:
        raise ValueError(
            f"set_state: the state is {_brief(state)}, which is no state of {name}; expected the same parts as in "
            f"{_brief(example)}, with numbers in their ranges"
        )
    return bits


def _brief(state: dict[str, Any]) -> str:
    text = repr({key: value for key, value in state.items() if key != "bit_generator"})
    return text if len(text) <= 240 else f"{text[:237]}..."


def _plain(state: Any) -> dict[str, Any]:
    """Return a NumPy state with lists instead of arrays."""
    return {
        name: _plain(part) if isinstance(part, dict) else part.tolist() if isinstance(part, np.ndarray) else part
        for name, part in state.items()
    }


# Ranks


def streams(ranks: Sequence[int], state: dict[str, Any] | None = None) -> list[Generator | None]:
    """Return a generator for each of `ranks`, derived from the state of rank 0.

    Rank 0 keeps the generator that it has, so the entry for rank 0 is None.
    """
    state = _own().get_state() if state is None else state
    found: list[Generator | None] = [Generator() if rank else None for rank in ranks]
    for rank, own in zip(ranks, found, strict=True):
        if own is not None:
            own._begin(_bits(state).jumped(rank), state.get("blocks"))
    return found


@contextmanager
def stream(own: Generator | None, number: int, size: int, gather: Callable[[Any], Any] | None) -> Iterator[None]:
    """Inside the block, this thread is rank `number` of `size` ranks, and draws from a generator that `streams` made.

    gather  a function that stacks the arrays of all ranks along a new first axis; None for a single rank
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
    """Return a state as uint64 words: fourteen for Philox, six for PCG64."""
    inner = state["state"]
    if state["bit_generator"] == "Philox":
        words = [*inner["counter"], *inner["key"], *state["buffer"], state["buffer_pos"], state["blocks"]]
    else:
        words = [word for name in ("state", "inc") for word in (inner[name] >> 64, inner[name] & (1 << 64) - 1)]
    return np.array([*words, state["has_uint32"], state["uinteger"]], np.uint64)


def _unpacked(packed: Any) -> dict[str, Any]:
    *words, has, left = packed.tolist()
    state = {"bit_generator": "PCG64", "has_uint32": has, "uinteger": left}
    if len(words) == 4:
        return state | {"state": {"state": words[0] << 64 | words[1], "inc": words[2] << 64 | words[3]}}
    inner, rest = {"counter": words[:4], "key": words[4:6]}, {"buffer_pos": words[10], "blocks": words[11]}
    return state | {"bit_generator": "Philox", "state": inner, "buffer": words[6:10]} | rest


# NumPy locks a generator while it draws. A fork copies only its own thread, so a lock that another thread holds would
# stay locked in the child for ever. So would the import lock, if another thread was importing numpy.random.


def _before_fork() -> None:
    _making.acquire()
    for made in (*_made, *_ranks):
        made.numbers.bit_generator.lock.acquire()


def _after_fork() -> None:
    for made in (*_made, *_ranks):
        made.numbers.bit_generator.lock.release()
    _making.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
