"""Typical mistakes in lab 0: the class Right has the right functions, and each subclass has one mistake."""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.labs.checks.variants.lab00_axes import V, translated
from minorm.labs.judge.recognizing import Recognizer

Axes = tuple[int, ...]
Loops = list[tuple[int, int]]
KEPT = {"batch": (1,), "instance": (0, 1), "layer": (0,), "group": (0, 1)}


class Right:
    """The right functions of the lab."""

    def reduced_axes(self, kind: str, ndim: int) -> Any:
        """Return the reduced axes of a kind of normalization."""
        return tuple(i for i in range(ndim + (kind == "group")) if i not in KEPT[kind])

    def to_mask(self, axes: Axes) -> Any:
        """Return the axes as an integer."""
        return sum(2**axis for axis in set(axes))

    def to_axes(self, mask: int) -> Any:
        """Return the axes of a mask."""
        return tuple(i for i in range(mask.bit_length()) if mask >> i & 1)

    def split_groups(self, x: Any, num_groups: int) -> Any:
        """Cut axis 1 into groups."""
        if num_groups < 1 or x.shape[1] % num_groups:
            raise ValueError(f"num_groups={num_groups} must divide channels={x.shape[1]}")
        return self._split(x, num_groups)

    def _split(self, x: Any, num_groups: int) -> Any:
        return x.reshape(x.shape[0], num_groups, x.shape[1] // num_groups, *x.shape[2:])

    def same_row(self, shape: Axes, axes: Axes, index: Axes) -> Any:
        """Return an array of this shape that is True for all elements in the same row as the element at `index`."""
        row = np.zeros(shape, bool)
        row[tuple(slice(None) if axis in axes else i for axis, i in enumerate(index))] = True
        return row

    def loops(self, shape: Axes, axes: Axes) -> Any:
        """Return the loops over kept axes and those over reduced axes."""
        keep: Loops = []
        reduce: Loops = []
        for axis, count in enumerate(shape):
            if self._is_no_loop(count):
                continue
            step = self._step(shape, axis)
            found = reduce if axis in axes else keep
            if found and self._meet(found[-1], count, step):
                found[-1] = (found[-1][0] * count, step)
            else:
                found.append((count, step))
        return keep, reduce

    def _is_no_loop(self, count: int) -> bool:
        return count == 1

    def _step(self, shape: Axes, axis: int) -> int:
        return int(np.prod(shape[axis + 1 :]))

    def _meet(self, outer: tuple[int, int], count: int, step: int) -> bool:
        return outer[1] == count * step

    def positions(self, some_loops: Loops) -> Any:
        """Return the positions that a list of loops visits."""
        found = [0]
        for count, step in some_loops:
            found = [p + i * step for p in found for i in range(count)]
        return found

    def means_by_loops(self, flat: Any, keep: Loops, reduce: Loops) -> Any:
        """Return the mean of each row."""
        inside = np.array(self.positions(reduce))
        return np.array([flat[start + inside].mean() for start in self.positions(keep)])


# Task 0.1


class KeptReturned(Right):
    """the kept axes are returned; the reduced axes are needed, over which the means are taken"""

    def reduced_axes(self, kind: str, ndim: int) -> Any:
        return KEPT[kind]


class BatchOverBatch(Right):
    """for "batch" only axis 0 is reduced; all positions of a channel have to share its mean"""

    def reduced_axes(self, kind: str, ndim: int) -> Any:
        return (0,) if kind == "batch" else super().reduced_axes(kind, ndim)


class BatchWithoutBatch(Right):
    """for "batch" axis 0 is not reduced; all samples have to share a channel's mean"""

    def reduced_axes(self, kind: str, ndim: int) -> Any:
        return tuple(range(2, ndim)) if kind == "batch" else super().reduced_axes(kind, ndim)


class LayerLastAxis(Right):
    """for "layer" only the last axis is reduced, as in text models; here "layer" has to reduce all axes of a sample"""

    def reduced_axes(self, kind: str, ndim: int) -> Any:
        return (ndim - 1,) if kind == "layer" else super().reduced_axes(kind, ndim)


class LayerWithoutChannels(Right):
    """for "layer" the channels are kept; a sample has to have one mean over all its channels"""

    def reduced_axes(self, kind: str, ndim: int) -> Any:
        return super().reduced_axes("instance" if kind == "layer" else kind, ndim)


class LayerOverAll(Right):
    """for "layer" the batch axis 0 is reduced, too; each sample has to have its own mean"""

    def reduced_axes(self, kind: str, ndim: int) -> Any:
        return tuple(range(ndim)) if kind == "layer" else super().reduced_axes(kind, ndim)


class InstanceWithChannels(Right):
    """for "instance" the axes of "layer" are returned; each channel of a sample has to have its own mean"""

    def reduced_axes(self, kind: str, ndim: int) -> Any:
        return super().reduced_axes("layer" if kind == "instance" else kind, ndim)


class GroupBeforeSplit(Right):
    """for "group" the axes are those of x before the split; after the split there is one axis more"""

    def reduced_axes(self, kind: str, ndim: int) -> Any:
        return super().reduced_axes("instance" if kind == "group" else kind, ndim)


class GroupWithoutChannels(Right):
    """for "group" axis 2 is not reduced; the channels of a group have to share their mean"""

    def reduced_axes(self, kind: str, ndim: int) -> Any:
        return tuple(range(3, ndim + 1)) if kind == "group" else super().reduced_axes(kind, ndim)


class GroupWithBatch(Right):
    """for "group" the batch axis 0 is reduced, too; each sample has to have its own means"""

    def reduced_axes(self, kind: str, ndim: int) -> Any:
        return (0, *range(2, ndim + 1)) if kind == "group" else super().reduced_axes(kind, ndim)


class FourAxesOnly(Right):
    """`ndim` is ignored and the axes are always those of images with four axes"""

    def reduced_axes(self, kind: str, ndim: int) -> Any:
        return super().reduced_axes(kind, 4)


# Task 0.2


class BitsReversed(Right):
    """the bits are in the wrong order: axis 0 has to be the last binary digit"""

    def to_mask(self, axes: Axes) -> Any:
        return int("".join("1" if i in axes else "0" for i in range(max(axes, default=0) + 1)), 2)

    def to_axes(self, mask: int) -> Any:
        return tuple(i for i, bit in enumerate(f"{mask:b}") if bit == "1")


class BitsFromOne(Right):
    """the axes are counted from 1; they have to be counted from 0"""

    def to_mask(self, axes: Axes) -> Any:
        return sum(2 ** (axis + 1) for axis in axes)

    def to_axes(self, mask: int) -> Any:
        return tuple(i + 1 for i in super().to_axes(mask))


class AxesAdded(Right):
    """the numbers of the axes are added up; 2**i has to be added for each axis i"""

    def to_mask(self, axes: Axes) -> Any:
        return sum(axes)


class AxesSquared(Right):
    """axis**2 is computed in place of 2**axis"""

    def to_mask(self, axes: Axes) -> Any:
        return sum(axis**2 for axis in axes)


class MaskAsText(Right):
    """the mask is returned as binary text; it has to be an integer"""

    def to_mask(self, axes: Axes) -> Any:
        return f"{super().to_mask(axes):b}"


class MaskAsPrefixedText(Right):
    """the mask is returned as binary text; it has to be an integer"""

    def to_mask(self, axes: Axes) -> Any:
        return bin(super().to_mask(axes))


class DigitsOfTen(Right):
    """the binary digits are read as a decimal number"""

    def to_mask(self, axes: Axes) -> Any:
        return int(f"{super().to_mask(axes):b}")


class LastAxisMissing(Right):
    """the highest axis is missing; a mask of n binary digits has the axes 0 to n - 1"""

    def to_axes(self, mask: int) -> Any:
        return tuple(i for i in range(max(mask.bit_length() - 1, 0)) if mask >> i & 1)


class FallingOrder(Right):
    """the axes are in falling order; they have to be in rising order"""

    def to_axes(self, mask: int) -> Any:
        return super().to_axes(mask)[::-1]


class FirstAxesOnly(Right):
    """only the first 4 or 8 axes are looked at, but a mask may have more axes"""

    def to_axes(self, mask: int) -> Any:
        return tuple(i for i in range(8) if mask >> i & 1)


# Task 0.3


class GroupsInterleaved(Right):
    """each group consists of every num_groups-th channel; it has to consist of neighbouring channels"""

    of_plain = True

    def _split(self, x: Any, num_groups: int) -> Any:
        return super()._split(x, x.shape[1] // num_groups).swapaxes(1, 2)


class GroupsLast(Right):
    """the two new axes are in the wrong order: (N, C/G, G, ...) in place of (N, G, C/G, ...)"""

    def _split(self, x: Any, num_groups: int) -> Any:
        return super()._split(x, num_groups).swapaxes(1, 2)


class SizesSwapped(Right):
    """num_groups is taken for the number of channels in a group: the shape is (N, C/G, G, ...)"""

    def _split(self, x: Any, num_groups: int) -> Any:
        return super()._split(x, x.shape[1] // num_groups)


class BatchSplit(Right):
    """axis 0 is cut into groups, not axis 1"""

    def _split(self, x: Any, num_groups: int) -> Any:
        return x.reshape(num_groups, x.shape[0] // num_groups, *x.shape[1:])


class FourAxesTaken(Right):
    """x is expected to have four axes, but it may have fewer or more"""

    def _split(self, x: Any, num_groups: int) -> Any:
        n, c, h, w = x.shape
        return x.reshape(n, num_groups, c // num_groups, h, w)


class PositionsFlat(Right):
    """the axes after the channels are merged into one; they have to stay as they are"""

    def _split(self, x: Any, num_groups: int) -> Any:
        return x.reshape(x.shape[0], num_groups, x.shape[1] // num_groups, -1)


class ListOfGroups(Right):
    """the axis of groups is the first axis; it has to come after the batch axis"""

    def _split(self, x: Any, num_groups: int) -> Any:
        return np.stack(np.split(x, num_groups, axis=1))


class NotRefused(Right):
    """a wrong number of groups is left to NumPy's error; raise your own ValueError that names both numbers"""

    def split_groups(self, x: Any, num_groups: int) -> Any:
        return x.reshape(x.shape[0], num_groups, x.shape[1] // num_groups, *x.shape[2:])


# Task 0.4


class KeptFree(Right):
    """elements are compared along the reduced axes; they have to agree along the kept axes"""

    def same_row(self, shape: Axes, axes: Axes, index: Axes) -> Any:
        return super().same_row(shape, tuple(i for i in range(len(shape)) if i not in axes), index)


class ElementAlone(Right):
    """only the element itself is marked; all elements of its row have to be marked"""

    def same_row(self, shape: Axes, axes: Axes, index: Axes) -> Any:
        return super().same_row(shape, (), index)


class AnyAxis(Right):
    """an element is marked if one index is equal; the indices have to be equal along every kept axis"""

    def same_row(self, shape: Axes, axes: Axes, index: Axes) -> Any:
        indices = np.indices(shape)
        agree = [indices[i] == index[i] for i in range(len(shape)) if i not in axes]
        return np.broadcast_to(np.any(agree, axis=0), shape) if agree else np.zeros(shape, bool)


class RowInverted(Right):
    """True and False are swapped"""

    def same_row(self, shape: Axes, axes: Axes, index: Axes) -> Any:
        return ~super().same_row(shape, axes, index)


# Task 0.5


class NotMerged(Right):
    """neighbouring axes of the same kind are not merged"""

    def _meet(self, outer: tuple[int, int], count: int, step: int) -> bool:
        return False


class AlwaysMerged(Right):
    """axes are merged although they are not neighbours in memory; the outer step has to be count * step"""

    def _meet(self, outer: tuple[int, int], count: int, step: int) -> bool:
        return True


class OnesKept(Right):
    """axes of length 1 are kept as loops; leave them out"""

    def _is_no_loop(self, count: int) -> bool:
        return False


class OnesKeptUnmerged(OnesKept):
    """axes of length 1 are kept as loops, and neighbouring axes are not merged"""

    def _meet(self, outer: tuple[int, int], count: int, step: int) -> bool:
        return False


class ColumnMajor(Right):
    """the steps are those of column-major order; in row-major order the last axis has step 1"""

    def _step(self, shape: Axes, axis: int) -> int:
        return int(np.prod(shape[:axis]))


class StepOfItself(Right):
    """the step of an axis includes the axis's own length; it has to be the product of the lengths after the axis"""

    def _step(self, shape: Axes, axis: int) -> int:
        return int(np.prod(shape[axis:]))


class StepInBytes(Right):
    """the steps are counted in bytes; count them in elements"""

    of_plain = True

    def _step(self, shape: Axes, axis: int) -> int:
        return 8 * super()._step(shape, axis)


class OuterStepKept(Right):
    """a merged loop has the step of the outer loop; it has to have the step of the inner loop"""

    def loops(self, shape: Axes, axes: Axes) -> Any:
        keep: Loops = []
        reduce: Loops = []
        for axis, count in enumerate(shape):
            if count == 1:
                continue
            step, found = self._step(shape, axis), reduce if axis in axes else keep
            if axis and found and found[-1][1] % (count * step) == 0 and self._neighbour(shape, axes, axis):
                found[-1] = (found[-1][0] * count, found[-1][1])
            else:
                found.append((count, step))
        return keep, reduce

    def _neighbour(self, shape: Axes, axes: Axes, axis: int) -> bool:
        before = [i for i in range(axis) if shape[i] > 1]
        return bool(before) and (before[-1] in axes) == (axis in axes)


class KindsSwapped(Right):
    """keep and reduce are swapped"""

    def loops(self, shape: Axes, axes: Axes) -> Any:
        return super().loops(shape, axes)[::-1]


class InnerFirst(Right):
    """the inner loops come first; the outer loops have to come first"""

    def loops(self, shape: Axes, axes: Axes) -> Any:
        keep, reduce = super().loops(shape, axes)
        return keep[::-1], reduce[::-1]


class StepFirst(Right):
    """each pair is (step, count); it has to be (count, step)"""

    def loops(self, shape: Axes, axes: Axes) -> Any:
        keep, reduce = super().loops(shape, axes)
        return [pair[::-1] for pair in keep], [pair[::-1] for pair in reduce]


# Task 0.6


class InnerSlowest(Right):
    """the inner loop is the slowest; the outer loop has to be the slowest"""

    def positions(self, some_loops: Loops) -> Any:
        return super().positions(some_loops[::-1])


class NothingVisited(Right):
    """an empty list visits no position; it has to visit position 0"""

    def positions(self, some_loops: Loops) -> Any:
        return super().positions(some_loops) if some_loops else []


class StepsIgnored(Right):
    """the steps are ignored; each turn of a loop moves by the step of the loop"""

    def positions(self, some_loops: Loops) -> Any:
        return super().positions([(count, 1) for count, _ in some_loops])


class PositionsSorted(Right):
    """the positions are sorted; they have to keep the order of the loops, with the outer loop slowest"""

    def positions(self, some_loops: Loops) -> Any:
        return sorted(super().positions(some_loops))


class TurnTooMany(Right):
    """each loop has one turn too many; a loop of count turns goes from 0 to count - 1"""

    def positions(self, some_loops: Loops) -> Any:
        return super().positions([(count + 1, step) for count, step in some_loops])


class SumsForMeans(Right):
    """the sums of the rows are returned; the division by the number of elements is missing"""

    def means_by_loops(self, flat: Any, keep: Loops, reduce: Loops) -> Any:
        return super().means_by_loops(flat, keep, reduce) * len(super().positions(reduce))


class RowsSwapped(Right):
    """keep and reduce are swapped in means_by_loops; there has to be one mean for each kept position"""

    def means_by_loops(self, flat: Any, keep: Loops, reduce: Loops) -> Any:
        return super().means_by_loops(flat, reduce, keep)


RECOGNIZER = Recognizer.of(Right, vars(), V, translated)
