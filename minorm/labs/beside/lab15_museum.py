"""Lab 15: finds the packages that a mended function calls."""

from __future__ import annotations

from typing import Any

from minorm.labs.calling import borrowed


def packages(module: Any, name: str, case: dict[str, Any]) -> list[str]:
    """Return the packages that it calls, except NumPy."""
    return borrowed.packages(getattr(module, name), **case)
