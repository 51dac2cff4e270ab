"""Group the calls in a trace by the module that makes the calls, or by the node of a loaded graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from minorm.graph import trace
from minorm.graph.trace import Call


@dataclass(frozen=True)
class Scope:
    """The entry in a trace for a module's forward; the calls made inside are its children."""

    path: str

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call `function` and return its result; an open trace lists the calls inside `function` under this path."""
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
    """The entry for a loaded graph inside another module; export can copy the nodes of the graph's file."""

    module: Any


class Loop:
    """The entry in a trace for a loop whose number of turns depends on the values of the input."""

    @classmethod
    def call(cls, function: Callable[..., Any], *args: Any) -> Any:
        """Call `function` and return its result; an open trace does not list the calls inside `function`."""
        outer, trace.state.calls = trace.state.calls, None
        try:
            result = function(*args)
        finally:
            trace.state.calls = outer
        if outer is not None:
            outer.append(Call(cls, {}, result))
        return result
