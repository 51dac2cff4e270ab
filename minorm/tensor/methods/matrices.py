"""Triangles and diagonals of matrices, or of stacks of matrices."""

from __future__ import annotations

from typing import Any, Generic

import numpy as np

from minorm import devices
from minorm.ops import elementwise
from minorm.ops.operands import axis_of, check_room, operands
from minorm.ops.shape import MatrixDiagonal, Pad
from minorm.support.documented import documented_methods
from minorm.tensor.methods.choosing import Choosing
from minorm.tensor.shapes import TensorT

ARGUMENTS = {
    "diagonal": "the number of the diagonal: 0 is the main diagonal, and positive numbers are diagonals above it",
    "offset": "the number of the diagonal: 0 is the main diagonal, and positive numbers are diagonals above it",
    "dim1": "the axis of the rows",
    "dim2": "the axis of the columns",
}


@documented_methods(ARGUMENTS)
class Matrices(Choosing[TensorT], Generic[TensorT]):
    """Methods that select by row and column."""

    __slots__ = ()

    def tril(self, diagonal: int = 0) -> TensorT:
        """The lower triangle of each matrix, with 0 above the given diagonal.

        diagonal=0 is the main diagonal, and diagonal=1 is the next diagonal above.
        """
        return _triangle("tril", self, diagonal, upper=False)

    def triu(self, diagonal: int = 0) -> TensorT:
        """The upper triangle of each matrix, with 0 below the given diagonal.

        diagonal=0 is the main diagonal, and diagonal=1 is the next diagonal above.
        """
        return _triangle("triu", self, diagonal, upper=True)

    def diagonal(self, offset: int = 0, dim1: int = 0, dim2: int = 1) -> TensorT:
        """Return a view of the elements x[i, i + offset], where the indices are along dim1 and dim2. The elements are
        along the view's last axis.

        Example:
            >>> x = mn.tensor([[1, 2], [3, 4]])
            >>> x.diagonal(), x.diagonal(offset=1)
            (tensor([1, 4]), tensor([2]))
        """
        first, second = axis_of("diagonal", dim1, self), axis_of("diagonal", dim2, self)
        if first == second:
            raise ValueError(
                f"diagonal: dim1={dim1} and dim2={dim2} are the same axis of {self.shape}; expected two axes"
            )
        order = [i for i in range(self.ndim) if i not in (first, second)]
        offset = min(max(offset, -self.shape[first]), self.shape[second])  # empty beyond the edge
        return MatrixDiagonal.apply(self.permute(*order, first, second), offset=offset)

    def trace(self) -> TensorT:
        """Return the sum of the diagonal of a matrix."""
        if self.ndim != 2:
            raise ValueError(f"trace: x has shape {self.shape}; expected a matrix")
        diagonal: Any = self.diagonal()
        return diagonal.sum()

    def diag(self, diagonal: int = 0) -> TensorT:
        """Return the diagonal of x if x is a matrix. If x is a vector, return a matrix with x on the diagonal and 0
        elsewhere.
        """
        if self.ndim == 2:
            taken: Any = self.diagonal(diagonal)
            return taken.clone()
        if self.ndim != 1:
            raise ValueError(f"diag: x has shape {self.shape}; expected a vector or a matrix")
        return self.diag_embed(diagonal)

    def diag_embed(self, offset: int = 0, dim1: int = -2, dim2: int = -1) -> TensorT:
        """Make a matrix from each row of x, with the row on a diagonal and 0 elsewhere.

        The rows are along the last axis of x, and the matrices are along the axes dim1 and dim2 of the result. Raises
        ValueError if dim1 and dim2 are the same axis.

        Example:
            >>> mn.tensor([[1, 2], [3, 4]]).diag_embed().tolist()
            [[[1, 0], [0, 2]], [[3, 0], [0, 4]]]
        """
        if not self.ndim:
            raise ValueError(f"diag_embed: x has shape {self.shape}; expected at least one axis")
        n, before = self.shape[-1] + abs(offset), self.ndim + 1
        first, second = (dim + before if dim < 0 else dim for dim in (dim1, dim2))
        if first == second or not (0 <= first < before and 0 <= second < before):
            raise ValueError(
                f"diag_embed: dim1={dim1}, dim2={dim2}; expected two different axes of the result, which has {before} "
                f"axes; x.shape is {self.shape}"
            )
        check_room("diag_embed", (*self.shape[:-1], n, n))
        around = ((0, 0),) * (self.ndim - 1) + ((max(0, -offset), max(0, offset)),)
        column: Any = Pad.apply(self, widths=around, value=0).unsqueeze(-1)  # row i has the element of row i
        there = self.from_array(devices.constant_of(np.eye(n, k=offset, dtype=np.bool_), self.array))
        zero = self.from_array(devices.scalar(0, self.array.dtype, self.array))
        matrices: Any = elementwise.Where.apply(there, column, zero)
        return matrices.movedim((-2, -1), (first, second))


def _triangle(operation: str, x: Any, diagonal: int, upper: bool) -> Any:
    if x.ndim < 2:
        raise ValueError(f"{operation}: x has shape {x.shape}; expected a matrix, or a stack of them")
    rows, columns = x.shape[-2:]
    shift = max(-rows - 1, min(columns + 1, diagonal))
    lower = np.tri(rows, columns, shift - 1 if upper else shift, dtype=np.bool_)
    kept = x.from_array(devices.to_device_of(~lower if upper else lower, x.array))
    return elementwise.Where.apply(kept, *operands(operation, x, x.dtype.type(0)))
