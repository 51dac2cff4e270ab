"""Elements put at places of a copy: scatter and index_add, and their kin."""

from __future__ import annotations

from typing import Any, Generic

import numpy as np

from minorm import devices
from minorm.devices import dtypes
from minorm.kernels import select
from minorm.ops import scatter
from minorm.ops.indexing import own
from minorm.ops.operands import axis_of
from minorm.support.argument_texts import AXIS
from minorm.support.documented import documented_methods
from minorm.tensor.operators import Operators
from minorm.tensor.shapes import TensorT

REDUCTIONS = {"none": "none", "add": "add", "multiply": "mul", "mul": "mul", "min": "min", "max": "max"}

ARGUMENTS = {
    "dim": AXIS,
    "index": "integers, the places along `dim`",
    "source": "the elements to put there, with x's axes",
    "src": "the elements to put there, a Tensor at least as long as index on every axis, of x's type",
    "scatter.src": "the elements to put there, a Tensor at least as long as index on every axis, or a number",
    "value": "the number to put there",
    "scatter.value": "a number to put there, where src is None",
    "reduce": 'how what is there and what comes are combined: "add" or "multiply"; None replaces it',
    "alpha": "what source is multiplied with before",
}


@documented_methods(ARGUMENTS)
class Scattering(Operators[TensorT], Generic[TensorT]):
    """What puts elements at places, or combines them with what is there."""

    __slots__ = ()

    def scatter(
        self, dim: int, index: Any, src: Any = None, *, value: Any = None, reduce: str | None = None
    ) -> TensorT:
        """y = x, but y[index[i, j], j] = src[i, j] for dim 0, and so on.

        Where several come to one place the last one counts, unless they are combined. ValueError for an index that is
        longer than src, and for places that are not there.

        Example:
            >>> mn.zeros(3).scatter(0, mn.tensor([2, 0]), mn.tensor([5.0, 6.0]))
            tensor([6., 0., 5.])
            >>> mn.zeros(3).scatter(0, mn.tensor([2]), value=1.0)
            tensor([0., 0., 1.])
        """
        given = value if src is None else src
        if not hasattr(given, "from_array"):
            given = self.from_array(select.as_array(np.full(index.shape, given, self.array.dtype)))
            given = given.to(devices.device_of(self.array))
        return put_along("scatter", self, dim, index, given, reduce or "none")

    def scatter_add(self, dim: int, index: Any, src: Any) -> TensorT:
        """y = x, and then y[index[i, j], j] += src[i, j] for dim 0, and so on.

        Example:
            >>> mn.zeros(3).scatter_add(0, mn.tensor([2, 2]), mn.tensor([5.0, 6.0]))
            tensor([ 0.,  0., 11.])
        """
        return put_along("scatter_add", self, dim, index, src, "add")

    def index_add(self, dim: int, index: Any, source: Any, *, alpha: float = 1) -> TensorT:
        """y = x, and then y[index[i]] += alpha * source[i] for dim 0, and so on.

        Example:
            >>> mn.zeros(3).index_add(0, mn.tensor([2, 2]), mn.tensor([5.0, 6.0]))
            tensor([ 0.,  0., 11.])
        """
        return _slices("index_add", self, dim, index, source if alpha == 1 else source * alpha, "add")

    def index_copy(self, dim: int, index: Any, source: Any) -> TensorT:
        """y = x, but y[index[i]] = source[i] for dim 0, and so on.

        Example:
            >>> mn.zeros(3).index_copy(0, mn.tensor([2, 0]), mn.tensor([5.0, 6.0]))
            tensor([6., 0., 5.])
        """
        return _slices("index_copy", self, dim, index, source, "none")

    def index_fill(self, dim: int, index: Any, value: Any) -> TensorT:
        """y = x, but y[index[i]] = value for dim 0, and so on.

        Example:
            >>> mn.zeros(3).index_fill(0, mn.tensor([2, 0]), 1.0)
            tensor([1., 0., 1.])
        """
        if self.ndim == 0:
            one: Any = self.reshape(1)
            return one.index_fill(0, index, value).reshape(())
        axis = axis_of("index_fill", dim, self)
        with devices.on_device_of(self.array):
            there = np.zeros_like(self.array, np.bool_, shape=(self.shape[axis],))
            there[own(devices.to_device(index.array, devices.device_of(self.array)))] = True
        mask = self.from_array(there)
        x: Any = self
        return x.masked_fill(mask.reshape(-1, *(1,) * (self.ndim - axis - 1)), value)


