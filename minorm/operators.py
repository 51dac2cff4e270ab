"""The operators of a Tensor: each decides axes and types, and applies one Function.

They stand apart from the Tensor itself, which holds an array and its gradient. Names and arguments are PyTorch's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from minorm import autograd, dtypes
from minorm.kernels import select
from minorm.ops import elementwise, indexing, reduction, shape, stepwise
from minorm.ops.matmul import MatMul
from minorm.ops.operands import axes_of, axis_of, operands, sizes_of
from minorm.ops.special import Remainder

if TYPE_CHECKING:
    from minorm.tensor import Tensor


class Extreme(NamedTuple):
    """What `x.max(dim)` and `x.min(dim)` return."""

    values: Tensor
    indices: Tensor


class Operators:  # noqa: PLW1641  the Tensor defines __hash__
    """What a Tensor can do: arithmetic, reductions, changes of shape, reading elements."""

    __slots__ = ()

    if TYPE_CHECKING:  # what the Tensor provides
        array: Any
        spawn: Any

        @property
        def shape(self) -> tuple[int, ...]: ...  # noqa: D102
        @property
        def ndim(self) -> int: ...  # noqa: D102
        def numel(self) -> int: ...  # noqa: D102

    # Arithmetic

    def __add__(self, other: Any) -> Tensor:
        return elementwise.Add.apply(*operands("add", self, other))

    def __radd__(self, other: Any) -> Tensor:
        return elementwise.Add.apply(*operands("add", other, self))

    def __sub__(self, other: Any) -> Tensor:
        return elementwise.Sub.apply(*operands("sub", self, other))

    def __rsub__(self, other: Any) -> Tensor:
        return elementwise.Sub.apply(*operands("sub", other, self))

    def __mul__(self, other: Any) -> Tensor:
        return elementwise.Mul.apply(*operands("mul", self, other))

    def __rmul__(self, other: Any) -> Tensor:
        return elementwise.Mul.apply(*operands("mul", other, self))

    def __truediv__(self, other: Any) -> Tensor:
        return elementwise.Div.apply(*operands("div", self, other, real=True))

    def __rtruediv__(self, other: Any) -> Tensor:
        return elementwise.Div.apply(*operands("div", other, self, real=True))

    def __pow__(self, other: Any) -> Tensor:
        return elementwise.Pow.apply(*operands("pow", self, other))

    def __rpow__(self, other: Any) -> Tensor:
        return elementwise.Pow.apply(*operands("pow", other, self))

    def __floordiv__(self, other: Any) -> Tensor:
        return stepwise.FloorDivide.apply(*operands("floor_divide", self, other))

    def __rfloordiv__(self, other: Any) -> Tensor:
        return stepwise.FloorDivide.apply(*operands("floor_divide", other, self))

    def __mod__(self, other: Any) -> Tensor:
        return Remainder.apply(*operands("remainder", self, other), truncated=False)

    def __rmod__(self, other: Any) -> Tensor:
        return Remainder.apply(*operands("remainder", other, self), truncated=False)

    def __and__(self, other: Any) -> Tensor:
        return stepwise.Bitwise.apply(*operands("and", self, other), relation="bitwise_and")

    def __or__(self, other: Any) -> Tensor:
        return stepwise.Bitwise.apply(*operands("or", self, other), relation="bitwise_or")

    def __xor__(self, other: Any) -> Tensor:
        return stepwise.Bitwise.apply(*operands("xor", self, other), relation="bitwise_xor")

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __invert__(self) -> Tensor:
        if dtypes.is_float(self.array.dtype):
            raise TypeError(f"invert: x is {self.array.dtype}; expected bools or integers")
        return stepwise.Stepwise.apply(self, step="invert")

    def __matmul__(self, other: Any) -> Tensor:
        a, b = operands("matmul", self, other, broadcast=False)
        if a.ndim == 0 or b.ndim == 0 or a.shape[-1] != b.shape[-2 if b.ndim > 1 else 0]:
            raise ValueError(
                f"matmul: a is {a.shape}, b is {b.shape}; expected a's last axis to equal b's last but one; "
                "transpose one with .mT, or check the order of the factors"
            )
        if any(m != n and 1 not in (m, n) for m, n in zip(a.shape[-3::-1], b.shape[-3::-1], strict=False)):
            raise ValueError(
                f"matmul: a is {a.shape}, b is {b.shape}; expected their leading axes {a.shape[:-2]} and "
                f"{b.shape[:-2]} to be equal or 1, counted from the right"
            )
        return MatMul.apply(a, b)

    def __rmatmul__(self, other: Any) -> Tensor:
        return operands("matmul", other, self, broadcast=False)[0] @ self

    def __neg__(self) -> Tensor:
        return elementwise.Neg.apply(self)

    def __abs__(self) -> Tensor:
        return elementwise.Abs.apply(self)

    def abs(self) -> Tensor:
        """|x|, element by element."""
        return elementwise.Abs.apply(self)

    def exp(self) -> Tensor:
        """e^x."""
        return elementwise.Exp.apply(_real(self))

    def log(self) -> Tensor:
        """The natural logarithm."""
        return elementwise.Log.apply(_real(self))

    def sqrt(self) -> Tensor:
        """The square root."""
        return elementwise.Sqrt.apply(_real(self))

    def sin(self) -> Tensor:
        """The sine of x in radians."""
        return elementwise.Sin.apply(_real(self))

    def cos(self) -> Tensor:
        """The cosine of x in radians."""
        return elementwise.Cos.apply(_real(self))

    def pow(self, exponent: Any) -> Tensor:
        """x ** exponent."""
        return self**exponent

    def matmul(self, other: Any) -> Tensor:
        """x @ other."""
        return self @ other

    def clip(self, min: float | None = None, max: float | None = None) -> Tensor:
        """Elements below `min` become min, above `max` become max; either may be absent."""
        if min is None and max is None:
            raise ValueError("clip: min and max are both None; expected at least one bound")
        return elementwise.Clip.apply(self, low=min, high=max)

    clamp = clip

    def __eq__(self, other: Any) -> Tensor:  # type: ignore[override]
        return _compare("equal", self, other)

    def __ne__(self, other: Any) -> Tensor:  # type: ignore[override]
        return _compare("not_equal", self, other)

    def __lt__(self, other: Any) -> Tensor:
        return _compare("less", self, other)

    def __le__(self, other: Any) -> Tensor:
        return _compare("less_equal", self, other)

    def __gt__(self, other: Any) -> Tensor:
        return _compare("greater", self, other)

    def __ge__(self, other: Any) -> Tensor:
        return _compare("greater_equal", self, other)

    # Reductions

    def sum(self, dim: Any = None, keepdim: bool = False) -> Tensor:
        """The sum over `dim`: an axis, several, or None for all."""
        return reduction.Sum.apply(self, axes=_reduced("sum", dim, self), keepdims=keepdim)

    def mean(self, dim: Any = None, keepdim: bool = False) -> Tensor:
        """The mean over `dim`: an axis, several, or None for all."""
        return reduction.Mean.apply(_real(self), axes=_reduced("mean", dim, self), keepdims=keepdim)

    def var(self, dim: Any = None, unbiased: bool = True, keepdim: bool = False) -> Tensor:
        """Variance over `dim`; divides by N - 1, or by N for unbiased=False."""
        axes = _reduced("var", dim, self)
        with autograd.no_grad():  # through the mean no gradient flows: what is left of the mean adds up to 0
            mean = self.mean(axes, keepdim=True)
        centred = self - mean
        squares = (centred * centred).sum(axes, keepdim)
        count = self.numel() // max(1, squares.numel())
        return squares / max(0, count - 1 if unbiased else count)

    def std(self, dim: Any = None, unbiased: bool = True, keepdim: bool = False) -> Tensor:
        """The square root of `var`; its gradient is 0 where all elements are equal."""
        return elementwise.Root.apply(self.var(_reduced("std", dim, self), unbiased, keepdim))

    def amax(self, dim: Any = None, keepdim: bool = False) -> Tensor:
        """The largest element over `dim`; equal ones share the gradient."""
        return reduction.Max.apply(self, axes=_filled("amax", _reduced("amax", dim, self), self), keepdims=keepdim)

    def amin(self, dim: Any = None, keepdim: bool = False) -> Tensor:
        """The smallest element over `dim`; equal ones share the gradient."""
        return reduction.Min.apply(self, axes=_filled("amin", _reduced("amin", dim, self), self), keepdims=keepdim)

    def max(self, dim: int | None = None, keepdim: bool = False) -> Any:
        """The largest element; with `dim`, the pair (values, indices) along it."""
        if dim is None:
            axes = _filled("max", _reduced("max", None, self), self)
            return reduction.MaxOfAll.apply(self, axes=axes, keepdims=False)
        return self._along(self.argmax(dim, True), dim, keepdim)

    def min(self, dim: int | None = None, keepdim: bool = False) -> Any:
        """The smallest element; with `dim`, the pair (values, indices) along it."""
        if dim is None:
            axes = _filled("min", _reduced("min", None, self), self)
            return reduction.MinOfAll.apply(self, axes=axes, keepdims=False)
        return self._along(self.argmin(dim, True), dim, keepdim)

    def _along(self, indices: Tensor, dim: int, keepdim: bool) -> Extreme:
        values = self.gather(dim, indices)
        return Extreme(values, indices) if keepdim else Extreme(values.squeeze(dim), indices.squeeze(dim))

    def argmax(self, dim: int | None = None, keepdim: bool = False) -> Tensor:
        """The index of the first largest element along `dim`, or in the flattened tensor."""
        return reduction.ArgMax.apply(self, axis=_searched("argmax", dim, self), keepdims=keepdim)

    def argmin(self, dim: int | None = None, keepdim: bool = False) -> Tensor:
        """The index of the first smallest element along `dim`, or in the flattened tensor."""
        return reduction.ArgMin.apply(self, axis=_searched("argmin", dim, self), keepdims=keepdim)

    def all(self) -> Tensor:
        """True where every element is true."""
        with select.guard(self.array):
            return self.spawn(self.array.all(), None, 0)

    def any(self) -> Tensor:
        """True where at least one element is true."""
        with select.guard(self.array):
            return self.spawn(self.array.any(), None, 0)

    # Shapes

    def reshape(self, *sizes: Any) -> Tensor:
        """The same elements in row-major order under another shape; -1 stands for what is left over."""
        target = sizes_of("reshape", sizes)
        known = int(np.prod([n for n in target if n != -1], dtype=np.int64))
        if target.count(-1) == 1 and known and self.numel() % known == 0:
            target = tuple(self.numel() // known if n == -1 else n for n in target)
        elif -1 in target or known != self.numel():
            raise ValueError(
                f"reshape: shape {target} does not hold the {self.numel()} elements of {self.shape}; "
                "expected sizes with that product, one of which may be -1"
            )
        return shape.Reshape.apply(self, shape=target)

    view = reshape

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Tensor:
        """Axes start_dim to end_dim, both included, become one."""
        if self.ndim == 0:
            return self.reshape(1).flatten(start_dim, end_dim)
        first, last = (axis_of("flatten", d, self) for d in (start_dim, end_dim))
        if first > last:
            raise ValueError(f"flatten: start_dim={start_dim} lies after end_dim={end_dim}; shape is {self.shape}")
        inner = int(np.prod(self.shape[first : last + 1], dtype=np.int64))
        return self.reshape(*self.shape[:first], inner, *self.shape[last + 1 :])

    def permute(self, *order: Any) -> Tensor:
        """The axes in another order: axis i of the result is axis order[i]."""
        wanted = tuple(axis_of("permute", d, self) for d in sizes_of("permute", order))
        if sorted(wanted) != list(range(self.ndim)):
            raise ValueError(f"permute: order {wanted} is no permutation of the {self.ndim} axes of {self.shape}")
        return shape.Permute.apply(self, order=wanted)

    @property
    def T(self) -> Tensor:
        """All axes in reverse order."""
        return self.permute(*reversed(range(self.ndim)))

    @property
    def mT(self) -> Tensor:
        """The last two axes exchanged."""
        return self.transpose(-2, -1)

    def transpose(self, dim0: int, dim1: int) -> Tensor:
        """Axes dim0 and dim1 exchanged."""
        if self.ndim == 0 and {dim0, dim1} <= {0, -1}:
            return self.permute()
        order = list(range(self.ndim))
        a, b = axis_of("transpose", dim0, self), axis_of("transpose", dim1, self)
        order[a], order[b] = order[b], order[a]
        return self.permute(*order)

    def unsqueeze(self, dim: int) -> Tensor:
        """A new axis of length 1 at `dim`."""
        place = dim + self.ndim + 1 if dim < 0 else dim
        if not 0 <= place <= self.ndim:
            raise ValueError(f"unsqueeze: dim={dim} is out of range for shape {self.shape}")
        return self.reshape(*self.shape[:place], 1, *self.shape[place:])

    def squeeze(self, dim: int | None = None) -> Tensor:
        """Without the axes of length 1, or without axis `dim` if its length is 1."""
        gone = _reduced("squeeze", dim, self)
        return self.reshape(tuple(n for i, n in enumerate(self.shape) if not (n == 1 and i in gone)))

    def expand(self, *sizes: Any) -> Tensor:
        """Axes of length 1 repeated to `sizes` without a copy; -1 keeps an axis as it is."""
        wanted = sizes_of("expand", sizes)
        old = (1,) * (len(wanted) - self.ndim) + self.shape
        target = tuple(o if n == -1 else n for n, o in zip(wanted, old, strict=False))
        new = wanted[: max(0, len(wanted) - self.ndim)]
        if -1 in new or len(wanted) < self.ndim or any(o not in (1, n) for n, o in zip(target, old, strict=True)):
            raise ValueError(
                f"expand: shape {self.shape} cannot be expanded to {wanted}; only axes of length 1 stretch, and only "
                "an axis that is there can be kept by -1"
            )
        return shape.Expand.apply(self, shape=target)

    def repeat(self, *counts: Any) -> Tensor:
        """The whole tensor laid out counts[i] times along axis i."""
        wanted = sizes_of("repeat", counts)
        if len(wanted) < self.ndim:
            raise ValueError(f"repeat: {len(wanted)} counts for shape {self.shape}; expected at least {self.ndim}")
        return shape.Repeat.apply(self, counts=wanted)

    def flip(self, *dims: Any) -> Tensor:
        """The elements along `dims` in reverse order."""
        wanted = sizes_of("flip", dims)
        return shape.Flip.apply(self, axes=_reduced("flip", wanted, self) if wanted else ())

    def split(self, size: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
        """Pieces of `size` along `dim`, the last one possibly shorter; or of the sizes in a list.

        An axis of length 0 is one empty piece.
        """
        axis = axis_of("split", dim, self)
        length = self.shape[axis]
        if isinstance(size, int) and size < (1 if length else 0):
            raise ValueError(f"split: size={size}; expected at least 1")
        if isinstance(size, int):
            sizes = [min(size, length - i) for i in range(0, length, size)] if length else [0]
        else:
            sizes = list(size)
        if sum(sizes) != length or any(n < 0 for n in sizes):
            raise ValueError(f"split: sizes {sizes} sum to {sum(sizes)}; axis {axis} of {self.shape} has {length}")
        ends = np.cumsum(sizes).tolist()
        before = (slice(None),) * axis
        return tuple(self[(*before, slice(end - n, end))] for n, end in zip(sizes, ends, strict=True))

    def chunk(self, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
        """At most `chunks` pieces along `dim` of equal size, the last one possibly shorter; of nothing, empty ones."""
        if chunks < 1:
            raise ValueError(f"chunk: chunks={chunks}; expected at least 1")
        length = self.shape[axis_of("chunk", dim, self)]
        return self.split(-(-length // chunks) if length else [0] * chunks, dim)

    def unbind(self, dim: int = 0) -> tuple[Tensor, ...]:
        """The slices along `dim`, without it."""
        before = (slice(None),) * axis_of("unbind", dim, self)
        return tuple(self[(*before, i)] for i in range(self.shape[dim]))

    # Elements

    def __getitem__(self, index: Any) -> Tensor:
        where = plain(index)
        function: type[autograd.Function] = indexing.GetItem if indexing.is_basic(where) else indexing.Take
        try:
            return function.apply(self, index=where)
        except IndexError as error:
            raise IndexError(f"index: {error}; x.shape is {self.shape}") from None
        except TypeError:
            _check_index(where, self)
            raise

    def __iter__(self) -> Iterator[Tensor]:
        if self.ndim == 0:
            raise TypeError("iter: a 0-d tensor cannot be iterated over")
        return (self[i] for i in range(self.shape[0]))

    def gather(self, dim: int, index: Any) -> Tensor:
        """y[i][j] = x[index[i][j]][j] for dim=0, y[i][j] = x[i][index[i][j]] for dim=1, and so on."""
        if self.ndim == 0 and dim in (0, -1) and np.ndim(plain(index)) == 0:
            return self.reshape(1).gather(0, plain(index).reshape(1)).reshape(())
        axis = axis_of("gather", dim, self)
        where = index if hasattr(index, "spawn") else self.spawn(select.as_array(index), None, 0)
        if dtypes.is_float(where.dtype) or where.ndim != self.ndim:
            raise ValueError(
                f"gather: index is {where.dtype} of shape {where.shape}; "
                f"expected integers with the {self.ndim} axes of x, {self.shape}"
            )
        if any(m > n for i, (m, n) in enumerate(zip(where.shape, self.shape, strict=True)) if i != axis):
            raise ValueError(
                f"gather: index has shape {where.shape}, x has {self.shape}; expected no axis of the index but {axis} "
                "to be longer than x's"
            )
        return indexing.Gather.apply(self, where, axis=axis)


def _compare(relation: str, a: Any, b: Any) -> Tensor:
    return elementwise.Compare.apply(*operands(relation, a, b), relation=relation)


def _real(x: Any) -> Tensor:
    return x if x.array.dtype in dtypes.FLOATS else x.to(dtypes.float32)


def _check_index(index: Any, x: Any) -> None:
    """RuntimeError where an array of the index is on a GPU and x is not; the other way NumPy's arrays are copied."""
    for part in index if isinstance(index, tuple) else (index,):
        if select.is_array(part) and select.device_of(part) not in ("cpu", x.device):
            raise RuntimeError(
                f"index: x is on {x.device}, the index on {select.device_of(part)}; expected one device; "
                f"use index.to({x.device!r})"
            )


