"""Allocates uninitialised arrays by NumPy. The CPU backend has a pool of reused memory instead."""

from __future__ import annotations

from typing import Any

import numpy as np

empty = np.empty
empty_like = np.empty_like


def empty_cache() -> None:
    """Do nothing, since this backend has no pool."""


def statistics() -> dict[str, Any]:
    """Return an empty dict, since this backend counts nothing."""
    return {}
