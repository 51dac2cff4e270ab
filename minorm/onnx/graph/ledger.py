"""What a run of a loaded graph holds at once, kept below what it may hold, so that a small file cannot ask for much.

Counted are the results that are alive and the arrays that backward will need; weights and inputs are not. A view
counts with the array it looks into, once. What a node is about to make is asked for before it is allocated: by
`Budget.fits` where the file decides how much that is (Expand, Resize, an outer product), and by every node as much as
ROOM arrays like its largest input, for the result and what is computed on the way; RECORDED times as much while
gradients are recorded, since backward will make gradients of it all.

A run may hold `max_bytes`, and INPUTS times what the caller feeds it: a large batch is the caller's wish, not the
file's. For each byte of that, a convolution, product or pooling may take STEPS multiplications.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from minorm.autograd import is_grad_enabled
from minorm.tensor import Tensor

MAX_RANK = 32  # of NumPy's broadcasting
INPUTS = 4000  # bytes for each byte of the inputs
STEPS = 16  # multiplications for each byte
ROOM = 3
RECORDED = 4


class Ledger:
    """The bytes held in one run."""

    def __init__(self, limit: int, allowed: int, weights: Collection[int] = ()) -> None:
        self.limit, self.allowed, self.weights = limit, allowed, weights
        self.held = 0
        self.recording = False  # whether what comes next is recorded for backward
        self._known: dict[int, Any] = {}

    def expect(self, nbytes: int, what: str) -> None:
        """ValueError unless so much more may be allocated."""
        wanted = RECORDED * nbytes if self.recording else nbytes
        if self.held + wanted > self.allowed:
            of_what = f"{wanted} bytes{' with its gradient' if self.recording else ''}"
            beside = f" beside {self.held} bytes held already," if self.held else ""
            raise ValueError(
                f"{what} would take {of_what},{beside} more than max_bytes={self.limit} allows; load with a larger "
                "max_bytes if you trust the file"
            )

    def works(self, steps: int) -> None:
        """ValueError unless a node may take so many multiplications."""
        if steps * (RECORDED if self.recording else 1) > STEPS * self.allowed:
            raise ValueError(
                f"it would take {steps} multiplications, more than max_bytes={self.limit} allows ({STEPS} for each "
                "byte); load with a larger max_bytes if you trust the file"
            )

    def before(self, arguments: Sequence[Any]) -> None:
        """Ask for room for what a node computes. Weights are as large as the file, and do not count."""
        tensors = [x for x in arguments if isinstance(x, Tensor)]
        self.recording = is_grad_enabled() and any(x.requires_grad for x in tensors)
        asked = [x for x in tensors if id(x) not in self.weights or x.data.size == 0]
        sizes = [_size(x.data) * max(4, x.dtype.itemsize) for x in asked]
        room = max(sizes, default=0)
        self.expect(room * ROOM, "what it computes")

    def after(self, arguments: Sequence[Any], results: Sequence[Any]) -> None:
        """Count what a node has made: its results, and what backward needs."""
        given = {id(_owner(x.data)) for x in arguments if isinstance(x, Tensor)}
        known = {id(x.creator) for x in arguments if isinstance(x, Tensor)}
        waiting = []
        for x in results:
            for part in x if isinstance(x, list) else (x,):
                if part is None:  # of a branch that was not taken
                    continue
                if part.ndim > MAX_RANK:
                    raise ValueError(f"the result has {part.ndim} axes; expected at most {MAX_RANK}")
                self._hold(part.data, given)
                waiting.append(part.creator)
        while waiting:
            function = waiting.pop()
            if function is None or id(function) in known:
                continue
            known.add(id(function))
            for kept in vars(function).values():
                for array in kept if isinstance(kept, tuple) else (kept,):
                    self._hold(array, given)
            for source, _, array in (edge for edge in function.edges or () if edge is not None):
                if isinstance(source, Tensor):
                    self._hold(source.data, given)
                else:
                    self._hold(array, given)
                    waiting.append(source)
        self.recording = False
        self.expect(0, "what the graph holds")

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


def _size(array: Any) -> int:
    """Elements; of an empty array those of its other axes, which a reduction of the empty one brings to life."""
    return int(array.size) or math.prod(n for n in array.shape if n)


def _owner(array: Any) -> Any:
    """The array whose memory this one looks into."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


class _Active(threading.local):
    ledger: Ledger | None = None


_active = _Active()


def active() -> Ledger | None:
    """The ledger of the run that this thread is in."""
    return _active.ledger


@contextmanager
def run(limit: int, taken: int, inputs: Sequence[Any], weights: Collection[int]) -> Iterator[Ledger]:
    """A run that may hold `limit` bytes, less those `taken` already, and its share for the inputs.

    weights    what id() says of the Tensors that the file holds
    """
    outer = _active.ledger
    _active.ledger = Ledger(limit, limit - taken + INPUTS * sum(x.data.nbytes for x in inputs), weights)
    try:
        yield _active.ledger
    finally:
        _active.ledger = outer
