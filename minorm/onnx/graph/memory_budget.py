"""Limit the memory that a run of a loaded graph holds at once, so that a small file cannot ask for much.

The budget counts the live results and the arrays that backward will need, but not weights and inputs. A view and the
array that it refers to count once. Before a node allocates its result and intermediate arrays, the node asks the budget
for ROOM times the memory of its largest input. If the file decides the size of the result (Expand, Resize, an outer
product), the node asks for this size with `Budget.fits`. While gradients are recorded, the node asks for RECORDED times
as much, because backward will allocate gradients too.

A run may hold `max_bytes`. But the caller, not the file, chooses a large batch. So if `max_bytes` is at least the
default, a run may also hold INPUTS times the bytes of its inputs. This number is multiplied by RECORDED while gradients
may be recorded. If `max_bytes` is smaller, large inputs raise the limit to SMALL bytes at most. The time has a limit
too: for each byte that a run may hold, a convolution, product or pooling may take STEPS multiplications.

The same limit holds for all turns of all loops together. In a loop, each node counts TURN multiplications in addition
to its own, or WORK for each element if this number is larger.
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

MAX_RANK = 32  # the limit of NumPy's broadcasting
SMALL = 32 << 20
INPUTS = 2000  # bytes for each byte of the inputs; a U-Net on gray images takes 512, or 2500 with backward's arrays
STEPS = 16  # the multiplications allowed for each byte that a run may hold
TURN = 300_000  # multiplications that take as long as any step in Python
WORK = 4  # multiplications that take as long as one element of an elementwise operation
ROOM = 3
RECORDED = 4


See = Callable[[Any, Sequence[Any], Sequence[Any], int], None]


class Excess(ValueError):
    """A run asks for more memory than it may hold; `needed` is the limit in bytes that would be enough."""

    def __init__(self, message: str, needed: int) -> None:
        super().__init__(message)
        self.needed = needed


class MemoryBudget:
    """Counts the bytes and the multiplications of one run, and raises Excess above the limits."""

    def __init__(self, limit: int, allowed: int, weights: Collection[int] = ()) -> None:
        self.limit, self.allowed, self.weights = limit, allowed, weights
        self.held = 0
        self.recording = False  # True if the next node is recorded for backward
        self.worked = 0  # multiplications that the current node has asked for
        self.loops = 0  # the number of loops around the next node
        self.repeated = 0  # multiplications that nodes in loops have asked for
        self._known: dict[int, Any] = {}

    def expect(self, nbytes: int, what: str) -> None:
        """Raise Excess, a ValueError, if the run may not allocate `nbytes` more bytes."""
        wanted = RECORDED * nbytes if self.recording else nbytes
        if self.held + wanted > self.allowed:
            of_what = f"{wanted} bytes{' with its gradient' if self.recording else ''}"
            beside = f" beside {self.held} bytes held already," if self.held else ""
            raise Excess(
                f"{what} would take {of_what},{beside} more than max_bytes={self.limit} allows; load with a larger "
                "max_bytes (--max-bytes) if you trust the file",
                self.held + wanted,
            )

    def check_work(self, steps: int) -> None:
        """Raise Excess if a node may not take this many multiplications; in a loop, all turns so far count too."""
        self.worked += steps
        steps *= RECORDED if self.recording else 1
        what = "it"
        if self.loops:
            self.repeated += steps
            steps, what = self.repeated, "the work in loops"
        if steps > STEPS * self.allowed:
            raise Excess(
                f"{what} would take {steps} multiplications, more than max_bytes={self.limit} allows ({STEPS} for each "
                "byte); load with a larger max_bytes (--max-bytes) if you trust the file",
                steps // STEPS,
            )

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Count one turn of a loop while the context is open."""
        self.loops += 1
        try:
            self.check_work(TURN)
            yield
        finally:
            self.loops -= 1

    def count(self, values: Iterable[Any], given: set[int]) -> None:
        """Count values that no node made: the elements of a loop's sequences, and the results that it collects.

        given    the ids of the arrays that existed before, from `arrays_of`
        """
        for x in values:
            if isinstance(x, Tensor):
                self._hold(x.array, given)
        self.expect(0, "what the graph holds")

    def before(self, arguments: Sequence[Any]) -> None:
        """Raise Excess if there is no room for a node's results.

        Weights do not count, because they are only as large as the file.
        """
        self.worked = 0
        tensors = [x for x in arguments if isinstance(x, Tensor)]
        self.recording = is_grad_enabled() and any(x.requires_grad for x in tensors)
        asked = [x for x in tensors if id(x) not in self.weights or x.array.size == 0]
        sizes = [_size(x.array) * max(4, x.dtype.itemsize) for x in asked]
        room = max(sizes, default=0)
        self.expect(room * ROOM, "its result")
        if self.loops:
            lists = sum(len(x) for x in arguments if isinstance(x, list))
            self.check_work(max(TURN, WORK * max((x.array.size for x in tensors), default=0)) + lists * TURN // 100)

    def after(self, arguments: Sequence[Any], results: Sequence[Any]) -> None:
        """Count a node's results and the arrays that backward needs."""
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
                self.check_work(WORK * x.array.size)
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
        """If a function watches the nodes of this thread, call this function for a node that has run."""
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
    """Return the ids of the arrays in which the Tensors among `values` hold their numbers."""
    return {id(_owner(x.array)) for x in _flat(values)}


def _flat(values: Iterable[Any]) -> Iterator[Tensor]:
    """Yield the Tensors in `values` and in its sequences; skip None, which is an absent value or a branch not taken."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list):
            yield from value


def _size(array: Any) -> int:
    """Return the number of elements; an axis of length 0 counts as length 1, because a reduction can remove it."""
    return int(array.size) or math.prod(n for n in array.shape if n)


def _owner(array: Any) -> Any:
    """Return the array whose memory this view uses."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


class _Active(threading.local):
    budget: MemoryBudget | None = None
    see: See | None = None


_active = _Active()


def active() -> MemoryBudget | None:
    """Return the budget of the run in this thread; None if no run is open."""
    return _active.budget


def is_watched() -> bool:
    """Return whether a function watches the nodes that this thread runs."""
    return _active.see is not None


@contextmanager
def watching(see: See) -> Iterator[None]:
    """Inside the context, call `see(step, arguments, results, multiplications)` for each node that this thread runs."""
    outer, _active.see = _active.see, see
    try:
        yield
    finally:
        _active.see = outer


@contextmanager
def run(limit: int, taken: int, inputs: Sequence[Any], weights: Collection[int]) -> Iterator[MemoryBudget]:
    """Open a run that may hold `limit` bytes minus the bytes `taken` already, or more if the inputs are large.

    weights    the ids of the Tensors that the file holds
    """
    worth = INPUTS * sum(x.array.nbytes for x in _flat(inputs)) * (RECORDED if is_grad_enabled() else 1)
    allowed = max(limit - taken, worth if limit >= limits.ONNX else min(worth, SMALL))
    with entered(MemoryBudget(limit, allowed, weights)) as budget:
        yield budget


@contextmanager
def entered(budget: MemoryBudget) -> Iterator[MemoryBudget]:
    """While the context is open, let `budget` count what the graphs in this thread compute."""
    outer, _active.budget = _active.budget, budget
    try:
        yield budget
    finally:
        _active.budget = outer
