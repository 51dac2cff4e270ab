"""Describes a convolution's sum along one axis. For each result and each tap, the sum reads one element of the source.

The forward pass, the gradient for the input, and the transposed convolution are all sums of this form. If the results
are numbered m = 0, 1, ..., tap t of result m reads the padded source at

    m * step + shift[t]          padded index = source index + low

In the forward pass, step is the stride and shift = t * dilation. In the gradient, step is 1, and the results are
divided into `stride` phases. A phase consists of the results start, start + stride, ..., which all use the same taps.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

Ints = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Phase:
    """The `count` results start, start + step, ..., and their taps as (number of the weight, shift)."""

    start: int
    step: int
    count: int
    taps: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Axis:
    """The sum of a convolution along one axis."""

    source: int  # the length of the source
    result: int
    low: int
    step: int
    phases: tuple[Phase, ...]

    @classmethod
    def forward(cls, x: int, kernel: int, stride: int, padding: tuple[int, int], dilation: int) -> Axis:
        """y[m] reads x at m * stride + t * dilation - low."""
        y = (x + sum(padding) - dilation * (kernel - 1) - 1) // stride + 1
        return cls(x, y, padding[0], stride, (Phase(0, 1, y, tuple((t, t * dilation) for t in range(kernel))),))

    @classmethod
    def gradient(cls, x: int, kernel: int, stride: int, padding: tuple[int, int], dilation: int, y: int) -> Axis:
        """dx[i] reads dy at (i + low - t * dilation) / stride, for the taps where that is a whole number."""
        phases = []
        for start in range(min(stride, x)):
            first, phase = divmod(start + padding[0], stride)
            taps = tuple(
                (t, first + (phase - t * dilation) // stride)
                for t in range(kernel)
                if (phase - t * dilation) % stride == 0
            )
            phases.append(Phase(start, stride, -(-(x - start) // stride), taps))
        low = max(0, -min((shift for phase in phases for _, shift in phase.taps), default=0))
        moved = tuple(replace(p, taps=tuple((t, shift + low) for t, shift in p.taps)) for p in phases)
        return cls(y, x, low, 1, moved)

    def trivial(self) -> bool:
        """Return True if result m is source m times a weight."""
        alone = len(self.phases) == self.step == 1 and self.low == 0
        return alone and self.source == self.result and self.phases[0].taps == ((0, 0),)

    def whole(self) -> bool:
        """Return True if every tap of every result reads the source itself, without padding and with step 1."""
        return self.low == 0 and self.step == 1 and self.reach() <= self.source

    def strip(self, count: int) -> Axis:
        """Return the axis with at most `count` results of every phase."""
        return replace(self, phases=tuple(replace(p, count=min(p.count, count)) for p in self.phases))

    def meets(self, phase: Phase) -> Any:
        """Return an array of bools (results, taps) for the phase: True where a tap reads the source, False where it
        reads padding.
        """
        at = np.arange(phase.count)[:, None] * self.step + [shift for _, shift in phase.taps] - self.low
        return (at >= 0) & (at < self.source)

    def reach(self) -> int:
        """Return the length of the padded source up to the last element that is read."""
        ends = [(p.count - 1) * self.step + shift for p in self.phases for _, shift in p.taps if p.count]
        return max(ends, default=0) + 1

    def residues(self) -> set[int]:
        """Return the residues (index in the source modulo step) of the elements that some tap reads."""
        return {shift % self.step for phase in self.phases for _, shift in phase.taps} or {0}

    def packed(self) -> int:
        """Return the length of a packed phase (every step-th element of the source) up to the last read element."""
        ends = [p.count - 1 + shift // self.step for p in self.phases for _, shift in p.taps if p.count]
        return max(ends, default=0) + 1

    def span(self, residue: int) -> tuple[int, int]:
        """Return where the source's elements start and end in a packed phase. The rest of the phase is zeros."""
        end = -((residue - self.low - self.source) // self.step)
        return max(0, -((residue - self.low) // self.step)), max(0, min(end, self.packed()))

    def pitch(self) -> int:
        """Return the length of a packed row. A read beyond its end may reach into the next row if that row begins with
        zeros.
        """
        spans = [self.span(residue) for residue in self.residues()]
        begin, end = min(span[0] for span in spans), max(span[1] for span in spans)
        return max(end, self.packed() - begin, *(phase.count for phase in self.phases))


Axes = tuple[Axis, Axis, Axis]  # d, h, w


def forward(x_shape: Ints, w_shape: Ints, stride: Ints, padding: Pairs, dilation: Ints) -> Axes:
    """Return the axes of y = W * x."""
    rows = zip(x_shape[2:], w_shape[2:], stride, padding, dilation, strict=True)
    return _three([Axis.forward(*row) for row in rows])


def gradient(dy_shape: Ints, w_shape: Ints, x_shape: Ints, stride: Ints, padding: Pairs, dilation: Ints) -> Axes:
    """Return the axes of dx = W^T * dy."""
    rows = zip(x_shape[2:], w_shape[2:], stride, padding, dilation, dy_shape[2:], strict=True)
    return _three([Axis.gradient(*row) for row in rows])


def _three(axes: list[Axis]) -> Axes:
    """Return three axes for a convolution of any rank. If all axes are trivial, the pixels form one long axis."""
    one = Axis.forward(1, 1, 1, (0, 0), 1)
    if all(axis.trivial() for axis in axes):
        pixels = int(np.prod([axis.source for axis in axes]))
        axes = [Axis.forward(pixels, 1, 1, (0, 0), 1)]
    d, h, w = [one] * (3 - len(axes)) + axes
    return d, h, w


def combinations(axes: Axes) -> list[tuple[Phase, Phase, Phase]]:
    """Return every combination of one phase for each axis, without phases that have no results."""
    choices = itertools.product(*(axis.phases for axis in axes))
    return [(d, h, w) for d, h, w in choices if d.count and h.count and w.count]


def taps_of(phases: tuple[Phase, ...], kernel: Ints) -> list[tuple[int, Ints]]:
    """Return (number of the weight, shift along every axis) for every tap of `phases`, in the order of the sum.

    Taps are added column by column, because one of the kernels computes several results of the same column together.
    All layouts use this order. Otherwise a sum would have different bits on processors that prefer different layouts.
    """
    result = []
    for taps in itertools.product(*(phase.taps for phase in phases)):
        numbers, shift = zip(*taps, strict=True)
        result.append((int(np.ravel_multi_index(numbers, kernel)), shift))
    return [result[i] for i in _order(phases)]


def _order(phases: tuple[Phase, ...]) -> list[int]:
    """Return the positions of all taps of `phases` (listed row by row), sorted by columns."""
    shifts = list(itertools.product(*([shift for _, shift in phase.taps] for phase in phases)))
    return sorted(range(len(shifts)), key=lambda i: shifts[i][::-1])


def all_meet(axes: Axes, phases: tuple[Phase, ...]) -> Any:
    """Return an array of bools (d, h, w, tap): True where a tap, in the order of `taps_of`, reads the source."""
    d, h, w = (axis.meets(phase) for axis, phase in zip(axes, phases, strict=True))
    result = d[:, None, None, :, None, None] & h[:, None, None, :, None] & w[:, None, None, :]
    return result.reshape(len(d), len(h), len(w), d.shape[1] * h.shape[1] * w.shape[1])[..., _order(phases)]
