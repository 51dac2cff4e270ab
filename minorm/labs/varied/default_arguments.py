"""Fills in a variant's default arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def given(function: Callable[..., Any], args: Any, options: Any, **defaults: Any) -> inspect.BoundArguments:
    """Return the arguments of the call function(*args, **options) by name.

    For missing arguments, `defaults` replace the function's own defaults.
    """
    signature = inspect.signature(function)
    bound = signature.bind(*args, **options)
    for name, value in defaults.items():
        if name in signature.parameters:
            bound.arguments.setdefault(name, value)
    return bound
