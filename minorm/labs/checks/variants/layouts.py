"""Changes the order of the axes of x, which labs 1, 3 and 4 vary."""

from __future__ import annotations

from typing import Any

import numpy as np


def laid(x: Any, layout: str) -> Any:
    """Move the axes of x from the order (N, C, *positions) to the order `layout`."""
    if layout == "NC...":
        return x
    return np.ascontiguousarray(np.moveaxis(x, 1, -1) if layout == "N...C" else np.swapaxes(x, 0, 1))


def plain(x: Any, layout: str) -> Any:
    """Move the axes of x from the order `layout` back to (N, C, *positions)."""
    if layout == "NC...":
        return x
    return np.ascontiguousarray(np.moveaxis(x, -1, 1) if layout == "N...C" else np.swapaxes(x, 0, 1))
