"""Finds where numbers belong in a sorted sequence, and whether the elements of a tensor occur in another tensor."""

from __future__ import annotations

from typing import Any

from minorm.devices import dtypes
from minorm.ops.operands import operands
from minorm.ops.stepwise import IsIn, SearchSorted
from minorm.support.argument_errors import checked
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor, as_tensor

ARGUMENTS = {
    "out_int32": "True returns int32, False returns int64",
    "right": "True returns the index after all numbers that equal input, False the index of the first such number",
}


@documented(
    ARGUMENTS,
    sorted_sequence="numbers in ascending order along the last axis: a vector, or a row for each row of input",
    input="the numbers to search for, a Tensor or a number",
    side='"left" or "right", the same as right=False and right=True',
    sorter="integers that sort sorted_sequence along the last axis; None if it is sorted",
)
@checked
def searchsorted(
    sorted_sequence: Tensor, input: Any, *, out_int32: bool = False, right: bool = False, side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Return the indices at which the numbers of `input` belong in a sorted sequence. NaN belongs at the end.

    Raises ValueError if sorted_sequence and input have different numbers of rows.

    Example:
        >>> mn.searchsorted(mn.tensor([1, 3, 5]), mn.tensor([3, 4]))
        tensor([1, 2])
        >>> mn.searchsorted(mn.tensor([1, 3, 5]), mn.tensor([3, 4]), right=True)
        tensor([2, 2])
    """
    if side not in (None, "left", "right") or (side == "left" and right):
        raise ValueError(
            f"searchsorted: side is {side!r}, right is {right}; expected 'left' with right=False, or 'right'"
        )
    if sorter is not None:
        sorted_sequence = sorted_sequence.gather(-1, sorter)
    order, x = operands("searchsorted", sorted_sequence, input, broadcast=False)
    if order.ndim != 1 and (order.ndim == 0 or order.shape[:-1] != x.shape[:-1] or x.ndim != order.ndim):
        raise ValueError(
            f"searchsorted: sorted_sequence has shape {order.shape}, input {x.shape}; expected a vector, or shapes "
            "that are equal except along the last axis"
        )
    return _searched(order, x, right or side == "right", out_int32)


@documented(
    ARGUMENTS,
    input="a Tensor or a number",
    boundaries="a vector of numbers in ascending order",
)
@checked
def bucketize(input: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """y = i where boundaries[i - 1] < input <= boundaries[i]. With right=True, `<` and `<=` are exchanged.

    Example:
        >>> mn.bucketize(mn.tensor([0.5, 1.0, 7.0]), mn.tensor([1.0, 5.0]))
        tensor([0, 0, 2])
    """
    x, order = operands("bucketize", input, boundaries, broadcast=False)
    if order.ndim != 1:
        raise ValueError(f"bucketize: boundaries has shape {order.shape}; expected a vector")
    return _searched(order, x, right, out_int32)


def _searched(order: Any, x: Any, right: bool, out_int32: bool) -> Tensor:
    found: Tensor = SearchSorted.apply(order, x, right=right, dtype=dtypes.int32 if out_int32 else dtypes.int64)
    return found


@documented(
    {},
    elements="a Tensor or a number",
    test_elements="the numbers to search, a Tensor or a number",
    assume_unique="accepted but ignored: numbers may always occur several times",
    invert="True inverts the result",
)
@checked
def isin(elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> Tensor:  # noqa: ARG001
    """Return True where an element of `elements` occurs among test_elements. The result has the shape of `elements`.

    Example:
        >>> mn.isin(mn.tensor([1, 2, 3]), mn.tensor([3, 1]))
        tensor([ True, False,  True])
    """
    x = elements if isinstance(test_elements, Tensor) else as_tensor(elements)
    found: Tensor = IsIn.apply(*operands("isin", x, test_elements, broadcast=False))
    return ~found if invert else found
