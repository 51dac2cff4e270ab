"""Makes a switch of kernels/switches.py an attribute of a class or module, to be read and set."""

from __future__ import annotations

import sys
import types
from typing import Any

from minorm.kernels import switches


def switch(name: str, public: str) -> Any:
    """Return a property for a bool switch; setting it to anything else is a TypeError that names it as `public`."""

    def get(self: Any) -> bool:  # noqa: ARG001
        return bool(getattr(switches, name))

    def put(self: Any, value: bool) -> None:  # noqa: ARG001
        if not isinstance(value, bool):
            raise TypeError(f"{public} is {value!r}, of type {type(value).__name__}; expected True or False")
        setattr(switches, name, value)

    return property(get, put)


def with_switches(module: str, **properties: Any) -> None:
    """Give a module these properties through a new type, as a module itself cannot have properties."""
    sys.modules[module].__class__ = type("module", (types.ModuleType,), properties)
