"""Methods that write elements to given indices of a copy of x: scatter, index_add, index_put, masked_scatter ..."""

from __future__ import annotations

import math
from typing import Any, Generic

import numpy as np

from minorm import devices
from minorm.devices import dtypes
from minorm.ops import elementwise, scatter
from minorm.ops.indexing import own
from minorm.ops.operands import axis_of
from minorm.ops.shape import Cat
from minorm.support.argument_errors import kind_of
from minorm.support.argument_texts import AXIS
from minorm.support.documented import documented_methods
from minorm.tensor.methods.index_places import expanded, inside, places_of
from minorm.tensor.methods.scatter_arguments import (
    REDUCTIONS,
    check_fill,
    check_slices,
    line_of_places,
    put_by,
    to_write,
)
from minorm.tensor.operators import Operators
from minorm.tensor.shapes import TensorT

REDUCES = {"sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"}  # scatter_reduce's names

ARGUMENTS = {
    "dim": AXIS,
    "index": "integers, the indices along `dim`",
    "source": "the elements to write, with as many axes as x",
    "src": "the elements to write: a Tensor of x's type, at least as long as index along every axis",
    "scatter.src": "the elements to write: a Tensor at least as long as index along every axis, or a number",
    "value": "the number to write",
    "scatter.value": "a number to write, if src is None",
    "reduce": 'how to combine new elements with those of x: "add" or "multiply"; None replaces',
    "scatter_reduce.reduce": '"sum", "prod", "mean", "amax" or "amin"',
    "include_self": "False leaves out x's elements at indices that get new elements",
    "mask": "a bool Tensor that broadcasts with x",
    "masked_scatter.source": "the elements to write, in order: at least one for each True, in a Tensor of x's type",
    "indices": "a Tensor of indices for each axis, or a bool mask for one or several axes; None selects a whole axis",
    "values": "the elements to write: a Tensor of x's type that broadcasts to x[indices]",
    "accumulate": "True adds the values to x's elements, even if several values have the same index",
    "alpha": "the factor of source",
}


