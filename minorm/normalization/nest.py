"""Every normalization consists of four loops: at most two over kept axes and at most two over reduced axes.

    Y = (X - mean) / sqrt(var + eps) * S + B

The mean and the variance are taken over some axes of X. These axes are *reduced*. The other axes are *kept*: the
statistics differ along kept axes. Group normalization first splits its channel axis into groups (kept) and the channels
of a group (reduced). So BatchNorm, InstanceNorm, GroupNorm, LayerNorm and RMSNorm are the same computation with
different patterns of kept and reduced axes, and one kernel computes them all.

`plan` finds the pattern. It sorts the axes by their order in memory, and merges two neighbouring axes of the same kind
if one loop with a constant step can run through both axes. The result is loops `(count, data, param)`: the number of
iterations, the step in X, and the step in S and B. A `param` of 0 means that S and B do not change along the loop.

    BatchNorm 32x64x56x56             keep (64, 3136, 1)                   reduce (32, 200704, 0) (3136, 1, 0)
    GroupNorm 8x64x56x56, 8 groups    keep (8, 200704, 0) (8, 25088, 8)    reduce (8, 3136, 1) (3136, 1, 0)
    LayerNorm 8x128x768               keep (1024, 768, 0)                  reduce (768, 1, 1)

This file needs only shapes and steps: it uses no array and imports nothing else from minorm.
"""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple


class Loop(NamedTuple):
    """One loop: the number of iterations, and the steps in the data and in the parameters, in elements."""

    count: int  # type: ignore[assignment]  # hides tuple.count, which nothing here calls
    data: int
    param: int


ONCE = Loop(1, 0, 0)


class Axis(NamedTuple):
    """One axis of the data after the group split."""

    count: int  # type: ignore[assignment]
    data: int
    reduced: bool
    varies: bool  # True: scale and bias change along it


@dataclass(frozen=True, eq=False)
class Nest:
    """The loops of one normalization, with outer loops before inner loops, and the order of the axes in memory.

    keep, reduce     the loops
    axes             the axes of the data after the group split, in logical order
    order            the same axes in their order in memory, with the largest step first
    rows, columns    the number of statistics, and the number of elements over which each statistic is taken
    param_size       the number of elements of scale and of bias, which have the order of `order` and no gaps
    param_order      None, or the permutation of the parameters' axes from logical order to memory order
    code             the four loops in the kernels' form, twelve int64; empty if there are more than four loops
    """

    keep: tuple[Loop, ...]
    reduce: tuple[Loop, ...]
    axes: tuple[Axis, ...]
    order: tuple[int, ...]
    rows: int
    columns: int
    param_size: int
    param_order: tuple[int, ...] | None
    code: bytes = field(repr=False)

    @property
    def fits(self) -> bool:
        """True if the kernels can run this nest. If not, the caller must rearrange the data first.

        Kernels run at most two loops over kept axes and two loops over reduced axes. If neighbours in memory belong to
        different statistics, the parameters may vary from neighbour to neighbour, or along the reduced loops, but not
        in both ways.
        """
        if len(self.keep) > 2 or len(self.reduce) > 2:
            return False
        lanes = bool(self.keep) and self.keep[-1].data == 1
        return not (lanes and self.keep[-1].param and any(loop.param for loop in self.reduce))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the data after the group split."""
        return tuple(axis.count for axis in self.axes)

    @property
    def kept_shape(self) -> tuple[int, ...]:
        """The shape of the statistics: the kept axes in logical order."""
        return tuple(axis.count for axis in self.axes if not axis.reduced)

    @property
    def keepdims_shape(self) -> tuple[int, ...]:
        """The shape of the statistics with length 1 for reduced axes. This shape broadcasts against the split data."""
        return tuple(1 if axis.reduced else axis.count for axis in self.axes)

    @property
    def kept_order(self) -> tuple[int, ...]:
        """The kept axes in the order in which the loops visit them, as positions in `kept_shape`."""
        place = {axis: i for i, axis in enumerate(i for i, axis in enumerate(self.axes) if not axis.reduced)}
        return tuple(place[i] for i in self.order if i in place)

    @property
    def two_by_two(self) -> tuple[Loop, Loop, Loop, Loop]:
        """Exactly four loops: keep outer, keep inner, reduce outer, reduce inner. A missing loop has one iteration."""
        return (*_pair(self.keep), *_pair(self.reduce))

    def statistics(self, flat):
        """Return `flat`, which has the kernels' loop order, as an array of `kept_shape`."""
        order = self.kept_order
        counts = self.kept_shape
        return flat.reshape([counts[i] for i in order]).transpose(_inverse(order))

    def flat(self, statistics):
        """Return `statistics` as a flat array in loop order. Its shape is `kept_shape`, or another shape of the same
        size.
        """
        return statistics.reshape(self.kept_shape).transpose(self.kept_order).reshape(-1)

    def __str__(self) -> str:
        shape = "x".join(map(str, self.shape)) or "scalar"
        lines = [f"{shape}: {self.rows} statistics over {self.columns} elements each"]
        for kind, loops in (("keep", self.keep), ("reduce", self.reduce)):
            for loop in loops or (ONCE,):
                along = f"parameters step {loop.param}" if loop.param else "same parameters"
                lines.append(f"  {kind:6} {loop.count:>8} times, data step {loop.data:>8}, {along}")
                kind = ""
        if not self.fits:
            lines.append("  no kernel runs these loops: the data is first copied into another order")
        return "\n".join(lines)


