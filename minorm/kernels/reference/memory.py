"""Uninitialised arrays: what the CPU backend serves from a pool of reused memory is NumPy's own allocation here."""

from __future__ import annotations

from typing import Any

import numpy as np

empty = np.empty
empty_like = np.empty_like


def empty_cache() -> None:
    """Nothing is kept, so there is nothing to give back."""


def statistics() -> dict[str, Any]:
    """Nothing is counted."""
    return {}
