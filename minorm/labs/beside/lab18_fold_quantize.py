"""Lab 18: which packages a student's function calls."""

from __future__ import annotations

from typing import Any

from minorm.labs.calling import borrowed


def packages(module: Any, name: str, given: list[Any]) -> list[str]:
    """Beside NumPy."""
    return borrowed.packages(getattr(module, name), *given)
