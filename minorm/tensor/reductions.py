"""The reductions of a Tensor: sums, means, minima and maxima over axes."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple

from minorm import devices
from minorm.devices import dtypes
from minorm.graph import grad_mode
from minorm.ops import elementwise, reduction
from minorm.ops.operands import operands, reduced_axes
from minorm.support.argument_texts import AXES
from minorm.support.documented import documented_methods
from minorm.tensor.operators import Operators, as_float
from minorm.tensor.shapes import TensorT


class Extreme(NamedTuple, Generic[TensorT]):
    """The result of `x.max(dim)` and `x.min(dim)`."""

    values: TensorT
    indices: TensorT


ARGUMENTS = AXES | {
    "unbiased": "False divides by N, and ignores correction",
    "correction": "the number subtracted from N; 1 makes the estimate of the variance unbiased, None is 0",
    "max.dim": "an axis; None means all axes; a Tensor gives the larger element of each pair",
    "min.dim": "an axis; None means all axes; a Tensor gives the smaller element of each pair",
    "argmax.dim": "an axis; None is the flattened tensor",
    "argmin.dim": "an axis; None is the flattened tensor",
    "other": "a Tensor to compare x with, element by element; None uses x alone",
}


@documented_methods(ARGUMENTS)
class Reductions(Operators[TensorT], Generic[TensorT]):
    """Methods for sums, means, variances, minima and maxima."""

    __slots__ = ()

    def sum(self, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> TensorT:
        """Return the sum over `dim`.

        If `dtype` is given, x is first converted to this type. Sums of integers and bools are int64.

        Example:
            >>> mn.tensor([[1.0, 2.0], [3.0, 4.0]]).sum(dim=1)
            tensor([3., 7.])
        """
        total = reduction.Sum.apply(_cast(self, dtype), axes=reduced_axes("sum", dim, self), keepdims=keepdim)
        return _cast(total, dtype)

    def mean(self, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> TensorT:
        """Return the mean over `dim`. If `dtype` is given, x is first converted to this type.

        Example:
            >>> mn.tensor([[1.0, 2.0], [3.0, 4.0]]).mean(dim=1, keepdim=True)
            tensor([[1.5],
                    [3.5]])
        """
        return reduction.Mean.apply(
            as_float(_cast(self, dtype)), axes=reduced_axes("mean", dim, self), keepdims=keepdim
        )

    def var(
        self, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *, correction: float | None = 1
    ) -> TensorT:
        """Return the variance over `dim`: sum (x - mean)^2 / (N - correction).

        Example:
            >>> x = mn.tensor([1.0, 3.0])
            >>> x.var(), x.var(unbiased=False)
            (tensor(2.), tensor(1.))
        """
        if isinstance(dim, bool):  # x.var(False) is x.var(unbiased=False)
            dim, unbiased = None, dim
        if (kind := self.array.dtype) in dtypes.HALVES:  # their squares would overflow
            wide = _cast(self, dtypes.float32)
            return _cast(wide.var(dim, unbiased, keepdim, correction=correction), kind)
        axes = reduced_axes("var", dim, self)
        with grad_mode.no_grad():  # no gradient flows through the mean: the deviations from it add up to 0
            mean = self.mean(axes, keepdim=True)
        centred: Any = elementwise.Deviation.apply(*operands("var", self, mean))
        squares = (centred * centred).sum(axes, keepdim)
        count = self.numel() // max(1, squares.numel())
        return squares / max(0, count - (1 if correction is None else correction) if unbiased else count)

    def std(
        self, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *, correction: float | None = 1
    ) -> TensorT:
        """sqrt(sum (x - mean)^2 / (N - correction)) over `dim`. The gradient is 0 if all elements are equal.

        Example:
            >>> mn.tensor([1.0, 3.0]).std(correction=0)
            tensor(1.)
        """
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        if (kind := self.array.dtype) in dtypes.HALVES:
            wide = _cast(self, dtypes.float32)
            return _cast(wide.std(dim, unbiased, keepdim, correction=correction), kind)
        return elementwise.Root.apply(
            self.var(reduced_axes("std", dim, self), unbiased, keepdim, correction=correction)
        )

    def amax(self, dim: Any = None, keepdim: bool = False) -> TensorT:
        """Return the largest element over `dim`. If several elements are equally large, they share the gradient.

        Raises ValueError if there are no elements.

        Example:
            >>> mn.tensor([[1.0, 2.0], [3.0, 4.0]]).amax(dim=0)
            tensor([3., 4.])
        """
        return reduction.Max.apply(
            self, axes=_non_empty_axes("amax", reduced_axes("amax", dim, self), self), keepdims=keepdim
        )

    def amin(self, dim: Any = None, keepdim: bool = False) -> TensorT:
        """Return the smallest element over `dim`. If several elements are equally small, they share the gradient.

        Raises ValueError if there are no elements.

        Example:
            >>> mn.tensor([[1.0, 2.0], [3.0, 4.0]]).amin(dim=0)
            tensor([1., 2.])
        """
        return reduction.Min.apply(
            self, axes=_non_empty_axes("amin", reduced_axes("amin", dim, self), self), keepdims=keepdim
        )

    def max(self, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
        """Return the largest element. With `dim`, return (values, indices) along this axis. With `other`, return the
        larger element of each pair.

        Raises ValueError if there are no elements.

        Example:
            >>> mn.tensor([1.0, 3.0]).max()
            tensor(3.)
            >>> mn.tensor([[1.0, 2.0], [4.0, 3.0]]).max(dim=1).indices
            tensor([1, 0])
        """
        if other is not None or hasattr(dim, "from_array"):
            return elementwise.Maximum.apply(*operands("max", self, dim if other is None else other))
        if dim is None:
            axes = _non_empty_axes("max", reduced_axes("max", None, self), self)
            return reduction.MaxOfAll.apply(self, axes=axes, keepdims=False)
        return self._along(self.argmax(dim, True), dim, keepdim)

    def min(self, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
        """Return the smallest element. With `dim`, return (values, indices) along this axis. With `other`, return the
        smaller element of each pair.

        Raises ValueError if there are no elements.

        Example:
            >>> mn.tensor([1.0, 3.0]).min()
            tensor(1.)
            >>> mn.tensor([[1.0, 2.0], [4.0, 3.0]]).min(dim=1).indices
            tensor([0, 1])
        """
        if other is not None or hasattr(dim, "from_array"):
            return elementwise.Minimum.apply(*operands("min", self, dim if other is None else other))
        if dim is None:
            axes = _non_empty_axes("min", reduced_axes("min", None, self), self)
            return reduction.MinOfAll.apply(self, axes=axes, keepdims=False)
        return self._along(self.argmin(dim, True), dim, keepdim)

    def _along(self, indices: TensorT, dim: int, keepdim: bool) -> Extreme[TensorT]:
        values = self.gather(dim, indices)
        return Extreme(values, indices) if keepdim else Extreme(values.squeeze(dim), indices.squeeze(dim))

    def argmax(self, dim: int | None = None, keepdim: bool = False) -> TensorT:
        """Return the index of the first largest element along `dim`, or in the flattened tensor.

        Example:
            >>> mn.tensor([[1.0, 2.0], [4.0, 3.0]]).argmax(dim=1)
            tensor([1, 0])
        """
        return reduction.ArgMax.apply(self, axis=_search_axis("argmax", dim, self), keepdims=keepdim)

    def argmin(self, dim: int | None = None, keepdim: bool = False) -> TensorT:
        """Return the index of the first smallest element along `dim`, or in the flattened tensor.

        Example:
            >>> mn.tensor([[1.0, 2.0], [4.0, 3.0]]).argmin(dim=1)
            tensor([0, 1])
        """
        return reduction.ArgMin.apply(self, axis=_search_axis("argmin", dim, self), keepdims=keepdim)

    def all(self, dim: Any = None, keepdim: bool = False) -> TensorT:
        """Return whether all elements along `dim` are true.

        If dim is None, all elements of x count. If dim is (), no axis is reduced. The result is True if there are no
        elements.

        Example:
            >>> mn.tensor([[True, False], [True, True]]).all(dim=1)
            tensor([False,  True])
        """
        return _truth(self, reduction.Min, "all", dim, keepdim, of_nothing=True)

    def any(self, dim: Any = None, keepdim: bool = False) -> TensorT:
        """Return whether any element along `dim` is true.

        If dim is None, all elements of x count. If dim is (), no axis is reduced. The result is False if there are no
        elements.

        Example:
            >>> mn.tensor([[True, False], [False, False]]).any(dim=1)
            tensor([ True, False])
        """
        return _truth(self, reduction.Max, "any", dim, keepdim, of_nothing=False)


def _search_axis(operation: str, dim: int | None, x: Any) -> int | None:
    """Return the axis along which to search for a minimum or maximum, or None for all of x.

    Raises ValueError if the axis or x has no elements.
    """
    axes = _non_empty_axes(operation, reduced_axes(operation, dim, x), x)
    return None if dim is None or not axes else axes[0]


def _non_empty_axes(operation: str, axes: tuple[int, ...], x: Any) -> tuple[int, ...]:
    """Return the axes; raise ValueError if one of them has no elements."""
    if not all(x.shape[axis] for axis in axes):
        raise ValueError(
            f"{operation}: x has no elements along a reduced axis, so there is no extreme value; shape is {x.shape}; "
            f"expected at least one element along {'every axis' if len(axes) == x.ndim else f'axes {axes}'}"
        )
    return axes


def _cast(x: Any, dtype: Any) -> Any:
    return x if dtype is None else x.to(dtype)


def _truth(x: Any, extreme: Any, operation: str, dim: Any, keepdim: bool, of_nothing: bool) -> Any:
    """Compute `any` as the maximum of x != 0, or `all` as its minimum, with operations that a trace records."""
    true = x if x.dtype == dtypes.bool else x != 0
    if isinstance(dim, (tuple, list)) and not dim:
        return true.clone() if true is x else true
    axes = reduced_axes(operation, dim, x)
    if all(x.shape[axis] for axis in axes):
        return extreme.apply(true.to(dtypes.uint8), axes=axes, keepdims=keepdim).to(dtypes.bool)
    shape = [1 if i in axes else n for i, n in enumerate(x.shape) if keepdim or i not in axes]
    with devices.on_device_of(x.array):
        return x.from_array(devices.namespace(x.array).full(shape, of_nothing))
