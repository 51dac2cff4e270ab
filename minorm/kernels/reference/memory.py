"""Allocates uninitialised arrays by NumPy; the CPU backend takes them from a pool of reused memory."""

from __future__ import annotations

from typing import Any

import numpy as np

empty = np.empty
empty_like = np.empty_like


def empty_cache() -> None:
    """Do nothing: there is no pool to empty."""


def statistics() -> dict[str, Any]:
    """Return no statistics: nothing is counted."""
    return {}
