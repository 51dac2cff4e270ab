"""Which part of a model a call belongs to: the calls of a module, or of a node of a loaded graph, in a trace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from minorm.graph import trace
from minorm.graph.trace import Call


@dataclass(frozen=True)
class Scope:
    """What stands in the trace for a module's forward: the calls made inside are its children."""

    path: str

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """What `function` returns; a trace that is open shows its calls under this path."""
        outer = trace.state.calls
        if outer is None:
            return function(*args, **kwargs)
        call = Call(self, {"inputs": args})
        outer.append(call)
        trace.state.calls = call.children
        try:
            call.result = function(*args, **kwargs)
        finally:
            trace.state.calls = outer
        return call.result


@dataclass(frozen=True)
class Embedded(Scope):
    """The same for a loaded graph inside another module: it can be written as its file has it."""

    module: Any


class Loop:
    """What stands in a trace for a loop that the input ends: another input would give it another number of turns."""

    @classmethod
    def call(cls, function: Callable[..., Any], *args: Any) -> Any:
        """What `function` returns; a trace that is open does not show what it calls."""
        outer, trace.state.calls = trace.state.calls, None
        try:
            result = function(*args)
        finally:
            trace.state.calls = outer
        if outer is not None:
            outer.append(Call(cls, {}, result))
        return result
