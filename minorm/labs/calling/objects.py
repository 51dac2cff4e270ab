"""Encodes objects, which layers and ranks pass to a student's functions, as a name and parts (see wire).

The judge runs the layers and gives a loop nest, an equation (eps and centering) and statistics to the student's
function, which may run in another process. The judge takes back only statistics, and checks the type and shape of these
statistics before a kernel sees them.
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
    """Stands for a function of the judge's: the student's code can call it by name but cannot see it."""

    def __init__(self, name: str) -> None:
        self.name = name


FOLLOW = "follow"  # what a followed array asks for


class Followed:
    """Stands for an array whose numbers stay with the judge (see minorm/labs/following).

    The stand-in has the number that identifies the array, and the array's shape and type.
    """

    def __init__(self, number: int, shape: tuple[int, ...] = (), dtype: str = "") -> None:
        self.number, self.shape, self.dtype = number, shape, dtype


class RankReference:
    """Stands for a rank in a message: the rank's number and the number of ranks.

    From these two numbers, the student's process makes a rank whose collectives ask the judge.
    """

    def __init__(self, number: int, size: int) -> None:
        self.number, self.size = number, size


def _nest(parts: Any) -> Nest:
    keep, reduce, axes, order, rows, columns, param_size, param_order, code = parts
    keep, reduce = (tuple(Loop(*loop) for loop in loops) for loops in (keep, reduce))
    axes = tuple(Axis(*axis) for axis in axes)
    return Nest(keep, reduce, axes, order, rows, columns, param_size, param_order, bytes.fromhex(code))


def statistics(block: Any) -> Statistics:
    """Make Statistics from a received block, which is either four rows of float64 or a followed array."""
    if isinstance(block, Followed):
        return Statistics(block)
    if not isinstance(block, np.ndarray) or block.dtype != np.float64 or block.ndim != 2 or len(block) != 4:
        raise ValueError("expected statistics as four vectors of float64")
    return Statistics(np.ascontiguousarray(block))


def as_bytes(data: bytes) -> Any:
    """Return bytes as an array of uint8, because messages can hold arrays."""
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
    """Return, for each kind of received object, the function that rebuilds it in a student's process.

    `function` turns the name of a Callback into a function. `rank` turns two numbers, the rank's and that of all ranks,
    into a rank.
    """
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
