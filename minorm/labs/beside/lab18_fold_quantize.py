"""Lab 18: finds the packages that a student's function calls."""

from __future__ import annotations

from typing import Any

from minorm.labs.calling import borrowed


def packages(module: Any, name: str, given: list[Any]) -> list[str]:
    """Return the packages that it calls, except NumPy."""
    return borrowed.packages(getattr(module, name), *given)
