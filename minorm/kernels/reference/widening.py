"""Computes 16-bit floats in float32: widens the arguments, and rounds the result once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from minorm.devices import dtypes


def widened(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that passes 16-bit arrays to `function` as float32, and rounds the result back to 16 bits once.

    If `function` returns several arrays, only the first is rounded. If the call has a `dtype`, the result is rounded to
    that type instead.
    """

    @functools.wraps(function)
    def run(*args: Any, dtype: Any = None, **kwargs: Any) -> Any:
        half = next((a.dtype for a in args if getattr(a, "dtype", None) in dtypes.HALVES), None)
        wanted = dtype or half
        if wanted is None:
            return function(*args, **kwargs)
        args = tuple(a.astype(np.float32) if half and getattr(a, "dtype", None) == half else a for a in args)
        result = function(*args, **kwargs)
        if isinstance(result, tuple):
            return result[0].astype(wanted), *result[1:]
        return result.astype(wanted, copy=False)

    return run
