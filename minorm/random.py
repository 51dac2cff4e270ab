"""The one random generator: initialisation, dropout and shuffling draw from it, `manual_seed` resets it.

Its state is a plain dict of integers, so that a checkpoint can hold it and a resumed run draws the same numbers.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from minorm.mistakes import checked


@functools.cache
def generator() -> np.random.Generator:
    """The generator itself, for whatever draws; made when first asked for, as numpy.random is slow to import."""
    return np.random.Generator(np.random.PCG64())


@checked
def manual_seed(seed: int) -> None:
    """Restart the generator from `seed`; the same seed gives the same numbers on every machine."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ValueError(f"manual_seed: seed must be a non-negative int; got {seed!r}")
    generator().bit_generator.state = np.random.PCG64(int(seed)).state


def get_state() -> dict[str, Any]:
    """The generator's state, as nested dicts of strings and integers."""
    return dict(generator().bit_generator.state)


def set_state(state: dict[str, Any]) -> None:
    """Put back what `get_state` returned."""
    generator().bit_generator.state = state
