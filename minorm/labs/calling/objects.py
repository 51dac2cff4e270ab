"""Turns what layers and ranks hand to a student's functions into names and parts that can be sent (see wire).

The judge runs the layers and gives a nest, an equation and statistics to the student's function, wherever that runs. It
takes back only statistics, and checks their type and shape before a kernel sees them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minorm.kernels.protocol import Statistics
from minorm.labs.calling.followed_array import FollowedArray
from minorm.labs.calling.wire import TYPES, Makers, Packers
from minorm.normalization.equation import Equation
from minorm.normalization.nest import Axis, Loop, Nest


class Callback:
    """A function of the judge's, by name: the student's code can call it but cannot see it."""

    def __init__(self, name: str) -> None:
        self.name = name


FOLLOW = "follow"  # what a followed array asks for


class Followed:
    """An array whose numbers stay with the judge (see minorm/labs/following), by its number, shape and type."""

    def __init__(self, number: int, shape: tuple[int, ...] = (), dtype: str = "") -> None:
        self.number, self.shape, self.dtype = number, shape, dtype


class RankReference:
    """A rank's number and the number of all ranks. The student's code gets a rank that asks the judge."""

    def __init__(self, number: int, size: int) -> None:
        self.number, self.size = number, size


def _nest(parts: Any) -> Nest:
    keep, reduce, axes, order, rows, columns, param_size, param_order, code = parts
    keep, reduce = (tuple(Loop(*loop) for loop in loops) for loops in (keep, reduce))
    axes = tuple(Axis(*axis) for axis in axes)
    return Nest(keep, reduce, axes, order, rows, columns, param_size, param_order, bytes.fromhex(code))


def statistics(block: Any) -> Statistics:
    """Make Statistics from a received block: four rows of float64, or the number of a followed array."""
    if isinstance(block, Followed):
        return Statistics(block)
    if not isinstance(block, np.ndarray) or block.dtype != np.float64 or block.ndim != 2 or len(block) != 4:
        raise ValueError("expected statistics as four vectors of float64")
    return Statistics(np.ascontiguousarray(block))


def as_bytes(data: bytes) -> Any:
    """Return bytes as an array, which can be sent."""
    return np.frombuffer(data, np.uint8)


SENT: Packers = {
    Nest: ("nest", lambda n: (
        n.keep, n.reduce, n.axes, n.order, n.rows, n.columns, n.param_size, n.param_order, n.code.hex(),
    )),
    Equation: ("equation", lambda e: (e.eps, e.centered, e.guard)),
    Statistics: ("statistics", lambda s: s.block),
    np.dtype: ("dtype", str),
    Callback: ("callback", lambda function: function.name),
    RankReference: ("rank", lambda rank: (rank.number, rank.size)),
    Followed: ("followed", lambda array: (array.number, array.shape, array.dtype)),
    FollowedArray: ("followed", lambda array: array.number),
}  # fmt: skip
TAKEN_BACK: Makers = {
    "statistics": statistics,
    "followed": Followed,
}  # all that the judge makes of a stranger's message


def made_for_students(function: Callable[[str], Any], rank: Callable[[int, int], Any]) -> Makers:
    """Return the makers of a student's process: `function` takes a Callback's name, `rank` a RankReference's parts."""
    return {
        **TAKEN_BACK,
        "followed": lambda parts: FollowedArray(function(FOLLOW), *parts),
        "statistics": Statistics,
        "nest": _nest,
        "equation": lambda parts: Equation(*parts),
        "dtype": TYPES.__getitem__,
        "callback": function,
        "rank": lambda parts: rank(*parts),
    }
