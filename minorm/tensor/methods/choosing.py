"""Methods that choose elements by index or by a mask, and methods that rearrange axes."""

from __future__ import annotations

import math
from typing import Any, Generic

import numpy as np

from minorm import devices
from minorm.devices import dtypes
from minorm.ops.indexing import own, rolled
from minorm.ops.operands import axis_of, check_room, sizes_of
from minorm.support.argument_texts import AXIS
from minorm.support.documented import documented_methods
from minorm.tensor.operators import Operators
from minorm.tensor.shapes import TensorT

ARGUMENTS = {
    "dim": AXIS,
    "axis0": AXIS,
    "axis1": AXIS,
    "source": "the axes to move, one or several",
    "destination": "the new position of each axis",
    "sizes": "the lengths of the new axes; one may be -1, which is then computed from the others",
    "other": "a Tensor that has the wanted shape",
    "size": "the wanted shape",
    "dims": "the number of copies along each axis; fewer numbers than axes apply to the last axes",
    "roll.dims": "one or several axes; None moves elements of the flattened tensor",
    "split_sizes": "the lengths of the pieces",
    "start": "the first index; negative numbers count from the end",
    "length": "the number of elements to keep along `dim`",
    "index": "integers, the indices along `dim`",
    "select.index": "the index; negative numbers count from the end",
    "index_select.index": "a vector of integers, the indices along `dim`",
    "take_along_dim.indices": "integers, the indices along `dim`",
    "take_along_dim.dim": "an axis; None is the flattened tensor",
    "shifts": "how far the elements move, a number for each of `dims`",
    "repeats": "the number of repeats: one number, or a number for each index; None takes the numbers from x",
    "repeat_interleave.dim": "an axis; None is the flattened tensor",
    "output_size": "accepted but ignored, because the length is always computed",
    "mask": "a bool Tensor that broadcasts with x",
    "as_tuple": "True returns a vector of indices for each axis, False a matrix with a row for each element",
    "count_nonzero.dim": "an axis or several; None means all axes",
    "indices_or_sections": "the number of pieces, or a list or Tensor with the indices where pieces end",
    "indices": "the indices where pieces end, as a keyword",
    "sections": "the number of pieces, as a keyword",
    "dimension": AXIS,
    "unfold.size": "the number of elements in a window",
    "step": "the distance to the next window, at least 1",
}


