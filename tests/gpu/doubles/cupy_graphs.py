"""CUDA graphs for the double of CuPy: a captured stream records its calls and does not run them.

To know the shapes of results, the double does compute during a capture; at its end all memory becomes what it was, and
what was made meanwhile is filled with NaN. A replay calls everything again, in order, each result into the memory that
it had in the capture. A number that was an argument is what it was then.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np


class Capture:
    """The calls of one capture."""

    def __init__(self, live: Mapping[int, np.ndarray]) -> None:
        self.live = live
        self.before = [(memory, memory.copy("K")) for memory in list(live.values())]
        self.calls: list[tuple[Callable[..., Any], Any, Any, list[Any]]] = []
        self.inside = self.broken = False

    def undo(self) -> None:
        """Restore the memory, as if nothing had been computed."""
        known = {id(memory) for memory, _ in self.before}
        for memory in list(self.live.values()):
            if id(memory) not in known and memory.size:
                memory.reshape(-1, order="A").view(np.uint8)[...] = 0xFF
        for memory, content in self.before:
            memory[...] = content
        self.before = []


class Graph:
    """cupy.cuda.Graph."""

    def __init__(self, capture: Capture) -> None:
        self.calls = capture.calls

    def launch(self, stream: Any = None) -> None:
        for function, args, options, results in self.calls:
            for old, new in zip(results, arrays_of(function(*args, **options)), strict=True):
                if not np.may_share_memory(old.memory, new.memory):
                    old.memory[...] = new.memory


def memory_at(addresses: Iterable[int], current: Any) -> list[np.ndarray]:
    """While a stream is captured, the arrays at these addresses: a graph that replays a library's call keeps them."""
    live = list(current.capture.live.values()) if current.capture is not None else []
    return [memory for memory in live if any(0 <= p - memory.ctypes.data < memory.nbytes for p in addresses)]


def arrays_of(result: Any) -> list[Any]:
    """Return the double's arrays among a function's results."""
    parts = result if isinstance(result, (list, tuple)) else [result]
    return [part for part in parts if hasattr(part, "memory")]


def recorded(function: Callable[..., Any], current: Any) -> Callable[..., Any]:
    """Wrap a function so that a capture records its calls, but not those inside it. `current.capture` is the
    capture."""

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        capture = current.capture
        if capture is None or capture.inside:
            return function(*args, **options)
        capture.inside = True
        try:
            result = function(*args, **options)
        finally:
            capture.inside = False
        capture.calls.append((function, args, options, arrays_of(result)))
        return result

    return call
