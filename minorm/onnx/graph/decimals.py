"""Recover the decimal that an author wrote from a float attribute, which a file holds as float32.

eps=1e-05 is 9.999999747378752e-06 in a file. With that number, a layer's variance + eps would sometimes round to
another float32 than in the exported layer, and training would no longer be bit-identical.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np


def shortest(number: float) -> float:
    """Return the shortest decimal with the same float32: 0.1 for 0.10000000149011612. NaN and infinities stay."""
    with np.errstate(over="ignore"):
        return float(str(np.float32(number)))


def changed(value: float | Sequence[float]) -> Iterator[tuple[float, float]]:
    """Yield the numbers of a float attribute that writing and reading a file would change, each with its new value."""
    for number in value if isinstance(value, (list, tuple)) else (value,):
        if (back := shortest(number)) != number and number == number:
            yield number, back
