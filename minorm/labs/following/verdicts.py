"""Checks a follower's list: which functions ran, in which types, over which rows, with how much work.

Each function raises Wrong, and the message names the operation that it saw.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from minorm.labs.calling.wire import leaves
from minorm.labs.comparing import Wrong
from minorm.labs.following.follower import Follower
from minorm.labs.following.listed import Event, Value

VARIANCES = ("var", "std", "nanvar", "nanstd", "cov", "corrcoef")
WORK = 300  # numbers computed for each number given: a gradient takes a few dozen, finite differences more


def same_answer(followed: Any, plain: Any, what: str) -> None:
    """Raise Wrong if the function computes other numbers when it is followed."""
    for one, other in zip(leaves([followed]), leaves([plain]), strict=True):
        first, second = np.asarray(one), np.asarray(other)
        if first.dtype != second.dtype or not np.array_equal(first, second, equal_nan=first.dtype.kind == "f"):
            raise Wrong(
                what, "the same numbers with and without the check's tracing",
                "other numbers when the check traces each operation; does the code depend on the type of its "
                "argument?",
            )  # fmt: skip


def no_variance(follow: Follower, what: str) -> None:
    """Raise Wrong if the function called NumPy's var, std or a similar function."""
    for event in follow.events:
        if event.name.removeprefix("np.").removeprefix(".") in VARIANCES:
            called = event.name if event.name.startswith("np.") else f"x{event.name}"
            raise Wrong(what, "the formula in your own code", f"{called}() was called; write the update yourself")


def types(follow: Follower, allowed: Iterable[str], what: str, why: str = "") -> None:
    """Raise Wrong unless all results that depend on the data have one of the types in `allowed`.

    Truth values are always allowed.
    """
    names = list(allowed)
    for event in follow.events:
        seen = [name for name in event.types if name not in (*names, "bool")]
        if seen and event.depends:
            raise Wrong(
                what, f"all intermediate results in {' or '.join(names)}{why}", f"a result of {event.name} in {seen[0]}"
            )


def not_centered_in(follow: Follower, wide: str, rows: int, what: str, words: str) -> None:
    """Raise Wrong if a subtraction gives more than `rows` numbers in the type `wide`.

    Other operations, such as sums, may use this type.
    """
    for event in follow.events:
        if event.name in ("-", "-=", "np.subtract") and event.depends and wide in event.types:
            size = max(np.size(value.value) for value in event.outputs)
            if size > rows:
                raise Wrong(what, words, f"{event.name} of {size} numbers in {wide}")


def rounded_once(follow: Follower, wide: str, narrow: str, what: str) -> None:
    """Raise Wrong unless y is computed in the wide type and rounded only once, at the end."""
    rounded: dict[int, str] = {}
    for event in follow.leading_to(follow.answers[:1]):
        floats = [name for name in event.types if name not in ("bool", "int32", "int64")]
        if event.kind == "computed" and event.depends:
            other = next((name for name in floats if name != wide), None)
            if other is not None:
                raise Wrong(what, f"all intermediate results of y in {wide}", f"a result of {event.name} in {other}")
            again = next((rounded[id(value.buffer)] for value in event.inputs if id(value.buffer) in rounded), None)
            if again is not None:
                raise Wrong(
                    what, f"y rounded to {narrow} once, at the end", f"{again} rounded to {narrow} before {event.name}"
                )
        elif event.kind == "moved" and event.depends and narrow != wide:
            from_wide = any(str(value.value.dtype) == wide for value in event.inputs)
            before = next((rounded[id(value.buffer)] for value in event.inputs if id(value.buffer) in rounded), None)
            for value in event.outputs:
                if before or (from_wide and str(value.value.dtype) == narrow):
                    rounded[id(value.buffer)] = before or event.name
            other = next((name for name in floats if name not in (wide, narrow, "float16", "bfloat16", "float32")), "")
            if other:
                raise Wrong(what, f"all intermediate results of y in {wide}", f"a result of {event.name} in {other}")


