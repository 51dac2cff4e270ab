"""Float attributes: a file holds float32, its author wrote a decimal. `shortest` finds that decimal again.

eps=1e-05 is 9.999999747378752e-06 in a file. A layer that computed with that number would round some variance plus eps
to another float32 than the layer that was exported, and training would leave its bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np


def shortest(number: float) -> float:
    """The shortest decimal that names the same float32: 0.1 of 0.10000000149011612. NaN and infinities stay."""
    with np.errstate(over="ignore"):
        return float(str(np.float32(number)))


def changed(value: float | Sequence[float]) -> Iterator[tuple[float, float]]:
    """The numbers of a float attribute that come back from a file as others, each with what it becomes."""
    for number in value if isinstance(value, (list, tuple)) else (value,):
        if (back := shortest(number)) != number and number == number:
            yield number, back
