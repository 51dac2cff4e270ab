"""Makes a switch of kernels/switches.py an attribute of a class or module, which users can read and set."""

from __future__ import annotations

import sys
import types
from typing import Any

from minorm.kernels import switches


def switch(name: str, public: str) -> Any:
    """Return a property that reads and sets the bool switch `name`.

    A value that is not a bool raises a TypeError, in which the switch is called `public`.
    """

    def get(self: Any) -> bool:  # noqa: ARG001
        return bool(getattr(switches, name))

    def put(self: Any, value: bool) -> None:  # noqa: ARG001
        if not isinstance(value, bool):
            raise TypeError(f"{public} is {value!r}, of type {type(value).__name__}; expected True or False")
        setattr(switches, name, value)

    return property(get, put)


def with_switches(module: str, **properties: Any) -> None:
    """Give the module `module` properties.

    A module itself cannot have properties, so the type of the module is changed.
    """
    sys.modules[module].__class__ = type("module", (types.ModuleType,), properties)
