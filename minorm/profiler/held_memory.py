"""Count the bytes of all known arrays that exist now, and the largest number of bytes so far.

Memory is counted once, for the array that owns the memory. It is counted from the moment when this array is first seen
until the array is freed.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

DEPTH = 3  # of the nested tuples, lists and dicts in which a Function keeps arrays


class Memory:
    """The bytes of arrays now (`held`), and the largest number so far (`peak`)."""

    def __init__(self) -> None:
        self.held = self.peak = 0
        self._known: dict[int, weakref.ref[Any]] = {}

    def add(self, array: Any) -> int:
        """Count an array, and return its number of bytes, or 0 if its memory was counted before."""
        whole = owner(array)
        return 0 if id(whole) in self._known else self._enter(whole, int(whole.nbytes))

    def leave_out(self, array: Any) -> None:
        """Exclude the memory of this array, because the memory existed before the operation."""
        whole = owner(array)
        if id(whole) not in self._known:
            self._enter(whole, 0)

    def _enter(self, whole: Any, size: int) -> int:
        place = id(whole)

        def gone(_: Any) -> None:
            self.held -= size
            self._known.pop(place, None)

        self._known[place] = weakref.ref(whole, gone)
        self.held += size
        self.peak = max(self.peak, self.held)
        return size


def owner(array: Any) -> Any:
    """Return the array that owns the memory of this array; it may be the array itself."""
    while isinstance(array.base, type(array)):
        array = array.base
    return array


def arrays_in(value: Any, kind: type, depth: int = DEPTH) -> Iterator[Any]:
    """Yield the arrays of type `kind` in a value, which may be nested in tuples, lists and dicts."""
    if isinstance(value, kind):
        yield value
    elif depth and isinstance(value, (tuple, list, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from arrays_in(part, kind, depth - 1)
