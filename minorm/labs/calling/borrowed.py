"""Finds the packages that a function calls, because a check that asks for arithmetic refuses calls of a library."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

from minorm.labs.calling import submission

OWN = frozenset({*sys.stdlib_module_names, "numpy", "__main__", submission.NAME})
OURS = "minorm.labs.calling.", "minorm.labs.checks."  # around a student's functions, or in the place of a wrong one


def packages(function: Callable[..., Any], *args: Any, **options: Any) -> list[str]:
    """Return the packages that a call enters, sorted by name, except NumPy and Python's standard library."""
    found = set()

    def look(frame: FrameType, event: str, called: Any) -> None:
        if event == "call":
            found.add(str(frame.f_globals.get("__name__", "")))
        elif event == "c_call":
            owner = getattr(called, "__self__", None)
            found.update(str(name) for name in (getattr(called, "__module__", None), type(owner).__module__) if name)

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        function(*args, **options)
    finally:
        sys.setprofile(before)
    entered = {name.split(".")[0] for name in found if not name.startswith(OURS)}
    return sorted(entered & set(sys.modules) - OWN)  # a namedtuple's module name is not a module


def packages_of(module: Any, name: str, args: Sequence[Any], options: Mapping[str, Any]) -> list[str]:
    """Return the packages that a call of the module's function enters.

    The module that a lab has in minorm/labs/beside imports this function.
    """
    return packages(getattr(module, name), *args, **options)