@documented_methods(ARGUMENTS)
class Scattering(Operators[TensorT], Generic[TensorT]):
    """Methods that write new elements to given indices, or combine new elements with the elements at these indices."""

    __slots__ = ()

    def scatter(
        self, dim: int, index: Any, src: Any = None, *, value: Any = None, reduce: str | None = None
    ) -> TensorT:
        """y = x, but y[index[i, j], j] = src[i, j] for dim=0, and similarly for other axes.

        If several elements have the same index, the last one is written, unless `reduce` combines them. Raises
        ValueError if index is longer than src, and for indices outside x.

        Example:
            >>> mn.zeros(3).scatter(0, mn.tensor([2, 0]), mn.tensor([5.0, 6.0]))
            tensor([6., 0., 5.])
            >>> mn.zeros(3).scatter(0, mn.tensor([2]), value=1.0)
            tensor([0., 0., 1.])
        """
        given = to_write("scatter", src, value)
        if not hasattr(given, "from_array"):
            line_of_places("scatter", index, axes=None)
            given = _repeated(given, self, index.shape)
        if reduce not in (None, *REDUCTIONS):
            raise ValueError(f"scatter: reduce is {reduce!r}; expected None, 'add' or 'multiply'")
        return put_along("scatter", self, dim, index, given, reduce or "none")

    def scatter_reduce(self, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True) -> TensorT:
        """y = x, but y[index[i, j], j] is combined with src[i, j] for dim=0, and similarly for other axes.

        Means of integers are rounded down. If several elements with the same index equal the maximum or minimum, they
        share the gradient. Raises ValueError for indices outside x.

        Example:
            >>> x, index = mn.tensor([10.0, 20.0]), mn.tensor([0, 0])
            >>> x.scatter_reduce(0, index, mn.tensor([1.0, 4.0]), "mean")
            tensor([ 5., 20.])
            >>> x.scatter_reduce(0, index, mn.tensor([1.0, 4.0]), "amax", include_self=False)
            tensor([ 4., 20.])

        Its ONNX operator is ScatterElements (opset 18).
        """
        if reduce not in REDUCES:
            raise ValueError(f"scatter_reduce: reduce is {reduce!r}; expected one of {', '.join(REDUCES)}")
        put_by("scatter_reduce", self, index, src, "none")
        x: Any = self
        if x.dtype == dtypes.bool and reduce != "mean":
            return x.long().scatter_reduce(dim, index, src.long(), reduce, include_self=include_self).bool()
        if x.dtype in dtypes.HALVES and reduce == "mean":  # the mean is rounded once
            wide = x.float().scatter_reduce(dim, index, src.float(), reduce, include_self=include_self)
            return wide.to(x.dtype)
        start = x
        if not include_self:
            neutral = _repeated(_neutral(reduce, x.dtype), x, index.shape)
            start = put_along("scatter_reduce", x, dim, index, neutral, "none")
        total = put_along("scatter_reduce", start, dim, index, src, REDUCES[reduce])
        return total if reduce != "mean" else _mean(total, x, dim, index, include_self)

    def scatter_add(self, dim: int, index: Any, src: Any) -> TensorT:
        """y = x, and then y[index[i, j], j] += src[i, j] for dim=0, and similarly for other axes.

        Example:
            >>> mn.zeros(3).scatter_add(0, mn.tensor([2, 2]), mn.tensor([5.0, 6.0]))
            tensor([ 0.,  0., 11.])
        """
        return put_along("scatter_add", self, dim, index, src, "add")

    def index_add(self, dim: int, index: Any, source: Any, *, alpha: float = 1) -> TensorT:
        """y = x, and then y[index[i]] += alpha * source[i] for dim=0, and similarly for other axes.

        Example:
            >>> mn.zeros(3).index_add(0, mn.tensor([2, 2]), mn.tensor([5.0, 6.0]))
            tensor([ 0.,  0., 11.])
        """
        return _slices("index_add", self, dim, index, source, "add", alpha)

    def index_copy(self, dim: int, index: Any, source: Any) -> TensorT:
        """y = x, but y[index[i]] = source[i] for dim=0, and similarly for other axes.

        Example:
            >>> mn.zeros(3).index_copy(0, mn.tensor([2, 0]), mn.tensor([5.0, 6.0]))
            tensor([6., 0., 5.])
        """
        return _slices("index_copy", self, dim, index, source, "none")

    def index_fill(self, dim: int, index: Any, value: Any) -> TensorT:
        """y = x, but y[index[i]] = value for dim=0, and similarly for other axes.

        Example:
            >>> mn.zeros(3).index_fill(0, mn.tensor([2, 0]), 1.0)
            tensor([1., 0., 1.])
        """
        if self.ndim == 0:
            one: Any = self.reshape(1)
            return one.index_fill(0, index, value).reshape(())
        axis = axis_of("index_fill", dim, self)
        check_fill("index_fill", index, value)
        inside("index_fill", index.array, self.shape[axis], self, IndexError)
        with devices.on_device_of(self.array):
            there = np.zeros_like(self.array, np.bool_, shape=(self.shape[axis],))
            there[own(devices.to_device(index.array, devices.device_of(self.array)))] = True
        mask = self.from_array(there)
        x: Any = self
        return x.masked_fill(mask.reshape(-1, *(1,) * (self.ndim - axis - 1)), value)

    def masked_scatter(self, mask: Any, source: Any) -> TensorT:
        """y = x where the mask is False. Where the mask is True, y has the elements of source in order.

        Raises ValueError if source has fewer elements than there are True elements in the mask; on a GPU this is not
        checked.

        Example:
            >>> mn.zeros(4).masked_scatter(mn.tensor([True, False, True, False]), mn.tensor([5.0, 6.0]))
            tensor([5., 0., 6., 0.])
        """
        if mask.dtype != dtypes.bool or source.dtype != self.array.dtype:
            raise TypeError(
                f"masked_scatter: mask is {mask.dtype}, source {source.dtype}, x {self.array.dtype}; expected a mask "
                "of bools, and a source of x's type"
            )
        shape = _together("masked_scatter", self, mask, error=ValueError)
        x: Any = self.expand(shape)
        mask = mask.expand(shape)
        count = source.numel()
        if devices.is_host(mask.array) and (places := int(mask.array.sum())) > count:
            raise ValueError(
                f"masked_scatter: source has {count} elements, and the mask is True at {places} places; expected at "
                f"least {places} elements; x.shape is {self.shape}"
            )
        if not count:
            return x.clone()
        order = mask.reshape(-1).long().cumsum(0) - 1
        return elementwise.Where.apply(mask, source.reshape(-1)[order].reshape(shape), x)

    def index_put(self, indices: Any, values: Any, accumulate: bool = False) -> TensorT:
        """y = x, but y[indices] = values. If several values have the same index, the last one is written.

        With accumulate=True, all values are added to x[indices]. Raises ValueError for values that do not broadcast to
        x[indices], and IndexError for indices outside x.

        Example:
            >>> rows, columns = mn.tensor([0, 0]), mn.tensor([1, 1])
            >>> mn.zeros(2, 2).index_put((rows, columns), mn.tensor([5.0, 6.0]), accumulate=True)
            tensor([[ 0., 11.],
                    [ 0.,  0.]])

        Its ONNX operator is ScatterND (opset 16).
        """
        return put_at("index_put", self, indices, values, "add" if accumulate else "none")