@functools.lru_cache(maxsize=4096)
def plan(
    shape: tuple[int, ...],
    axes: tuple[int, ...],
    num_groups: int = 1,
    param: tuple[int, ...] = (),
    strides: tuple[int, ...] | None = None,
) -> Nest:
    """Return the nest that normalizes data of this shape over `axes`.

    num_groups  if above 1, axis 1 (C) is split into two axes: the group (kept) and the channel in its group (reduced)
    param       the axes *after the split* along which scale and bias vary
    strides     the step in elements along each axis, for gapless data in any order; None means row-major data

    Raises ValueError if num_groups does not divide the number of channels, or if the strides leave gaps.
    """
    reduced = {axis % len(shape) for axis in axes} if shape else set()
    steps = _row_major(shape) if strides is None else strides
    split: list[tuple[int, int, bool]] = []
    for i, (count, step) in enumerate(zip(shape, steps, strict=True)):
        if i == 1 and num_groups > 1:
            if count % num_groups:
                raise ValueError(f"plan: num_groups={num_groups} must divide channels={count}; shape is {shape}")
            split.append((num_groups, step * (count // num_groups), False))
            split.append((count // num_groups, step, True))
        else:
            split.append((count, step, i in reduced))
    all_axes = tuple(Axis(*axis, i in param) for i, axis in enumerate(split))
    order = tuple(sorted(range(len(all_axes)), key=lambda i: (-all_axes[i].data, i)))
    if prod(shape) and strides is not None and not is_dense(shape, strides):
        raise ValueError(f"plan: strides {strides} leave gaps in shape {shape}; copy the data to a gapless array first")
    steps_in_param = _parameter_steps(all_axes, order)
    keep, reduce = (_merge(all_axes, order, steps_in_param, kind) for kind in (False, True))
    varying = [i for i, axis in enumerate(all_axes) if axis.varies]
    in_memory = tuple(varying.index(i) for i in order if all_axes[i].varies)
    moved = [i for i in in_memory if all_axes[varying[i]].count > 1]
    return Nest(
        keep=keep,
        reduce=reduce,
        axes=all_axes,
        order=order,
        rows=prod(axis.count for axis in all_axes if not axis.reduced),
        columns=prod(axis.count for axis in all_axes if axis.reduced),
        param_size=prod(all_axes[i].count for i in varying),
        param_order=None if moved == sorted(moved) else in_memory,
        code=_code(keep, reduce),
    )


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    steps, step = [], 1
    for count in reversed(shape):
        steps.append(step)
        step *= max(count, 1)
    return tuple(reversed(steps))


def is_dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Return True if the array is gapless in some order of its axes. strides are in elements."""
    step = 1
    for axis_step, count in sorted((s, n) for n, s in zip(shape, strides, strict=True) if n != 1):
        if axis_step != step:
            return False
        step *= count
    return True


def _parameter_steps(axes: tuple[Axis, ...], order: tuple[int, ...]) -> dict[int, int]:
    """Return the step along each axis of parameters that are gapless in memory order.

    The step is 0 for an axis along which the parameters do not vary.
    """
    steps, step = {}, 1
    for i in reversed(order):
        steps[i] = step if axes[i].varies else 0
        step *= axes[i].count if axes[i].varies else 1
    return steps


def _merge(axes: tuple[Axis, ...], order: tuple[int, ...], param: dict[int, int], reduced: bool) -> tuple[Loop, ...]:
    """Return the loops over the reduced axes if `reduced` is True, else the loops over the kept axes. Axes of length 1
    are left out. Two axes are merged if a single loop with a constant step can run through both axes.
    """
    loops: list[Loop] = []
    for i in order:
        axis = axes[i]
        if axis.reduced != reduced or axis.count == 1:
            continue
        loop = Loop(axis.count, axis.data, param[i])
        if loops and loops[-1].data == loop.data * loop.count and loops[-1].param == loop.param * loop.count:
            loop = Loop(loops.pop().count * loop.count, loop.data, loop.param)
        loops.append(loop)
    return tuple(loops)


def _pair(loops: tuple[Loop, ...]) -> tuple[Loop, Loop]:
    outer, inner = (ONCE, ONCE, *loops)[-2:]
    return outer, inner


def _code(keep: tuple[Loop, ...], reduce: tuple[Loop, ...]) -> bytes:
    """Return four loops as bytes: keep outer, keep inner, reduce outer and reduce inner. Each loop is three numbers:
    count, data step and parameter step. If `keep` or `reduce` has more than two loops, the result is empty.
    """
    if len(keep) > 2 or len(reduce) > 2:
        return b""
    return struct.pack("12q", *[number for loop in (*_pair(keep), *_pair(reduce)) for number in loop])


def _inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(order.index(i) for i in range(len(order)))
