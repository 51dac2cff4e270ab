"""Calls of functions whose defaults are a variant's."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def given(function: Callable[..., Any], args: Any, options: Any, **defaults: Any) -> inspect.BoundArguments:
    """The arguments of this call by name, with these in place of the function's own defaults."""
    signature = inspect.signature(function)
    bound = signature.bind(*args, **options)
    for name, value in defaults.items():
        if name in signature.parameters:
            bound.arguments.setdefault(name, value)
    return bound
