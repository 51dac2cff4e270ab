"""Lab 2 varies the axis along which values lie, the number of values in the mean k, and the order of n, mean and M."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from minorm.labs.varied.choices import Variants, kinds, numbers


def _axis_texts(axis: int) -> tuple[str, ...]:
    """Return the pieces of the lab's text for a variant in which the values lie along this axis."""
    words = "the last axis" if axis < 0 else f"axis {axis}"
    move = f"\n    x = np.moveaxis(x, {axis}, 0)" if axis else ""
    tasks = (
        "2.1: the mean square less the squared mean",
        "2.2: the mean square of x - mean",
        "2.3: one value after the other",
        "2.4: the pieces, combined from left to right",
        "2.5: k, d and the variance around k",
    )
    return (
        f"values along {words}. There",
        f"mean(x)^2 over {words}",
        f"`np.array_split(x, pieces, {axis})`" if axis else "`np.array_split(x, pieces)`",
        f"np.abs(method(x{'.T' if axis else ''}) / right - 1)",
        *(f"# SOLUTION {task}{move}" for task in tasks),
    )


def _piece_texts(order: str) -> tuple[str, ...]:
    """Return the pieces of the lab's text for a variant that gives n, mean and M of a piece in this order."""

    def placed(**values: str) -> str:
        return ", ".join(values[name] for name in order.split(", "))

    joined = placed(n="n", mean="mean1 + delta * (n2 / n)", M="M1 + M2 + delta * delta * (n1 * n2 / n)")
    return (
        f"({order}) of two pieces",
        f"{placed(n='n1', mean='mean1', M='M1')} = first",
        f"{placed(n='n2', mean='mean2', M='M2')} = second",
        f"return {joined}",
        f"part = {placed(n='len(piece)', mean='mean', M='np.square(piece - mean).sum(axis=0)')}",
        f"{order} = whole",
    )


V = Variants(
    "lab02_stable_variance",
    axis=kinds("the axis of the values in x", {axis: _axis_texts(axis) for axis in (0, 1, -1)}),
    first=numbers(
        "the number of first values whose mean is k",
        ("4", "3", "5", "6"),
        "the first {word}",
        "the mean of {word} values",
        "x[:{}]",
    ),
    piece=kinds(
        "the parts of a piece, in order",
        {order: _piece_texts(order) for order in ("n, mean, M", "mean, M, n", "M, mean, n", "n, M, mean")},
    ),
)
ALONG = ("naive", "two_pass", "welford", "chan", "shifted")


def along(x: Any) -> Any:
    """Move the values of x from axis 0 to the variant's axis."""
    return x if V.axis == 0 else np.ascontiguousarray(np.moveaxis(x, 0, V.axis))


def piece(n: Any, mean: Any, M: Any) -> tuple[Any, ...]:
    """Return n, mean and M of a piece as a tuple in the variant's order."""
    values = {"n": n, "mean": mean, "M": M}
    return tuple(values[name] for name in V.piece.split(", "))


def parts_of(found: Any) -> Mapping[str, Any]:
    """Return a dict with n, mean and M from a tuple in the variant's order; this is the inverse of `piece`."""
    return dict(zip(V.piece.split(", "), found, strict=True))


def translated(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Adapt `function`, which is written for the plain lab, to the variant.

    The result converts arguments and answers.
    """

    def called(*args: Any, **options: Any) -> Any:
        if name in ALONG:
            return function(np.moveaxis(args[0], V.axis, 0), *args[1:], **options)
        if name == "combine":
            both = [parts_of(arg) for arg in args]
            answer = function(*((one["n"], one["mean"], one["M"]) for one in both))
            return piece(*answer) if isinstance(answer, tuple) and len(answer) == 3 else answer
        return function(*args, **options)

    return called