def put_along(operation: str, x: Any, dim: int, index: Any, src: Any, reduction: str) -> Any:
    """Return a copy of x in which src[i, j] is written to, or combined with, x[index[i, j], j].

    The formula is for dim=0. It is similar for other axes.
    """
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
            f"{operation}: index has shape {index.shape}, x {x.shape}; expected as many axes as x, and only axis "
            f"{axis} may be longer than in x"
        )
    inside(operation, index.array, x.shape[axis], x)
    return scatter.ScatterElements.apply(x, index, src, reduction=kind, axis=axis)


def put_at(operation: str, x: Any, indices: Any, values: Any, reduction: str) -> Any:
    """Return a copy of x in which `values` are written to, or added to, x[indices]. The indices follow the rules of
    NumPy.
    """
    kind = getattr(values, "dtype", None)
    if kind != x.dtype or not hasattr(values, "from_array"):
        raise TypeError(
            f"{operation}: x is {x.dtype}, values is {kind or kind_of(values)}; expected a Tensor of x's type"
        )
    if x.dtype == dtypes.bool and reduction == "add":
        return put_at(operation, x.long(), indices, values.long(), reduction).bool()
    places = places_of(operation, x, indices)
    if not places:
        whole = expanded(operation, values, x.shape, x)
        return x + whole if reduction == "add" else whole.clone()
    shape = _together(operation, *places.values(), error=IndexError)
    rest = [i for i in range(x.ndim) if i not in places]
    apart = list(places) != list(range(min(places), max(places) + 1))
    first, count = 0 if apart else min(places), len(shape)  # the position of the places' axes in x[indices]
    lengths = [x.shape[i] for i in rest]
    updates = expanded(operation, values, (*lengths[:first], *shape, *lengths[first:]), x)
    updates = updates.movedim(tuple(range(first, first + count)), tuple(range(count)))
    index = Cat.apply(*[i.long().expand(shape).unsqueeze(-1) for i in places.values()], axis=count)
    order = (*places, *rest)
    y: Any = scatter.ScatterND.apply(x.permute(order), index, updates, reduction=reduction)
    return y.permute(*np.argsort(order).tolist())


def _together(operation: str, *tensors: Any, error: type[Exception]) -> tuple[int, ...]:
    """Return the common shape to which the tensors can be broadcast."""
    try:
        return np.broadcast_shapes(*[x.shape for x in tensors])
    except ValueError:
        shapes = " and ".join(str(x.shape) for x in tensors)
        raise error(f"{operation}: shapes {shapes} do not broadcast; expected lengths that are equal or 1") from None


def _repeated(number: Any, x: Any, shape: tuple[int, ...]) -> Any:
    """Return a Tensor of this shape, on x's device and of x's type, with all elements equal to the number."""
    return x.from_array(devices.scalar(number, x.array.dtype, x.array)).expand(shape)


def _neutral(reduce: str, kind: Any) -> Any:
    """Return the neutral element of a sum, product, maximum or minimum (`reduce`) in the type `kind`."""
    if reduce not in ("amax", "amin"):
        return int(reduce == "prod")
    if dtypes.is_float(kind):
        return -math.inf if reduce == "amax" else math.inf
    return dtypes.iinfo(kind).min if reduce == "amax" else dtypes.iinfo(kind).max


def _mean(total: Any, x: Any, dim: int, index: Any, include_self: bool) -> Any:
    """Divide each total by the number of elements that were added up. With include_self=True, x's own element counts
    too.
    """
    ones = _repeated(1, x, x.shape)
    start = ones if include_self else ones.scatter(dim, index, value=0)
    count = put_along("scatter_reduce", start, dim, index, _repeated(1, x, index.shape), "add")
    return total / count if dtypes.is_float(x.dtype) else total // count


def _slices(operation: str, x: Any, dim: int, index: Any, source: Any, reduction: str, alpha: float = 1) -> Any:
    check_slices(operation, x, index, source)
    if x.ndim == 0:
        return _slices(operation, x.reshape(1), 0, index, source.reshape(1), reduction, alpha).reshape(())
    axis = axis_of(operation, dim, x)
    index = index.reshape(-1)
    if source.shape != (wanted := (*x.shape[:axis], len(index), *x.shape[axis + 1 :])):
        raise ValueError(
            f"{operation}: source has shape {source.shape}, index {index.shape}, x {x.shape}; expected source of shape "
            f"{wanted}, a slice for each place of axis {axis}"
        )
    places = index.reshape(-1, *(1,) * (x.ndim - axis - 1)).expand(source.shape)
    return put_along(operation, x, axis, places, source if alpha == 1 else source * alpha, reduction)