@documented_methods(ARGUMENTS)
class Choosing(Operators[TensorT], Generic[TensorT]):
    """Methods that choose elements, or move them."""

    __slots__ = ()

    # Axes

    def t(self) -> TensorT:
        """Return the transposed matrix. A vector or a single number does not change."""
        if self.ndim > 2:
            raise ValueError(f"t: x has shape {self.shape}; expected at most 2 axes; use x.mT or x.transpose(i, j)")
        return self.permute(*reversed(range(self.ndim)))

    def swapaxes(self, axis0: int, axis1: int) -> TensorT:
        """Swap axes axis0 and axis1. The result is a view.

        Example:
            >>> mn.zeros(2, 3).swapaxes(0, 1).shape
            (3, 2)
        """
        return self.transpose(axis0, axis1)

    swapdims = Operators.transpose

    def movedim(self, source: Any, destination: Any) -> TensorT:
        """Move axis source[i] to position destination[i]; the other axes keep their order.

        Raises ValueError if source and destination have different lengths, or if one of them names an axis twice.

        Example:
            >>> mn.zeros(2, 3, 4).movedim(0, 2).shape
            (3, 4, 2)
        """
        start, end = (sizes_of("movedim", (dims,) if isinstance(dims, int) else tuple(dims)) for dims in
                      (source, destination))  # fmt: skip
        if self.ndim == 0:
            return self.permute()
        start, end = (tuple(axis_of("movedim", d, self) for d in dims) for dims in (start, end))
        if len(start) != len(end) or len(set(start)) < len(start) or len(set(end)) < len(end):
            raise ValueError(
                f"movedim: source={source}, destination={destination}; expected equal numbers of axes, and no axis "
                "twice"
            )
        rest = iter([i for i in range(self.ndim) if i not in start])
        where = dict(zip(end, start, strict=True))
        return self.permute(*[where[i] if i in where else next(rest) for i in range(self.ndim)])

    moveaxis = movedim

    def unflatten(self, dim: int, sizes: Any) -> TensorT:
        """Split axis `dim` into several axes with the lengths `sizes`. One size may be -1.

        Raises ValueError if the product of the sizes is not the length of the axis.

        Example:
            >>> mn.zeros(2, 6).unflatten(1, (3, -1)).shape
            (2, 3, 2)
        """
        axis = axis_of("unflatten", dim, self)
        wanted = sizes_of("unflatten", (sizes,))
        known = math.prod(n for n in wanted if n != -1)
        length = self.shape[axis]
        if -1 in wanted and known and length % known == 0:
            wanted = tuple(length // known if n == -1 else n for n in wanted)
        if math.prod(wanted) != length or -1 in wanted:
            raise ValueError(f"unflatten: sizes {wanted} do not make up the {length} of axis {axis} of {self.shape}")
        return self.reshape(*self.shape[:axis], *wanted, *self.shape[axis + 1 :])

    def expand_as(self, other: Any) -> TensorT:
        """Expand x to the shape of `other`."""
        return self.expand(other.shape)

    def view_as(self, other: Any) -> TensorT:
        """Return the elements of x in the shape of `other`."""
        return self.reshape(other.shape)

    reshape_as = view_as

    def broadcast_to(self, size: Any) -> TensorT:
        """Expand x to `size`."""
        return self.expand(size)

    def ravel(self) -> TensorT:
        """Return the elements as one vector."""
        return self.reshape(-1)

    def tile(self, *dims: Any) -> TensorT:
        """Repeat x dims[i] times along axis i. If `dims` has fewer numbers than x has axes, `dims` applies to the last
        axes.
        """
        counts = sizes_of("tile", dims)
        return self.repeat((1,) * (self.ndim - len(counts)) + counts)

    def fliplr(self) -> TensorT:
        """Reverse axis 1."""
        return self.flip(1)

    def flipud(self) -> TensorT:
        """Reverse axis 0."""
        return self.flip(0)

    def split_with_sizes(self, split_sizes: Any, dim: int = 0) -> tuple[TensorT, ...]:
        """Split x along `dim` into views with the lengths `split_sizes`.

        Raises ValueError if the sizes do not add up to the length of the axis.

        Example:
            >>> mn.arange(5).split_with_sizes((2, 3))
            (tensor([0, 1]), tensor([2, 3, 4]))
        """
        return self.split(split_sizes, dim)

    def tensor_split(
        self, indices_or_sections: Any = None, dim: int = 0, *, indices: Any = None, sections: Any = None
    ) -> tuple[TensorT, ...]:
        """Split x along `dim` into views of nearly equal length, with longer views first, or at the given indices.

        Raises ValueError for fewer than 1 piece.

        Example:
            >>> mn.arange(5).tensor_split(2)
            (tensor([0, 1, 2]), tensor([3, 4]))
            >>> mn.arange(5).tensor_split((1, 3))
            (tensor([0]), tensor([1, 2]), tensor([3, 4]))
        """
        given = [value for value in (indices_or_sections, indices, sections) if value is not None]
        if len(given) != 1:
            raise TypeError(
                f"tensor_split: {len(given)} of indices_or_sections, indices and sections are given; expected exactly "
                "one"
            )
        axis = axis_of("tensor_split", dim, self)
        ends = given[0].tolist() if hasattr(given[0], "tolist") else given[0]
        if isinstance(ends, int):
            if ends < 1:
                raise ValueError(f"tensor_split: sections is {ends}; expected at least 1; x.shape is {self.shape}")
            length, longer = divmod(self.shape[axis], ends)
            ends = [i * length + min(i, longer) for i in range(1, ends)]
        ends = sizes_of("tensor_split", (ends,))
        before = (slice(None),) * axis
        return tuple(self[(*before, slice(a, b))] for a, b in zip((0, *ends), (*ends, None), strict=True))

    # By place

    def unfold(self, dimension: int, size: int, step: int) -> TensorT:
        """y[..., i, ..., j] = x[..., i * step + j, ...]: element j of window i along an axis.

        The elements of each window are along the last axis of y. The result is a copy, while PyTorch's is a view.
        Raises ValueError for a window longer than the axis.

        Example:
            >>> mn.arange(5).unfold(0, size=3, step=2)
            tensor([[0, 1, 2],
                    [2, 3, 4]])
        """
        x: Any = self if self.ndim else self.reshape(1)
        axis = axis_of("unfold", dimension, x)
        n = x.shape[axis]
        if not 0 <= size <= n or step < 1:
            raise ValueError(
                f"unfold: size={size}, step={step}; expected a size from 0 to {n}, the length of axis {axis}, and a "
                f"step of at least 1; x.shape is {self.shape}"
            )
        count = (n - size) // step + 1
        check_room("unfold", (*x.shape, size))
        places = devices.constant_of((np.arange(count)[:, None] * step + np.arange(size)).reshape(-1), x.array)
        rows = x[(*(slice(None),) * axis, places)].reshape(*x.shape[:axis], count, size, *x.shape[axis + 1 :])
        windows: TensorT = rows.movedim(axis + 1, -1)
        return windows if self.ndim else windows.reshape(size)

    def narrow(self, dim: int, start: int, length: int) -> TensorT:
        """Return x[start : start + length] along `dim`, as a view.

        Raises ValueError if start or start + length is outside the axis.

        Example:
            >>> mn.arange(5).narrow(0, 1, 3)
            tensor([1, 2, 3])
        """
        axis = axis_of("narrow", dim, self)
        n = self.shape[axis]
        first = int(start) + (n if int(start) < 0 else 0)
        if length < 0 or not 0 <= first <= n - length:
            raise ValueError(
                f"narrow: start={start}, length={length}; expected start and length inside axis {axis} of {self.shape}"
            )
        return self[(*(slice(None),) * axis, slice(first, first + length))]

    def select(self, dim: int, index: int) -> TensorT:
        """Return x[index] along `dim`, as a view without this axis.

        Example:
            >>> mn.tensor([[1, 2], [3, 4]]).select(1, 0)
            tensor([1, 3])
        """
        return self[(*(slice(None),) * axis_of("select", dim, self), int(index))]

    def index_select(self, dim: int, index: Any) -> TensorT:
        """Return a copy of the slices of x whose indices along `dim` are in `index`.

        Example:
            >>> mn.tensor([[1, 2], [3, 4]]).index_select(1, mn.tensor([1, 1, 0]))
            tensor([[2, 2, 1],
                    [4, 4, 3]])
        """
        if index.ndim > 1 or index.dtype.kind not in "iu":
            raise ValueError(
                f"index_select: index is {index.dtype} of shape {index.shape}; expected a vector of integers"
            )
        if self.ndim == 0:
            one: Any = self.reshape(1)
            return one.index_select(0, index).reshape(())
        return self[(*(slice(None),) * axis_of("index_select", dim, self), index.reshape(-1).array)]

    def take_along_dim(self, indices: Any, dim: int | None = None) -> TensorT:
        """Do the same as gather(), but broadcast `indices` to x along the other axes. dim=None flattens x first.

        Example:
            >>> x = mn.tensor([[3, 1], [2, 4]])
            >>> x.take_along_dim(x.argmax(1, keepdim=True), dim=1)
            tensor([[3],
                    [4]])
        """
        if dim is None:
            return self.reshape(-1).gather(0, indices.reshape(-1))
        axis = axis_of("take_along_dim", dim, self)
        shape = list(np.broadcast_shapes(
            (*self.shape[:axis], 1, *self.shape[axis + 1 :]), (*indices.shape[:axis], 1, *indices.shape[axis + 1 :])
        ))  # fmt: skip
        ours, theirs = ([*shape[:axis], n.shape[axis], *shape[axis + 1 :]] for n in (self, indices))
        return self.expand(ours).gather(axis, indices.expand(theirs))

    def roll(self, shifts: Any, dims: Any = None) -> TensorT:
        """y[(i + shifts) mod n] = x[i] along `dims`: elements that are moved past the end come back at the start.

        Example:
            >>> mn.arange(5).roll(2)
            tensor([3, 4, 0, 1, 2])
            >>> mn.tensor([[1, 2], [3, 4]]).roll(1, dims=1)
            tensor([[2, 1],
                    [4, 3]])
        """
        if dims is None:
            flat: Any = self.reshape(-1)
            return flat.roll(shifts, 0).reshape(self.shape)
        steps, axes = (sizes_of("roll", (v,) if isinstance(v, int) else tuple(v)) for v in (shifts, dims))
        if len(steps) != len(axes):
            raise ValueError(f"roll: shifts={shifts}, dims={dims}; expected one shift for each of dims")
        x: Any = self
        for step, dim in zip(steps, axes, strict=True):
            x = rolled(x, step, axis_of("roll", dim, x))
        return x if x is not self else self.clone()

    def repeat_interleave(
        self, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None  # noqa: ARG002
    ) -> TensorT:  # fmt: skip
        """Repeat each element `repeats` times along `dim`, or in the flattened tensor if dim is None.

        If `repeats` is missing, x holds the counts: the result has the number 0 x[0] times, then the number 1 x[1]
        times, and so on.

        Example:
            >>> mn.tensor([7, 8]).repeat_interleave(2)
            tensor([7, 7, 8, 8])
            >>> mn.tensor([7, 8]).repeat_interleave(mn.tensor([1, 3]), dim=0)
            tensor([7, 8, 8, 8])
        """
        if repeats is None:
            return self.from_array(devices.namespace(self.array).arange(self.numel())).repeat_interleave(self)
        x: Any = self.reshape(-1) if dim is None or self.ndim == 0 else self
        axis = axis_of("repeat_interleave", 0 if dim is None else dim, x)
        counts = repeats.cpu().array if hasattr(repeats, "from_array") else repeats
        counts = np.broadcast_to(own(np.asarray(counts)), (x.shape[axis],))
        check_room("repeat_interleave", (int(counts.sum(dtype=np.float64)),))
        places = devices.constant_of(np.repeat(np.arange(x.shape[axis]), counts), x.array)
        return x[(*(slice(None),) * axis, places)]

    # By a mask

    def masked_select(self, mask: Any) -> TensorT:
        """Return a vector of the elements where the mask is True. x and the mask are broadcast to one shape."""
        if mask.dtype != dtypes.bool:
            raise TypeError(f"masked_select: mask is {mask.dtype}; expected bool; compare first, as in x > 0")
        shape = np.broadcast_shapes(self.shape, mask.shape)
        return self.expand(shape)[mask.expand(shape)]

    def nonzero(self, *, as_tuple: bool = False) -> Any:
        """Return the indices of the elements that are not 0, with a row for each element.

        With as_tuple=True, return a vector for each axis.
        """
        with devices.on_device_of(self.array):
            places = self.array.nonzero() if self.ndim else (np.zeros(int(bool(self.array)), np.int64),)
            if as_tuple:
                return tuple(self.from_array(place) for place in places)
            if not self.ndim:
                return self.from_array(np.zeros((len(places[0]), 0), np.int64))
            return self.from_array(devices.namespace(self.array).stack(places, 1))

    def argwhere(self) -> TensorT:
        """Return the indices of the elements that are not 0, with a row for each element."""
        return self.nonzero()

    def count_nonzero(self, dim: Any = None) -> TensorT:
        """Count the elements that are not 0, along `dim` or in total."""
        counted: Any = self != 0
        return counted.sum(dim)
