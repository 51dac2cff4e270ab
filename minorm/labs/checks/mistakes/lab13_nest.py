"""Typical mistakes in lab 13: the class Right has the right functions, and each subclass has one mistake."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minorm.labs.judge.recognizing import Recognizer

Ints = Sequence[int]
Loops = list[tuple[int, ...]]
LINE = 64


class Right:
    """The right functions of the tasks whose arguments are numbers, with a method for each step that can be wrong."""

    # Task 13.1

    def steps(self, shape: Ints, strides: Ints, itemsize: int) -> Loops:
        """Return the loops over an array as (axis, count, step), the widest step first. The steps count elements."""
        pairs = [(axis, count, self._step(strides[axis], itemsize)) for axis, count in enumerate(shape)]
        found = self._sorted([axis for axis in pairs if self._is_loop(axis[1])])
        self._require_one_block(found, self._step(itemsize, itemsize))
        return found

    def _step(self, stride: int, itemsize: int) -> int:
        return stride // itemsize

    def _is_loop(self, count: int) -> bool:
        return count != 1

    def _sorted(self, axes: Loops) -> Loops:
        return sorted(axes, key=lambda axis: -axis[2])

    def _require_one_block(self, axes: Loops, unit: int) -> None:
        step = unit
        for _, count, found in reversed(self._counting(axes)):
            if found != step:
                raise ValueError("strides leave gaps")
            step *= count

    def _counting(self, axes: Loops) -> Loops:
        return sorted([axis for axis in axes if axis[1] != 1], key=lambda axis: -axis[2])

    # Task 13.2

    def plan(self, shape: Ints, strides: Ints, itemsize: int, reduced: Ints, varies: Ints) -> tuple[Loops, Loops]:
        """Return the kept and the reduced loops, each loop as (count, data step, parameter step)."""
        axes = self.steps(shape, strides, itemsize)
        steps = self._param_steps(axes, varies)
        both: tuple[Loops, Loops] = ([], [])
        for axis, count, data in axes:
            self._put(both[self._is_reduced(axis, reduced)], (count, data, steps[axis]))
        return both

    def _is_reduced(self, axis: int, reduced: Ints) -> bool:
        return axis in reduced

    def _param_steps(self, axes: Loops, varies: Ints) -> dict[int, int]:
        found, step = {}, 1
        for axis, count, _ in reversed(axes):
            found[axis] = step if axis in varies else 0
            step *= count if axis in varies else 1
        return found

    def _put(self, loops: Loops, loop: tuple[int, ...]) -> None:
        if loops and self._merges(loops[-1], loop):
            loop = (loops.pop()[0] * loop[0], *loop[1:])
        loops.append(loop)

    def _merges(self, outer: tuple[int, ...], within: tuple[int, ...]) -> bool:
        return outer[1] == within[0] * within[1] and outer[2] == within[0] * within[2]

    # Task 13.3

    def _places(self, loops: Loops, which: int) -> Any:
        found = np.zeros(1, np.int64)
        for loop in loops:
            found = np.add.outer(found, np.arange(loop[0]) * loop[which]).ravel()
        return found

    def run(self, flat: Any, keep: Loops, reduce: Loops, scale: Any, bias: Any, eps: float) -> tuple[Any, Any, Any]:
        """Normalize the flat array by the loops. Return y, and mean and var of each row."""
        data = np.add.outer(self._places(keep, 1), self._places(reduce, 1))
        param = self._params(keep, reduce)
        x = flat[data]
        mean = x.mean(axis=1, keepdims=True)
        var = self._var(x, mean)
        y = (x - mean) * self._rstd(var, eps)
        y = y if scale is None else y * scale[param]
        y = y if bias is None else y + bias[param]
        result = np.empty_like(flat)
        result[self._targets(data)] = y
        return result, mean[:, 0], var[:, 0]

    def _params(self, keep: Loops, reduce: Loops) -> Any:
        return np.add.outer(self._places(keep, 2), self._places(reduce, 2))

    def _var(self, x: Any, mean: Any) -> Any:
        return np.square(x - mean).mean(axis=1, keepdims=True)

    def _rstd(self, var: Any, eps: float) -> Any:
        return 1 / np.sqrt(var + eps)

    def _targets(self, data: Any) -> Any:
        return data

    # Task 13.4

    def inner(self, keep: Loops, reduce: Loops) -> str:
        """Return the name of the kernel that fits the loop with step 1."""
        if any(data == 1 for _, data, _ in keep):
            return "columns"
        return "rows with parameters" if any(data == 1 and param for _, data, param in reduce) else "rows"

    def lines_of_row(self, reduce: Loops, itemsize: int) -> int:
        """Count the lines of 64 bytes that one row touches."""
        return len(set((self._places(reduce, 1) * itemsize // LINE).tolist()))


# Task 13.1


class StepsInBytes(Right):
    """steps are in bytes; divide the strides by the size of an element"""

    def _step(self, stride: int, itemsize: int) -> int:
        return stride


class OnesKept(Right):
    """axes of length 1 are kept as loops; leave them out"""

    def _is_loop(self, count: int) -> bool:
        return True


class NotSorted(Right):
    """the axes stay in the order of the shape; they have to be in the order of memory"""

    def _sorted(self, axes: Loops) -> Loops:
        return axes


class NarrowestFirst(Right):
    """the loop with the narrowest step comes first; the loop with the widest step has to come first"""

    def _sorted(self, axes: Loops) -> Loops:
        return super()._sorted(axes)[::-1]


class SignDropped(Right):
    """negative steps become positive, so a flipped array is read from the wrong end"""

    def _step(self, stride: int, itemsize: int) -> int:
        return abs(stride) // itemsize


class NothingRefused(Right):
    """strides are accepted although they leave gaps or are 0 or negative; they have to be refused"""

    def _require_one_block(self, axes: Loops, unit: int) -> None:
        pass


# Task 13.2


class MergedAcrossBroadcast(Right):
    """loops are merged if the data steps allow it; the parameter steps have to allow it, too: scale may be broadcast"""

    def _merges(self, outer: tuple[int, ...], within: tuple[int, ...]) -> bool:
        return outer[1] == within[0] * within[1]


class MergedAcrossGap(Right):
    """loops are merged if the parameter steps allow it; the data steps have to allow it, too"""

    def _merges(self, outer: tuple[int, ...], within: tuple[int, ...]) -> bool:
        return outer[2] == within[0] * within[2]


class NothingMerged(Right):
    """no loops are merged"""

    def _merges(self, outer: tuple[int, ...], within: tuple[int, ...]) -> bool:
        return False


class Swapped(Right):
    """kept and reduced loops are swapped"""

    def _is_reduced(self, axis: int, reduced: Ints) -> bool:
        return axis not in reduced


class ParamOfData(Right):
    """the parameter step is the data step, but scale and bias lie in a separate small buffer with smaller steps"""

    def _param_steps(self, axes: Loops, varies: Ints) -> dict[int, int]:
        return {axis: data if axis in varies else 0 for axis, _, data in axes}


class ParamOfOne(Right):
    """the parameter step is 1 along every axis of scale; along outer axes it has to be the product of inner counts"""

    def _param_steps(self, axes: Loops, varies: Ints) -> dict[int, int]:
        return {axis: int(axis in varies) for axis, _, _ in axes}


# Task 13.3


class RowParameters(Right):
    """each row uses the scale of its first element for all elements; reduced loops need parameter positions, too"""

    def _params(self, keep: Loops, reduce: Loops) -> Any:
        return np.add.outer(self._places(keep, 2), 0 * self._places(reduce, 2))


class SampleVariance(Right):
    """the variance is divided by m - 1 instead of m, as with ddof=1"""

    def _var(self, x: Any, mean: Any) -> Any:
        with np.errstate(all="ignore"):
            return x.var(axis=1, keepdims=True, ddof=1)


class EpsOutside(Right):
    """eps is added to the standard deviation; it has to be under the root"""

    def _rstd(self, var: Any, eps: float) -> Any:
        return 1 / (np.sqrt(var) + eps)


class EpsForgotten(Right):
    """eps is left out"""

    def _rstd(self, var: Any, eps: float) -> Any:
        with np.errstate(all="ignore"):
            return 1 / np.sqrt(var)


class InRowOrder(Right):
    """y is written row after row; it has to go to the positions from which x was read"""

    def _targets(self, data: Any) -> Any:
        return np.arange(data.size).reshape(data.shape)


# Task 13.4


class ColumnsMissed(Right):
    """a kept loop with step 1 is overlooked; with such a loop, neighbours in memory belong to different rows"""

    def inner(self, keep: Loops, reduce: Loops) -> str:
        return super().inner([], reduce)


class AnyParameter(Right):
    """every reduced loop with a parameter step chooses the kernel; only the loop with data step 1 may choose it"""

    def inner(self, keep: Loops, reduce: Loops) -> str:
        if any(data == 1 for _, data, _ in keep):
            return "columns"
        return "rows with parameters" if any(param for _, _, param in reduce) else "rows"


class ElementsCounted(Right):
    """elements are counted instead of lines, but several neighbours lie in one line"""

    def lines_of_row(self, reduce: Loops, itemsize: int) -> int:
        return len(self._places(reduce, 1))


class BytesDivided(Right):
    """the bytes of the row are divided by 64, as if they were contiguous"""

    def lines_of_row(self, reduce: Loops, itemsize: int) -> int:
        return -(-len(self._places(reduce, 1)) * itemsize // LINE)


class PlacesForBytes(Right):
    """positions are divided by 64 but not multiplied by the element's size; a line has 64 bytes, not 64 elements"""

    def lines_of_row(self, reduce: Loops, itemsize: int) -> int:
        return len(set((self._places(reduce, 1) // LINE).tolist()))


RECOGNIZER = Recognizer.of(Right, vars())
