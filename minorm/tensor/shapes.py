"""Methods that change the shape of a Tensor, split it, or read its elements.

The first base class of Tensor is here; the classes of operators and reductions are derived from it. The files of these
base classes do not import Tensor, so they use the type variable TensorT in place of Tensor. Names and arguments are
PyTorch's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from minorm import devices
from minorm.devices import dtypes
from minorm.graph import graph
from minorm.kernels import select
from minorm.ops import indexing
from minorm.ops import shape as layout
from minorm.ops.operands import axis_of, check_room, plain, reduced_axes, sizes_of
from minorm.support.argument_texts import AXIS
from minorm.support.documented import documented_methods

TensorT = TypeVar("TensorT", bound="Shapes[Any]")


ARGUMENTS = {
    "dim": AXIS,
    "squeeze.dim": "one or several axes, of which those longer than 1 are kept; None means all axes",
    "unsqueeze.dim": "the position of the new axis; negative numbers count from the end",
    "dim0": AXIS,
    "dim1": AXIS,
    "start_dim": "the first axis",
    "end_dim": "the last axis, included",
    "sizes": "the length of each axis, as numbers or as one tuple",
    "shape": "the same as sizes, as a keyword",
    "size": "the same as sizes, as a keyword",
    "order": "the axes of x, as numbers or as one tuple",
    "permute.dims": "the same as order, as a keyword",
    "counts": "the number of copies along each axis, as numbers or as one tuple",
    "repeats": "the same as counts, as a keyword",
    "axes": "the axes, as numbers or as one tuple",
    "flip.dims": "the same as axes, as a keyword",
    "split_size": "the length of a piece, or a list with the length of each",
    "chunks": "the number of pieces, at least 1",
    "index": (
        "integers with as many axes as x; only along `dim` may index be longer than x. Negative numbers count from the "
        "end"
    ),
}


@documented_methods(ARGUMENTS)
class Shapes(Generic[TensorT]):
    """Methods that change the shape or read elements."""

    __slots__ = ()

    if TYPE_CHECKING:  # provided by the Tensor
        array: Any
        from_array: Any

        @property
        def shape(self) -> tuple[int, ...]: ...  # noqa: D102
        @property
        def ndim(self) -> int: ...  # noqa: D102
        def numel(self) -> int: ...  # noqa: D102

    def reshape(self, *sizes: Any, shape: Any = None) -> TensorT:
        """Return the same elements, in row-major order, in another shape.

        One size may be -1. This size is then computed from the other sizes.

        Raises ValueError if the sizes do not fit the number of elements.

        Example:
            >>> mn.arange(6).reshape(2, -1)
            tensor([[0, 1, 2],
                    [3, 4, 5]])
        """
        target = sizes_of("reshape", sizes if shape is None else (shape,))
        known, size = math.prod([n for n in target if n != -1]), self.numel()
        if target.count(-1) == 1 and known and size % known == 0:
            target = tuple([size // known if n == -1 else n for n in target])
        elif -1 in target or known != size:
            raise ValueError(
                f"reshape: shape {target} does not hold the {self.numel()} elements of {self.shape}; "
                "expected sizes whose product is the number of elements; one size may be -1"
            )
        return layout.Reshape.apply(self, shape=target)

    view = reshape

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> TensorT:
        """Join the axes from start_dim to end_dim (included) into one axis.

        Example:
            >>> mn.zeros(2, 3, 4).flatten(1).shape
            (2, 12)
        """
        if self.ndim == 0:
            return self.reshape(1).flatten(start_dim, end_dim)
        first, last = (axis_of("flatten", d, self) for d in (start_dim, end_dim))
        if first > last:
            raise ValueError(f"flatten: start_dim={start_dim} lies after end_dim={end_dim}; shape is {self.shape}")
        inner = math.prod(self.shape[first : last + 1])
        return self.reshape(*self.shape[:first], inner, *self.shape[last + 1 :])

    def permute(self, *order: Any, dims: Any = None) -> TensorT:
        """Reorder the axes: axis i of the result is axis order[i] of x. The result is a view.

        Raises ValueError unless the order names each axis once.

        Example:
            >>> mn.zeros(2, 3, 4).permute(2, 0, 1).shape
            (4, 2, 3)
        """
        wanted = tuple(axis_of("permute", d, self) for d in sizes_of("permute", order if dims is None else (dims,)))
        if sorted(wanted) != list(range(self.ndim)):
            raise ValueError(f"permute: order {wanted} is no permutation of the {self.ndim} axes of {self.shape}")
        return layout.Permute.apply(self, order=wanted)

    @property
    def T(self) -> TensorT:
        """A view with all axes in reverse order."""
        return self.permute(*reversed(range(self.ndim)))

    @property
    def mT(self) -> TensorT:
        """A view with the last two axes swapped."""
        return self.transpose(-2, -1)

    def transpose(self, dim0: int, dim1: int) -> TensorT:
        """Swap axes dim0 and dim1. The result is a view.

        Example:
            >>> mn.zeros(2, 3).transpose(0, 1).shape
            (3, 2)
        """
        if self.ndim == 0 and {dim0, dim1} <= {0, -1}:
            return self.permute()
        order = list(range(self.ndim))
        a, b = axis_of("transpose", dim0, self), axis_of("transpose", dim1, self)
        order[a], order[b] = order[b], order[a]
        return self.permute(*order)

    def unsqueeze(self, dim: int) -> TensorT:
        """Insert a new axis of length 1 at `dim`."""
        place = dim + self.ndim + 1 if dim < 0 else dim
        if not 0 <= place <= self.ndim:
            raise ValueError(f"unsqueeze: dim={dim} is out of range for shape {self.shape}")
        return self.reshape(*self.shape[:place], 1, *self.shape[place:])

    def squeeze(self, dim: Any = None) -> TensorT:
        """Remove all axes of length 1. If `dim` is given, remove only axes that are in `dim` and have length 1."""
        gone = () if dim == () else reduced_axes("squeeze", dim, self)
        return self.reshape(tuple(n for i, n in enumerate(self.shape) if not (n == 1 and i in gone)))

    def expand(self, *sizes: Any, size: Any = None) -> TensorT:
        """Expand axes of length 1 to the lengths `sizes`, without copying. A size of -1 keeps the length of its axis.

        Raises ValueError if an axis has a length other than 1 that differs from the size given for the axis.

        Example:
            >>> mn.tensor([[1], [2]]).expand(-1, 3)
            tensor([[1, 1, 1],
                    [2, 2, 2]])
        """
        wanted = sizes_of("expand", sizes if size is None else (size,))
        old = (1,) * (len(wanted) - self.ndim) + self.shape
        target = tuple(o if n == -1 else n for n, o in zip(wanted, old, strict=False))
        new = wanted[: max(0, len(wanted) - self.ndim)]
        if -1 in new or len(wanted) < self.ndim or any(o not in (1, n) for n, o in zip(target, old, strict=True)):
            raise ValueError(
                f"expand: shape {self.shape} cannot be expanded to {wanted}; only axes of length 1 can be expanded, "
                "and -1 keeps the length of an axis that x has"
            )
        check_room("expand", target)
        return layout.Expand.apply(self, shape=target)

    def repeat(self, *counts: Any, repeats: Any = None) -> TensorT:
        """Repeat the whole tensor counts[i] times along axis i.

        Example:
            >>> mn.tensor([1, 2]).repeat(2, 2)
            tensor([[1, 2, 1, 2],
                    [1, 2, 1, 2]])
        """
        wanted = sizes_of("repeat", counts if repeats is None else (repeats,))
        if len(wanted) < self.ndim:
            raise ValueError(f"repeat: {len(wanted)} counts for shape {self.shape}; expected at least {self.ndim}")
        check_room(
            "repeat", [m * n for m, n in zip(wanted, (1,) * (len(wanted) - self.ndim) + self.shape, strict=True)]
        )
        return layout.Repeat.apply(self, counts=wanted)

    def flip(self, *axes: Any, dims: Any = None) -> TensorT:
        """Reverse the elements along `axes`: y[i] = x[n - 1 - i].

        Example:
            >>> mn.tensor([[1, 2], [3, 4]]).flip(0)
            tensor([[3, 4],
                    [1, 2]])
        """
        wanted = sizes_of("flip", axes if dims is None else (dims,))
        return layout.Flip.apply(self, axes=reduced_axes("flip", wanted, self) if wanted else ())

    def split(self, split_size: int | Sequence[int], dim: int = 0) -> tuple[TensorT, ...]:
        """Split x along `dim` into pieces of length `split_size`, or of the lengths in a list.

        The pieces are views. If `split_size` is a number, the last piece may be shorter. An axis of length 0 gives one
        empty piece. Raises ValueError if the lengths in the list do not add up to the length of the axis.

        Example:
            >>> mn.arange(5).split(2)
            (tensor([0, 1]), tensor([2, 3]), tensor([4]))
        """
        axis = axis_of("split", dim, self)
        length = self.shape[axis]
        if isinstance(split_size, int) and split_size < (1 if length else 0):
            raise ValueError(f"split: split_size={split_size}; expected at least 1")
        if isinstance(split_size, int):
            sizes = [min(split_size, length - i) for i in range(0, length, split_size)] if length else [0]
        else:
            sizes = list(split_size)
        if sum(sizes) != length or any(n < 0 for n in sizes):
            raise ValueError(
                f"split: sizes {sizes} sum to {sum(sizes)}; axis {axis} of {self.shape} has length {length}"
            )
        ends = np.cumsum(sizes).tolist()
        before = (slice(None),) * axis
        return tuple(self[(*before, slice(end - n, end))] for n, end in zip(sizes, ends, strict=True))

    def chunk(self, chunks: int, dim: int = 0) -> tuple[TensorT, ...]:
        """Split x along `dim` into at most `chunks` views of equal length; the last view may be shorter.

        Example:
            >>> mn.arange(5).chunk(2)
            (tensor([0, 1, 2]), tensor([3, 4]))
        """
        if chunks < 1:
            raise ValueError(f"chunk: chunks={chunks}; expected at least 1")
        length = self.shape[axis_of("chunk", dim, self)]
        return self.split(-(-length // chunks) if length else [0] * chunks, dim)

    def unbind(self, dim: int = 0) -> tuple[TensorT, ...]:
        """Return the slices along `dim`. The slices do not have this axis."""
        before = (slice(None),) * axis_of("unbind", dim, self)
        return tuple(self[(*before, i)] for i in range(self.shape[dim]))

    # Elements

    def __getitem__(self, index: Any) -> TensorT:
        where = plain(index)
        function: type[graph.Function] = indexing.GetItem
        if not indexing.is_basic(where):
            where, function = indexing.as_masks(where), indexing.Take
            if (steps := indexing.in_two_steps(where)) is not None:
                return self[steps[0]][steps[1]]
        try:
            return function.apply(self, index=where)
        except (IndexError, OverflowError) as error:
            hint = "; the number of a scalar is x.item()" if self.ndim == 0 else ""
            raise IndexError(f"index: {error}; x.shape is {self.shape}{hint}") from None
        except TypeError:
            _check_index(where, self)
            raise

    def __iter__(self) -> Iterator[TensorT]:
        if self.ndim == 0:
            raise TypeError("iter: a 0-d tensor cannot be iterated over")
        return (self[i] for i in range(self.shape[0]))

    def gather(self, dim: int, index: Any) -> TensorT:
        """y[i][j] = x[index[i][j]][j] for dim=0, and y[i][j] = x[i][index[i][j]] for dim=1.

        For more axes, the index along `dim` is replaced in the same way. y has index's shape. Raises ValueError if
        index has a different number of axes, or if it is longer than x along an axis other than `dim`.

        Example:
            >>> mn.tensor([[1, 2], [3, 4]]).gather(1, mn.tensor([[1], [0]]))
            tensor([[2],
                    [3]])
        """
        if self.ndim == 0 and dim in (0, -1) and np.ndim(plain(index)) == 0:
            return self.reshape(1).gather(0, plain(index).reshape(1)).reshape(())
        axis = axis_of("gather", dim, self)
        where = index if hasattr(index, "from_array") else self.from_array(select.as_array(index))
        if dtypes.is_float(where.dtype) or where.ndim != self.ndim:
            raise ValueError(
                f"gather: index is {where.dtype} of shape {where.shape}; "
                f"expected integers with {self.ndim} axes, as many as x of shape {self.shape}"
            )
        if any(m > n for i, (m, n) in enumerate(zip(where.shape, self.shape, strict=True)) if i != axis):
            raise ValueError(
                f"gather: index has shape {where.shape}, x has {self.shape}; expected an index that is not longer "
                f"than x along any axis except axis {axis}"
            )
        return indexing.Gather.apply(self, where, axis=axis)


class Size(tuple[int, ...]):
    """PyTorch's class of shapes. In minorm, the shape of a Tensor is a plain tuple, which equals a Size."""

    __slots__ = ()

    def numel(self) -> int:
        """Return the number of elements of this shape."""
        return math.prod(self)


def _check_index(index: Any, x: Any) -> None:
    """Raise RuntimeError if the index is on a GPU and x is not on that GPU. An index on the CPU fits any x."""
    for part in index if isinstance(index, tuple) else (index,):
        if select.is_array(part) and devices.device_of(part) not in ("cpu", x.device):
            raise RuntimeError(
                f"index: x is on {x.device}, the index on {devices.device_of(part)}; expected one device; "
                f"use index.to({x.device!r})"
            )
