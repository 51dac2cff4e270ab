"""Lab 4: returns the arguments of a function after a call, which only its own process can see."""

from __future__ import annotations

from typing import Any


def kept(module: Any, mean: Any, var: Any, x: Any) -> tuple[Any, ...]:
    """Return the arguments after a call of update."""
    module.update(mean, var, x, 0.5)
    return mean, var, x