def _reduced(operation: str, dim: Any, x: Any) -> tuple[int, ...]:
    """The axes that `dim` names: all of them for None and for (); none of a 0-d tensor, where 0 and -1 name nothing."""
    if dim is None or dim == ():
        return tuple(range(x.ndim))
    if x.ndim == 0 and dim in (0, -1, (0,), (-1,)):
        return ()
    return axes_of(operation, dim, x)


def _searched(operation: str, dim: int | None, x: Any) -> int | None:
    """The axis along which an extreme is looked for, which must have elements; None for all of x."""
    axes = _filled(operation, _reduced(operation, dim, x), x)
    return None if dim is None or not axes else axes[0]


def _filled(operation: str, axes: tuple[int, ...], x: Any) -> tuple[int, ...]:
    """The axes, if there are elements along all of them; else a ValueError."""
    if not all(x.shape[axis] for axis in axes):
        raise ValueError(
            f"{operation}: nothing has no extreme; shape is {x.shape}; expected at least one element along "
            f"{'every axis' if len(axes) == x.ndim else f'axes {axes}'}"
        )
    return axes


def plain(value: Any) -> Any:
    """Arrays in place of the Tensors of an index or a value."""
    if hasattr(value, "spawn"):
        return value.array
    return tuple(plain(v) for v in value) if isinstance(value, tuple) else value
