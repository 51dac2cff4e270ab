"""Computes a chain of maps, one map after the other; the kernels compute the chain in one pass over memory.

links = (Link("div", 0, 1), Link("erf", 2))     # erf(a / b) of the operands (a, b)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from minorm.kernels.reference import elementwise

LONGEST = 4096  # the most elements of a repeated row; a few such rows must fit into the first-level cache
MOST_LINKS = 16


class Link(NamedTuple):
    """One map of a chain.

    a and b are the numbers of the map's sources. First the operands are numbered, and then the maps.
    """

    operation: str
    a: int
    b: int | None = None
    option: float | None = None


def chain(links: Sequence[Link], operands: Sequence[Any], shape: tuple[int, ...], maps: Any = elementwise) -> Any:
    """Apply the maps `links` one after the other. Return the last result, which has the shape `shape`.

    The operands have the same type, and they broadcast.

    maps    has a function for each map
    """
    sources = list(operands)
    for link in links:
        given = [sources[link.a], *([] if link.b is None else [sources[link.b]])]
        if link.operation == "div":
            sources.append(np.divide(*given))
        elif link.operation == "gelu_tanh":
            sources.append(maps.gelu(*given, "tanh"))
        else:
            option = [] if link.option is None else [link.option]
            sources.append(getattr(maps, link.operation)(*given, *option))
    assert sources[-1].shape == shape, (sources[-1].shape, shape)
    return sources[-1]
