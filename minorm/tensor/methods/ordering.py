"""Methods that depend on the order of elements: sorting, the largest elements, medians, quantiles and counts."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple

import numpy as np

from minorm import devices
from minorm.devices import dtypes
from minorm.ops import reduction, stepwise
from minorm.ops.operands import axis_of, check_room
from minorm.ops.shape import Cat
from minorm.support.argument_texts import AXES, AXIS
from minorm.support.documented import documented_methods
from minorm.tensor.reductions import Reductions
from minorm.tensor.shapes import TensorT


class Ordered(NamedTuple, Generic[TensorT]):
    """The result of sort, topk and median(dim): elements, and their indices in x."""

    values: TensorT
    indices: TensorT


ARGUMENTS = AXES | {
    "dim": AXIS,
    "median.dim": "an axis; None means all elements",
    "quantile.dim": "an axis; None means all elements",
    "unique.dim": "the axis whose slices are compared; None compares elements",
    "descending": "True sorts from the largest element to the smallest",
    "stable": "accepted but ignored: equal elements always keep their order",
    "k": "the number of elements to return along `dim`",
    "largest": "True returns the largest elements, False the smallest",
    "topk.sorted": "accepted but ignored: the result is always in order",
    "unique.sorted": "accepted but ignored: the result is always in order",
    "q": "the share, from 0 to 1: a number, or a vector, which gives the result a new first axis",
    "interpolation": 'how a value between two elements is found: "linear", "lower", "higher", "nearest" or "midpoint"',
    "return_inverse": "True also returns, for each element of x, its index among the distinct elements",
    "return_counts": "True also returns how often each distinct element occurs",
    "bins": "the number of parts",
    "min": "the beginning of the first part",
    "max": "the end of the last part; if max equals min, the smallest and the largest element of x replace min and max",
    "weights": "the weight of each element: a vector as long as x; None means weights of 1",
    "minlength": "the minimum length of the result",
}


@documented_methods(ARGUMENTS)
class Ordering(Reductions[TensorT], Generic[TensorT]):
    """Methods that sort or count elements."""

    __slots__ = ()

    def argsort(self, dim: int = -1, descending: bool = False, stable: bool = True) -> TensorT:  # noqa: ARG002
        """Return the indices that sort x along `dim`. Equal elements keep their order. NaN counts as largest.

        Example:
            >>> mn.tensor([3.0, 1.0, 2.0]).argsort()
            tensor([1, 2, 0])
        """
        if self.ndim == 0:
            return self.argmax()
        axis = axis_of("argsort", dim, self)
        return reduction.TopPlaces.apply(self, count=self.shape[axis], axis=axis, largest=descending)

    def sort(self, dim: int = -1, descending: bool = False, stable: bool = True) -> Ordered[TensorT]:
        """Return (values, indices): the sorted elements along `dim`, and their indices in x.

        Equal elements keep their order. NaN counts as the largest number.

        Example:
            >>> values, indices = mn.tensor([3.0, 1.0, 2.0]).sort(descending=True)
            >>> values, indices
            (tensor([3., 2., 1.]), tensor([0, 2, 1]))
        """
        places = self.argsort(dim, descending, stable)
        return Ordered(self.gather(dim, places), places)

    def topk(self, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Ordered[TensorT]:  # noqa: ARG002
        """Return (values, indices): the k largest (or smallest) elements along `dim`, in order, and their indices in x.

        Raises ValueError for a k larger than the axis.

        Example:
            >>> values, indices = mn.tensor([3.0, 1.0, 2.0]).topk(2)
            >>> values, indices
            (tensor([3., 2.]), tensor([0, 2]))
        """
        if self.ndim == 0:
            return Ordered(self.reshape(1)[0], self.argmax())
        axis = axis_of("topk", dim, self)
        if not 0 <= k <= self.shape[axis]:
            raise ValueError(
                f"topk: k={k}; expected 0 to {self.shape[axis]}, the length of axis {axis} of {self.shape}"
            )
        places: Any = reduction.TopPlaces.apply(self, count=int(k), axis=axis, largest=largest)
        return Ordered(self.gather(axis, places), places)

    def median(self, dim: int | None = None, keepdim: bool = False) -> Any:
        """Return the middle element or, for an even number of elements, the smaller of the two middle elements.

        With `dim`, return (values, indices) along this axis. The result is NaN if x has a NaN. Raises ValueError if
        there are no elements.

        Example:
            >>> mn.tensor([3.0, 1.0, 2.0, 9.0]).median()
            tensor(2.)
        """
        x: Any = self
        if dim is None:
            if not x.numel():
                raise ValueError(
                    f"median: the median of no elements is not defined; shape is {x.shape}; expected at least one "
                    "element"
                )
            middle = x.from_array(x.reshape(-1).median(0).values.array)
            hit = (x == middle) | (x.isnan() & middle.isnan())
            return x.masked_select(hit).mean() if dtypes.is_float(x.dtype) else middle
        if x.ndim == 0:
            return Ordered(x.clone(), x.argmax())
        axis = axis_of("median", dim, x)
        n = x.shape[axis]
        if not n:
            raise ValueError(f"median: axis {axis} of {x.shape} has no elements; expected at least one")
        place = (x.isnan().any(axis, keepdim=True)).long() * (n - 1 - (n - 1) // 2) + (n - 1) // 2
        return x._along(x.argsort(axis).gather(axis, place), axis, keepdim)

    def quantile(
        self, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
    ) -> TensorT:
        """Return the value below which a share q of the elements along `dim` lies.

        If dim is None, all elements of x count. The result is NaN if an element is NaN. Raises ValueError for a q
        outside of 0 to 1, and for integers.

        Example:
            >>> mn.tensor([0.0, 1.0, 2.0, 3.0]).quantile(0.25)
            tensor(0.75)
        """
        kinds = ("linear", "lower", "higher", "nearest", "midpoint")
        if interpolation not in kinds:
            raise ValueError(f"quantile: interpolation is {interpolation!r}; expected one of {', '.join(kinds)}")
        x: Any = self
        shares = np.asarray(q.cpu().array if hasattr(q, "from_array") else q, np.float64)
        if not dtypes.is_float(x.dtype) or shares.ndim > 1 or not ((shares >= 0) & (shares <= 1)).all():
            raise ValueError(
                f"quantile: x is {x.dtype}, q is {q}; expected x of a float type, and as q a number or a vector of "
                "numbers from 0 to 1"
            )
        rows = x.reshape(-1) if dim is None else x.reshape(1) if x.ndim == 0 else x.movedim(dim, -1)
        n = rows.shape[-1]
        if not n:
            raise ValueError(f"quantile: shape is {x.shape}; expected at least one element")
        order = rows.sort(-1).values
        found = []
        for share in shares.reshape(-1).tolist():
            place = share * (n - 1)
            low, high = int(np.floor(place)), int(np.ceil(place))
            weight = {"lower": 0.0, "higher": 1.0, "midpoint": 0.5}.get(interpolation, place - low)
            if interpolation == "nearest":
                weight = float(round(place) != low)
            value = order[..., low] if weight == 0 else order[..., low].lerp(order[..., high], weight)
            value = value.masked_fill(rows.isnan().any(-1), float("nan"))
            if keepdim:
                value = value.reshape((1,) * x.ndim) if dim is None else value.unsqueeze(dim) if x.ndim else value
            found.append(value.unsqueeze(0))
        joined: Any = Cat.apply(*found, axis=0)
        return joined if shares.ndim else joined.squeeze(0)

    def unique(
        self, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None  # noqa: ARG002
    ) -> Any:  # fmt: skip
        """Return the distinct elements in order.

        With return_inverse, also return the index of each element of x in this result. With return_counts, also return
        how often each distinct element occurs in x.

        Example:
            >>> mn.tensor([3, 1, 3]).unique(return_counts=True)
            (tensor([1, 3]), tensor([1, 2]))
        """
        axis = None if dim is None else axis_of("unique", dim, self)
        with devices.on_device_of(self.array):
            kind = self.array.dtype
            wide = self.array.astype(dtypes.compute_type(kind), copy=False)  # CuPy does not sort bfloat16
            found = devices.namespace(self.array).unique(wide, return_inverse=True, return_counts=True, axis=axis)
            values, inverse, counts = (self.from_array(a) for a in (found[0].astype(kind), *found[1:]))
        inverse = inverse.reshape(self.shape if axis is None else (self.shape[axis],))
        wanted = (values, *((inverse,) if return_inverse else ()), *((counts,) if return_counts else ()))
        return wanted if len(wanted) > 1 else values

    def histc(self, bins: int = 100, min: float = 0, max: float = 0) -> TensorT:
        """Count the elements in each of `bins` parts of equal width from min to max. Other elements do not count.

        Example:
            >>> mn.tensor([0.1, 0.6, 0.9, 5.0]).histc(bins=2, min=0, max=1)
            tensor([1., 2.])
        """
        if bins < 1 or max < min:
            raise ValueError(f"histc: bins={bins}, min={min}, max={max}; expected bins >= 1 and min <= max")
        check_room("histc", (bins,))
        low, high = float(min), float(max)
        if low == high:
            low, high = self._bounds()
        if low == high:
            low, high = low - 1, high + 1
        return stepwise.Histogram.apply(self, bins=bins, low=low, high=high)

    def bincount(self, weights: Any = None, minlength: int = 0) -> TensorT:
        """y[n] = the count of n in a vector of integers, for n = 0, 1, 2 ...

        With weights, y[n] is the sum of the weights of the elements that equal n. Raises ValueError for negative
        numbers.

        Example:
            >>> mn.tensor([0, 2, 2]).bincount(minlength=4)
            tensor([1, 0, 2, 0])
        """
        if self.ndim != 1 or self.array.dtype.kind not in "iu":
            raise ValueError(f"bincount: x is {self.array.dtype} of shape {self.shape}; expected a vector of integers")
        if (least := int(self._bounds()[0])) < 0:
            raise ValueError(f"bincount: x holds {least}; expected no negative number")
        if weights is not None and weights.shape != self.shape:
            raise ValueError(f"bincount: weights has shape {weights.shape}, x {self.shape}; expected equal shapes")
        check_room("bincount", (minlength,))
        given = () if weights is None else (weights,)
        return stepwise.BinCount.apply(self, *given, minlength=minlength)

    def _bounds(self) -> tuple[float, float]:
        """Return the smallest and the largest element, or 0 and 1 if there are no elements."""
        with devices.on_device_of(self.array):
            return (float(self.array.min()), float(self.array.max())) if self.numel() else (0.0, 1.0)
