"""What a run of a loaded graph holds at once, kept below what it may hold, so that a small file cannot ask for much.

Counted are the results that are alive and the arrays that backward will need; weights and inputs are not. A view
counts with the array it looks into, once. What a node is about to make is asked for before it is allocated: by
`Budget.fits` where the file decides how much that is (Expand, Resize, an outer product), and by every node as much as
ROOM arrays like its largest input, for the result and what is computed on the way; RECORDED times as much while
gradients are recorded, since backward will make gradients of it all.

A run may hold `max_bytes`. A large batch is the caller's wish, not the file's: from the default limit on, a run may
hold INPUTS times its inputs, if that is more, and RECORDED times as much while gradients may be recorded. Who sets a
smaller limit wants it held, whatever the input: then inputs are worth SMALL bytes at most. For each byte that a run may
hold, a convolution, product or pooling may take STEPS multiplications.

What loops repeat may take as many, all turns together: a node counts with what it multiplies, and besides with TURN, or
with WORK for each element, if that is more.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from minorm.graph.grad_mode import is_grad_enabled
from minorm.serialization import limits
from minorm.tensor.tensor import Tensor

MAX_RANK = 32  # of NumPy's broadcasting
SMALL = 32 << 20
INPUTS = 2000  # bytes for each byte of the inputs; a U-Net of gray images takes 512, or 2500 with what backward keeps
STEPS = 16  # multiplications for each byte
TURN = 300_000  # that take as long as a step in Python, whatever it computes
WORK = 4  # that take as long as an element of what is computed element by element
ROOM = 3
RECORDED = 4


See = Callable[[Any, Sequence[Any], Sequence[Any], int], None]


class Excess(ValueError):
    """More than a run may hold. needed: the bytes that it would have to be allowed."""

    def __init__(self, message: str, needed: int) -> None:
        super().__init__(message)
        self.needed = needed


class MemoryBudget:
    """The bytes held in one run."""

    def __init__(self, limit: int, allowed: int, weights: Collection[int] = ()) -> None:
        self.limit, self.allowed, self.weights = limit, allowed, weights
        self.held = 0
        self.recording = False  # whether what comes next is recorded for backward
        self.worked = 0  # multiplications that the node at hand has asked for
        self.loops = 0  # around what comes next
        self.repeated = 0  # multiplications, in loops
        self._known: dict[int, Any] = {}

    def expect(self, nbytes: int, what: str) -> None:
        """ValueError unless so much more may be allocated."""
        wanted = RECORDED * nbytes if self.recording else nbytes
        if self.held + wanted > self.allowed:
            of_what = f"{wanted} bytes{' with its gradient' if self.recording else ''}"
            beside = f" beside {self.held} bytes held already," if self.held else ""
            raise Excess(
                f"{what} would take {of_what},{beside} more than max_bytes={self.limit} allows; load with a larger "
                "max_bytes (--max-bytes) if you trust the file",
                self.held + wanted,
            )

    def works(self, steps: int) -> None:
        """ValueError unless a node may take so many multiplications; in a loop, together with all before it."""
        self.worked += steps
        steps *= RECORDED if self.recording else 1
        what = "it"
        if self.loops:
            self.repeated += steps
            steps, what = self.repeated, "what loops repeat"
        if steps > STEPS * self.allowed:
            raise Excess(
                f"{what} would take {steps} multiplications, more than max_bytes={self.limit} allows ({STEPS} for each "
                "byte); load with a larger max_bytes (--max-bytes) if you trust the file",
                steps // STEPS,
            )

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Around one turn of a loop."""
        self.loops += 1
        try:
            self.works(TURN)
            yield
        finally:
            self.loops -= 1

    def count(self, values: Iterable[Any], given: set[int]) -> None:
        """Count values that no node has made: what a loop takes its sequences apart into, and what it collects.

        given    the arrays that were there before, as `arrays_of` names them
        """
        for x in values:
            if isinstance(x, Tensor):
                self._hold(x.array, given)
        self.expect(0, "what the graph holds")

    def before(self, arguments: Sequence[Any]) -> None:
        """Ask for room for what a node computes. Weights are as large as the file, and do not count."""
        self.worked = 0
        tensors = [x for x in arguments if isinstance(x, Tensor)]
        self.recording = is_grad_enabled() and any(x.requires_grad for x in tensors)
        asked = [x for x in tensors if id(x) not in self.weights or x.array.size == 0]
        sizes = [_size(x.array) * max(4, x.dtype.itemsize) for x in asked]
        room = max(sizes, default=0)
        self.expect(room * ROOM, "what it computes")
        if self.loops:
            lists = sum(len(x) for x in arguments if isinstance(x, list))
            self.works(max(TURN, WORK * max((x.array.size for x in tensors), default=0)) + lists * TURN // 100)

    def after(self, arguments: Sequence[Any], results: Sequence[Any]) -> None:
        """Count what a node has made: its results, and what backward needs."""
        tensors = list(_flat(arguments))
        old = set(map(id, tensors))
        fresh = [x for x in _flat(results) if id(x) not in old]
        given = arrays_of(tensors) if fresh else set()
        known = {id(x.creator) for x in tensors} if fresh else set()
        waiting = []
        for x in fresh:
            if x.ndim > MAX_RANK:
                raise ValueError(f"the result has {x.ndim} axes; expected at most {MAX_RANK}")
            self._hold(x.array, given)
            waiting.append(x.creator)
            if self.loops:
                self.works(WORK * x.array.size)
        while waiting:
            function = waiting.pop()
            if function is None or id(function) in known:
                continue
            known.add(id(function))
            for kept in vars(function).values():
                for array in kept if isinstance(kept, tuple) else (kept,):
                    self._hold(array, given)
            for source, *_ in (edge for edge in function.edges or () if edge is not None):
                if isinstance(source, Tensor):
                    self._hold(source.array, given)
                else:
                    waiting.append(source)
        self.recording = False
        self.expect(0, "what the graph holds")

    def tell(self, step: Any, arguments: Sequence[Any], results: Sequence[Any]) -> None:
        """Show a node that has run to who is watching."""
        if _active.see is not None:
            _active.see(step, arguments, results, self.worked)

    def _hold(self, array: Any, given: set[int]) -> None:
        if not isinstance(array, np.ndarray):
            return
        owner = _owner(array)
        key = id(owner)
        if key not in given and key not in self._known:
            self._known[key] = weakref.ref(owner, partial(self._gone, key, owner.nbytes))
            self.held += owner.nbytes

    def _gone(self, key: int, nbytes: int, _: Any) -> None:
        self._known.pop(key, None)
        self.held -= nbytes


def arrays_of(values: Iterable[Any]) -> set[int]:
    """What id() says of the arrays that hold the numbers of Tensors."""
    return {id(_owner(x.array)) for x in _flat(values)}


def _flat(values: Iterable[Any]) -> Iterator[Tensor]:
    """The Tensors among values, and in sequences; None is absent, or of a branch that was not taken."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list):
            yield from value


def _size(array: Any) -> int:
    """Elements; of an empty array those of its other axes, which a reduction of the empty one brings to life."""
    return int(array.size) or math.prod(n for n in array.shape if n)


def _owner(array: Any) -> Any:
    """The array whose memory this one looks into."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


class _Active(threading.local):
    ledger: MemoryBudget | None = None
    see: See | None = None


_active = _Active()


def active() -> MemoryBudget | None:
    """The ledger of the run that this thread is in."""
    return _active.ledger


def is_watched() -> bool:
    """Whether somebody is told of the nodes that this thread runs."""
    return _active.see is not None


@contextmanager
def watching(see: See) -> Iterator[None]:
    """Inside, `see(step, arguments, results, multiplications)` is told of every node that runs in this thread."""
    outer, _active.see = _active.see, see
    try:
        yield
    finally:
        _active.see = outer


@contextmanager
def run(limit: int, taken: int, inputs: Sequence[Any], weights: Collection[int]) -> Iterator[MemoryBudget]:
    """A run that may hold `limit` bytes, less those `taken` already, or what its inputs are worth.

    weights    what id() says of the Tensors that the file holds
    """
    worth = INPUTS * sum(x.array.nbytes for x in _flat(inputs)) * (RECORDED if is_grad_enabled() else 1)
    allowed = max(limit - taken, worth if limit >= limits.ONNX else min(worth, SMALL))
    with entered(MemoryBudget(limit, allowed, weights)) as ledger:
        yield ledger


@contextmanager
def entered(ledger: MemoryBudget) -> Iterator[MemoryBudget]:
    """Inside, what this thread computes of a graph counts here."""
    outer, _active.ledger = _active.ledger, ledger
    try:
        yield ledger
    finally:
        _active.ledger = outer
