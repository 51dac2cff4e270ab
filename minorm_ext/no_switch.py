"""Replaces runtime/switch.pyx in a wheel without kernels: it works the same, but Ctrl-C may come between its parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Switch:
    """Gives attributes of `owner` other values inside a `with` block."""

    def __init__(self, owner: Any, values: dict[str, Any] | Callable[[], dict[str, Any]], begun: bool = False) -> None:
        self._owner, self._values, self._before, self._begun = owner, values, list[dict[str, Any]](), False
        if begun:
            self.__enter__()
            self._begun = True

    def __enter__(self) -> Any:
        """Set the new values, and store the old ones."""
        if self._begun:
            self._begun = False
            return self
        values = self._values() if callable(self._values) else self._values
        self._before.append({name: getattr(self._owner, name) for name in values})
        self._take(values)
        return self

    def __exit__(self, *error: object) -> None:
        """Restore the old values."""
        self._take(self._before.pop())

    def _take(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            setattr(self._owner, name, value)
