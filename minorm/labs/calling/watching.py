"""Watches a student's functions: compares each argument before and after a call, and notes those that changed.

Large arrays are not compared. Objects that cannot be sent to another process (a model, a rank, a loop nest) are not
compared either.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from minorm.labs.calling.wire import WireError, encode

LARGEST = 4 << 20  # bytes of an array that is compared: larger ones would cost more than the function


class Watched:
    """Wraps a function, and notes in `changed` each argument that a call changes in place.

    A note is [the function's name, the argument's name].
    """

    def __init__(self, function: Callable[..., Any], name: str, changed: list[list[str]]) -> None:
        self._function, self._name, self._changed = function, name, changed

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Call the function and return its answer. Note the arguments that the call changed."""
        names = _parameters(self._function)
        given = {names[i] if i < len(names) else str(i + 1): argument for i, argument in enumerate(args)} | options
        before = {name: _content(argument) for name, argument in given.items()}
        value = self._function(*args, **options)
        for name, argument in given.items():
            if _content(argument) != before[name] and [self._name, name] not in self._changed:
                self._changed.append([self._name, name])
        return value

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)


class WatchedModule:
    """Wraps a module. Its functions are watched; its other attributes are passed on unchanged."""

    def __init__(self, module: Any, changed: list[list[str]]) -> None:
        self._module, self._changed = module, changed

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        return Watched(found, name, self._changed) if isinstance(found, FunctionType) else found


def _content(argument: Any) -> tuple[bytes, bytes] | None:
    """Encode an argument for the comparison; return None if this argument is not compared."""
    if isinstance(argument, np.ndarray) and argument.nbytes > LARGEST:
        return None
    try:
        return encode(argument)
    except WireError:
        return None


def _parameters(function: Callable[..., Any]) -> list[str]:
    """Return the names of the function's positional parameters; empty if they are not known."""
    code = getattr(function, "__code__", None)
    return list(code.co_varnames[: code.co_argcount]) if code is not None else []
