"""tril_indices and triu_indices return the indices of the elements in a triangle of a matrix."""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm import devices
from minorm.devices import dtypes
from minorm.ops.operands import check_room
from minorm.support.argument_errors import making
from minorm.support.argument_texts import MADE
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor

ARGUMENTS = MADE | {
    "row": "the number of rows of the matrix",
    "col": "the number of columns of the matrix",
    "offset": "the diagonal where the triangle ends: 0 is the main diagonal, positive numbers are diagonals above",
    "dtype": "the type of the indices; None is int64",
}


@documented(ARGUMENTS)
@making
def tril_indices(
    row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """Return the indices of the elements in the lower triangle, row by row.

    Row 0 of the result has the row numbers of the elements, and row 1 has their column numbers.

    Example:
        >>> mn.tril_indices(2, 3)
        tensor([[0, 1, 1],
                [0, 0, 1]])
    """
    return _places("tril_indices", np.tril_indices, (row, col, offset), dtype, device, requires_grad)


@documented(ARGUMENTS)
@making
def triu_indices(
    row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """Return the indices of the elements in the upper triangle, row by row.

    Row 0 of the result has the row numbers of the elements, and row 1 has their column numbers.

    Example:
        >>> mn.triu_indices(2, 3, offset=1)
        tensor([[0, 0, 1],
                [1, 2, 2]])
    """
    return _places("triu_indices", np.triu_indices, (row, col, offset), dtype, device, requires_grad)


def _places(
    operation: str, places: Any, form: tuple[int, int, int], dtype: Any, device: Any, requires_grad: bool
) -> Tensor:
    row, col, offset = form
    if min(row, col) < 0:
        raise ValueError(f"{operation}: row={row}, col={col}; expected numbers of at least 0")
    check_room(operation, (row, col))
    kind = dtypes.int64 if dtype is None else dtypes.check(dtype)
    found = np.stack(places(row, offset, col)).astype(kind)
    return Tensor(found if device is None else devices.to_device(found, device), requires_grad)
