"""Lab 4: calls a function and returns its arguments, because only this process can see whether they changed."""

from __future__ import annotations

from typing import Any


def kept(module: Any, mean: Any, var: Any, x: Any) -> tuple[Any, ...]:
    """Call the student's `update`, and return its arguments as they are after the call."""
    module.update(mean, var, x, 0.5)
    return mean, var, x
