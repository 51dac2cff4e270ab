"""Maps a function over values in nested tuples, lists and dicts, such as batches and results of steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def mapped(value: Any, kind: type | tuple[type, ...], function: Callable[[Any], Any]) -> Any:
    """Return a copy of nested tuples, lists and dicts in which function(x) replaces each x of type `kind`."""
    if isinstance(value, kind):
        return function(value)
    if isinstance(value, Mapping):
        return type(value)({key: mapped(item, kind, function) for key, item in value.items()})  # type: ignore[call-arg]
    if isinstance(value, (tuple, list)):
        items = [mapped(item, kind, function) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value
