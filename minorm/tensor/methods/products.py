"""Products of vectors and matrices. Each method checks the number of axes, and then computes x @ y."""

from __future__ import annotations

from typing import Any, Generic

from minorm.support.documented import documented_methods
from minorm.tensor.operators import Operators
from minorm.tensor.shapes import TensorT

ARGUMENTS = {
    "tensor": "a vector of x's length",
    "vec": "a vector as long as a row of x",
    "vec2": "a vector",
    "mat2": "a matrix with one row for each column of x",
    "bmm.mat2": "a stack as long as x; its matrices have as many rows as those of x have columns",
    "mat1": "a matrix",
    "addmm.mat2": "a matrix with one row for each column of mat1",
    "batch1": "a stack of matrices",
    "batch2": "a stack as long as batch1; its matrices have as many rows as those of batch1 have columns",
    "beta": "the factor of x; if it is 0, x is not read",
    "alpha": "the factor of the product",
}


@documented_methods(ARGUMENTS)
class Products(Operators[TensorT], Generic[TensorT]):
    """The methods dot, mv, mm, bmm, outer, addmm and baddbmm."""

    __slots__ = ()

    def dot(self, tensor: Any) -> TensorT:
        """The sum of x[i] * tensor[i] over two vectors of equal length."""
        return _product("dot", self, tensor, 1, 1)

    def mv(self, vec: Any) -> TensorT:
        """y[i] = sum_j x[i, j] * vec[j]: the matrix x times a vector."""
        return _product("mv", self, vec, 2, 1)

    def mm(self, mat2: Any) -> TensorT:
        """y[i, k] = sum_j x[i, j] * mat2[j, k]: the matrix x times a matrix."""
        return _product("mm", self, mat2, 2, 2)

    def bmm(self, mat2: Any) -> TensorT:
        """y[i] = x[i] @ mat2[i] for two stacks with the same number of matrices."""
        if self.ndim == 3 and getattr(mat2, "ndim", 0) == 3 and self.shape[0] != mat2.shape[0]:
            raise ValueError(f"bmm: x is {self.shape}, mat2 is {mat2.shape}; expected equal numbers of matrices")
        return _product("bmm", self, mat2, 3, 3)

    def outer(self, vec2: Any) -> TensorT:
        """y[i, j] = x[i] * vec2[j]"""
        _axes("outer", self, vec2, 1, 1)
        return self.unsqueeze(1) * vec2

    def addmm(self, mat1: Any, mat2: Any, *, beta: float = 1, alpha: float = 1) -> TensorT:
        """beta * x + alpha * (mat1 @ mat2)

        Example:
            >>> mn.ones(1, 1).addmm(mn.tensor([[2.0]]), mn.tensor([[3.0]]), beta=10)
            tensor([[16.]])
        """
        product = _product("addmm", mat1, mat2, 2, 2)
        scaled = product if alpha == 1 else product * alpha
        return scaled if beta == 0 else (self if beta == 1 else self * beta) + scaled

    def baddbmm(self, batch1: Any, batch2: Any, *, beta: float = 1, alpha: float = 1) -> TensorT:
        """beta * x + alpha * (batch1 @ batch2), matrix by matrix

        Example:
            >>> mn.ones(1, 1, 1).baddbmm(mn.tensor([[[2.0]]]), mn.tensor([[[3.0]]]), beta=10)
            tensor([[[16.]]])
        """
        product = _product("baddbmm", batch1, batch2, 3, 3)
        scaled = product if alpha == 1 else product * alpha
        return scaled if beta == 0 else (self if beta == 1 else self * beta) + scaled


def _axes(operation: str, a: Any, b: Any, first: int, second: int) -> None:
    if a.ndim != first or getattr(b, "ndim", -1) != second:
        names = ("no", "one axis", "2 axes (a matrix)", "3 axes (a stack of matrices)")
        raise ValueError(
            f"{operation}: x is {a.shape}, y is {getattr(b, 'shape', type(b).__name__)}; expected {names[first]} and "
            f"{names[second]}; x @ y multiplies tensors of all these forms"
        )


def _product(operation: str, a: Any, b: Any, first: int, second: int) -> Any:
    _axes(operation, a, b, first, second)
    return a @ b