def put_along(operation: str, x: Any, dim: int, index: Any, src: Any, reduction: str) -> Any:
    """y = x with src[i, j] put at, or combined with, y[index[i, j], j] for dim 0, and so on."""
    kind = put_by(operation, x, index, src, reduction)
    if x.ndim == 0 and dim in (0, -1):
        flat = put_along(operation, x.reshape(1), 0, index.reshape(-1), src.reshape(-1), reduction)
        return flat.reshape(())
    axis = axis_of(operation, dim, x)
    if index.ndim == src.ndim and all(m <= n for m, n in zip(index.shape, src.shape, strict=True)):
        src = src[tuple(slice(0, n) for n in index.shape)] if index.shape != src.shape else src
    if index.shape != src.shape:
        raise ValueError(f"{operation}: index has shape {index.shape}, src {src.shape}; expected equal shapes")
    if index.ndim != x.ndim or any(
        m > n for i, (n, m) in enumerate(zip(x.shape, index.shape, strict=True)) if i != axis
    ):
        raise ValueError(
            f"{operation}: index has shape {index.shape}, x {x.shape}; expected as many axes, and no longer ones but "
            f"along {axis}"
        )
    inside(operation, index.array, x.shape[axis], x)
    return scatter.ScatterElements.apply(x, index, src, reduction=kind, axis=axis)


def put_by(operation: str, x: Any, index: Any, src: Any, reduction: str) -> str:
    """The reduction as the Functions name it; raise where it is none, and where the types do not fit."""
    if reduction not in REDUCTIONS:
        raise ValueError(f"{operation}: reduction is {reduction!r}; expected one of {', '.join(REDUCTIONS)}")
    if index.dtype.kind not in "iu":
        raise TypeError(f"{operation}: index is {index.dtype}; expected integers")
    if x.dtype != src.dtype or (x.dtype == dtypes.bool and reduction != "none"):
        numbers = " of numbers" if reduction != "none" else ""
        raise TypeError(f"{operation}: x is {x.dtype}, src is {src.dtype}; expected one type{numbers}")
    return REDUCTIONS[reduction]


def inside(operation: str, index: Any, n: int, x: Any) -> None:
    """ValueError unless all of the index counts from the front or the end of n places; a GPU is not asked."""
    if not devices.is_host(index):  # the host would have to wait for the answer
        return
    outside = (index < -n) | (index >= n)
    if outside.any():
        raise ValueError(
            f"{operation}: index holds {int(index[outside][0])}; expected {-n} to {n - 1}; x has shape {x.shape}"
        )


def _slices(operation: str, x: Any, dim: int, index: Any, source: Any, reduction: str) -> Any:
    if x.ndim == 0:
        return _slices(operation, x.reshape(1), 0, index, source.reshape(1), reduction).reshape(())
    axis = axis_of(operation, dim, x)
    index = index.reshape(-1)
    if source.ndim != x.ndim or source.shape[axis] != len(index):
        raise ValueError(
            f"{operation}: source has shape {source.shape}, index {index.shape}, x {x.shape}; expected a slice for "
            f"each place of axis {axis}"
        )
    places = index.reshape(-1, *(1,) * (x.ndim - axis - 1)).expand(source.shape)
    return put_along(operation, x, axis, places, source, reduction)