def work(follow: Follower, given: int, what: str) -> None:
    """Raise Wrong if the function computed far more numbers than a backward pass needs."""
    done = sum(
        max(np.size(value.value) for value in (*event.inputs, *event.outputs))
        for event in follow.events
        if event.kind == "computed"
    )
    if done > WORK * given:
        raise Wrong(
            what, "a backward pass, with a few operations per element",
            f"{done:,} computed numbers for {given} elements, which looks like finite differences; walk back through "
            "the graph instead",
        )  # fmt: skip


def blocks_apart(follow: Follower, ends: Sequence[int], what: str, called: str) -> None:
    """Raise Wrong if one operation reads rows of two blocks.

    `ends` has, for each block, the first row after the block.
    """
    for event, (first, last), _ in _reads(follow):
        if np.searchsorted(ends, first, "right") != np.searchsorted(ends, last, "right"):
            raise Wrong(what, called, f"{event.name} read values {first} to {last} of x at once")


def one_pass(follow: Follower, rows: int, columns: int, what: str) -> None:
    """Raise Wrong unless the function reads each value once, in order, and keeps few numbers from earlier values."""
    blocks_apart(follow, range(1, rows + 1), what, "one value after the other")
    at = np.full(columns, -1)
    turns = []
    for event, (row, _), (first, last) in _reads(follow):
        newest = at[first : last + 1]
        if (newest > row).any():
            seen = f"{event.name} read value {row} after value {int(newest.max())}"
            raise Wrong(what, "each value once, because a sensor shows it only once", seen)
        if (newest < row).any():
            turns.append(event.place)
        at[first : last + 1] = row
    most = 8 * columns
    buffers = {value.buffer for event in follow.events for value in (*event.inputs, *event.outputs)}
    kept = [buffer for buffer in buffers if buffer.depends and not buffer.rows]
    for turn in turns:
        held = sum(buffer.size for buffer in kept if buffer.born < turn <= buffer.read)
        if held > most:
            raise Wrong(
                what, "only a count, a mean and M are kept from one value to the next",
                f"{held} numbers are kept for {columns} {'column' if columns == 1 else 'columns'}",
            )  # fmt: skip


def _reads(follow: Follower) -> list[tuple[Event, tuple[int, int], tuple[int, int]]]:
    """Return the operations that read the data.

    Each comes with the (first, last) row and the (first, last) column that it read.
    """
    found = []
    for event in follow.events:
        whole = event.kind == "moved" and any(value.buffer.rows for value in event.outputs)  # a copy of all the data
        if event.kind in ("computed", "moved") and not whole:
            read: list[Value] = [value for value in event.inputs if value.buffer.rows and value.rows is not None]
            spans = [value.rows for value in read if value.rows is not None]
            if spans:
                rows = min(first for first, _ in spans), max(last for _, last in spans)
                columns = min(value.columns[0] for value in read), max(value.columns[1] for value in read)
                found.append((event, rows, columns))
    return found


def formed(follow: Follower, choices: Sequence[Any], what: str, words: str, rtol: float = 1e-4) -> None:
    """Raise Wrong unless the operations gave the expected numbers up to their signs.

    For each position, an operation must have given the number that one of the arrays in `choices` has at this position.
    """
    seen = [event.numbers for event in follow.leading_to() if event.kind in ("computed", "moved")]
    numbers = np.sort(np.abs(np.concatenate([np.zeros(0), *seen])))
    numbers = numbers[np.isfinite(numbers)]
    for alternatives in zip(*(np.abs(np.ravel(choice)) for choice in choices), strict=True):
        if not any(_among(numbers, number, rtol) for number in alternatives):
            raise Wrong(what, words, f"no operation before the answer gave {alternatives[0]:.5g}, one of these numbers")


def _among(ordered: Any, number: float, rtol: float) -> bool:
    place = np.searchsorted(ordered, number)
    return bool((np.abs(ordered[max(place - 1, 0) : place + 1] - number) <= rtol * number + 1e-6).any())
