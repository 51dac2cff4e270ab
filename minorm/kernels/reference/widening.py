"""16-bit floats are stored in 16 bits and computed in 32: widen the arguments, round the result once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from minorm.devices import dtypes


def widened(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give `function` its 16-bit arrays as float32 and round its result back, once; a second result stays float32.

    Where the call has a `dtype`, the result is rounded to that instead.
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
