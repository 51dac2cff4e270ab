"""Lab 15: which packages a mended function calls."""

from __future__ import annotations

from typing import Any

from minorm.labs.calling import borrowed


def packages(module: Any, name: str, case: dict[str, Any]) -> list[str]:
    """Beside NumPy."""
    return borrowed.packages(getattr(module, name), **case)
