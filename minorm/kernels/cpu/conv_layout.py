"""Lays out a convolution for vector instructions. There are three layouts, and a table describes each.

The kernel (minorm_ext/conv/conv.pyx) only adds up taps; each tap is a shifted read of the source. This module decides
how the source is packed and computes the shift of each tap. conv_axes.py describes the sum along one axis, and
conv_plan.py chooses the layout.

Lines. The rows of the source are packed one after the other, each followed by the zeros of its padding, so that a plane
is one long line. A tap has the same shift everywhere. A vector may contain the end of one row and the beginning of the
next, and the results between the rows are discarded. With a step above 1, neighbouring results do not read neighbouring
elements of the source. The source is then packed in phases of every step-th row and column, so that each tap reads
neighbours in one phase.

Rows. The source is packed in the same way, but the vectors start at the beginning of each row of the result, and are
written directly to the result. The last vector of a row overlaps the vector before. This layout needs results that are
at least as wide as a vector. If there is no padding and the step is 1, the source is not packed at all.

Images. A vector is the same pixel of several images, one image in each lane. No results are discarded, taps that read
only padding are left out, and a step above 1 costs nothing extra. But the source and the results must be transposed.
This layout is used for small planes.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import minorm_ext
from minorm.kernels.cpu.conv_axes import Axes, Ints, Phase, all_meet, combinations, taps_of

QUAD: int = minorm_ext.kernels("conv").VECTORS  # the number of vectors that the kernel computes together
CACHE = 512 << 10  # bytes that a job may pack: about half of a core's second-level cache

# The costs of moving data, in units of one multiply-add of vectors. They were measured; only their magnitude matters.
ROW_COST = 6.0  # to start a row
VECTOR_COST = 3.0  # to copy a vector of a row
TRANSPOSE_COST = 8.0  # to transpose a vector
TALL = (3, 5)  # numbers of rows of depthwise kernels that have a special loop
OVERFLOW_COST = 1.15  # the factor if the packed data do not fit into the second-level cache

Rows = list[tuple[int, ...]]


@dataclass
class Tables:
    """The tables of one layout. All positions and distances are counted in elements, not in bytes."""

    segments: int  # pieces that are packed separately: images, strips of images, or groups of images
    by_image: bool = False
    direct_in: bool = False  # True: the source is read in place, not packed
    direct_out: bool = False  # True: results are written in place, not unpacked
    plane: int = 0  # the count of packed numbers of one channel in a segment
    results: int = 0  # the count of its results
    strips: int = 1  # the number of strips of an image
    along: int = 1  # the axis along which strips are cut
    source_move: int = 0  # the distance between strips along that axis
    result_move: int = 0
    out_move: int = 0  # the same distance in the results, in numbers, for direct_out
    rows_in: Rows = field(default_factory=list)  # (place in the plane, d, h, first w, step of w, count) of a packed row
    rows_out: Rows = field(default_factory=list)  # the same for a row of results
    pixels_in: Any = ()  # the place in the plane for every pixel of the source
    zeros: Rows = field(default_factory=list)  # (place, count) of zeros to write into the plane first
    position: list[Any] = field(default_factory=list)  # where each vector reads the plane, before the shift of a tap
    place: list[Any] = field(default_factory=list)  # where each vector is written in the results
    runs: Rows = field(default_factory=list)  # (first, count): the taps that a quad of vectors adds up
    taps: Rows = field(default_factory=list)  # (shift, number of the weight)
    ranges: Rows = field(default_factory=list)  # forward, for every weight: (shift, first, last vector that reads it)
    vectors: int = 0  # the number of vectors, without repeated ones that fill the last quad
    tall: int = 0  # rows of a depthwise kernel, or 0; a quad is then vectors below each other, and its taps are a grid
    work: int = 0  # multiply-adds of vectors in a segment, for one channel of the source and one of the result
    into: float = 0.0  # the costs of packing and of unpacking a channel, in the same unit
    out: float = 0.0

    def add_vectors(self, position: Any, place: Any, taps: Rows, meets: Any) -> None:
        """Group the vectors of one combination of phases into quads. A quad adds up all taps that its vectors need."""
        count = len(position)
        order = np.minimum(np.arange(-(-count // QUAD) * QUAD), count - 1)
        known: dict[bytes, tuple[int, int]] = {}
        for needed in meets[order].reshape(len(order) // QUAD, QUAD, len(taps)).any(axis=1):
            key = needed.tobytes()
            if key not in known:
                known[key] = (len(self.taps), int(needed.sum()))
                self.taps += itertools.compress(taps, needed)
            self.runs.append(known[key])
            self.work += QUAD * known[key][1]
        self.position.append(position[order])
        self.place.append(place[order])
        self.vectors = count
        at = np.arange(count)[:, None]
        first, last = np.where(meets, at, count).min(axis=0), np.where(meets, at + 1, 0).max(axis=0)
        found = sorted(zip(taps, first, last, strict=True), key=lambda tap: tap[0][1])
        self.ranges = [(tap[0], min(a, b), b) for tap, a, b in found]

    def cost(self, channels: int, outputs: int, packed: int) -> float:
        """Estimate the time of the sum in multiply-adds of vectors. `packed` is the size of a packed segment."""
        work = self.work * channels * outputs * (OVERFLOW_COST if packed > 2 * CACHE else 1)
        return self.segments * (work + self.into * channels + self.out * outputs)


class Plane:
    """The source in the form that the layouts "lines" and "rows" read: packed phases, one after the other."""

    def __init__(self, axes: Axes, lanes: int, cut: bool = False) -> None:
        self.axes, self.cut = axes, cut  # cut: a part of a line, whose rows need no zeros at their ends
        self.depth, self.height = axes[0].packed(), axes[1].packed()
        self.pitch = axes[2].packed() if cut else axes[2].pitch()
        beyond = max(0, axes[2].packed() - self.pitch) + lanes  # numbers that the last vector of the last row may read
        self.size = _round_up(self.line(self.depth, 0, 0) + beyond, lanes)
        self.phases: dict[Ints, int] = {}  # phases that some tap reads, in the order of packing

    def line(self, d: Any, h: Any, w: Any) -> Any:
        """Return the position of a pixel within its phase."""
        return (d * self.height + h) * self.pitch + w

    def taps(self, phases: tuple[Phase, ...], kernel: Ints) -> Rows:
        """Return (shift, index of the weight) for every tap."""
        result: Rows = []
        for number, shift in taps_of(phases, kernel):
            steps, residues = zip(
                *(divmod(s, axis.step) for s, axis in zip(shift, self.axes, strict=True)), strict=True
            )
            phase = self.phases.setdefault(residues, len(self.phases))
            result.append((phase * self.size + self.line(*steps), number))
        return result

    def describe(self, tables: Tables, lanes: int) -> None:
        """Add the rows of the source that fill this plane to the tables. Call this method after all taps are known."""
        d, h, w = self.axes
        for residues, phase in self.phases.items():
            begin, end = (0, self.pitch) if self.cut else w.span(residues[2])
            column = begin * w.step + residues[2] - w.low
            tables.rows_in += [
                (
                    phase * self.size + self.line(i, j, begin),
                    i * d.step + residues[0] - d.low,
                    j * h.step + residues[1] - h.low,
                    column,
                    w.step,
                    max(0, end - begin),
                )
                for i in range(self.depth)
                for j in range(self.height)
            ]
        tables.plane = max(1, len(self.phases)) * self.size
        tables.zeros = [(0, tables.plane)]
        copied = sum(-(-row[5] // lanes) * (1 if w.step == 1 else 3) for row in tables.rows_in)
        tables.into = len(tables.rows_in) * ROW_COST + copied * VECTOR_COST + tables.plane / lanes


def _round_up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


def _in_strips(axes: Axes, images: int, numbers: int, evenly: bool) -> tuple[Axes, Tables]:
    """Return the axes and tables of a strip that fits into the cache. `numbers` is the size of a pixel in bytes, summed
    over all channels. With evenly=True, all strips have the same length.

    An image is cut along its first axis with more than one result. With evenly=True, an image is never cut along w.
    """
    along = next((i for i, axis in enumerate(axes) if axis.result > 1), 2)
    if evenly:
        along = min(along, 1)
    axis = axes[along]
    count = max(phase.count for phase in axis.phases)
    row = numbers * len(axis.residues())
    for other in ((1, 2), (2,), (0, 1))[along]:
        row *= (axes[other].pitch() if other == 2 else axes[other].packed()) * len(axes[other].residues())
    halo = axis.packed() - count
    strips = -(-count // max(CACHE // row - halo, 2 * halo, 1))
    while evenly and count % strips:
        strips += 1
    rows = -(-count // strips)
    axes = tuple(a.strip(rows) if i == along else a for i, a in enumerate(axes))  # type: ignore[assignment]
    tables = Tables(images * strips, strips=strips, along=along, source_move=rows * axis.step)
    tables.result_move = rows * axis.phases[0].step
    return axes, tables


def by_lines(axes: Axes, kernel: Ints, lanes: int, images: int, numbers: int) -> Tables:
    """Return the tables of the layout lines. The lanes are neighbouring pixels, also across the ends of rows."""
    axes, tables = _in_strips(axes, images, numbers, False)
    plane = Plane(axes, lanes, tables.along == 2)
    for phases in combinations(axes):
        d, h, w = phases
        pixels = plane.line(*np.ogrid[: d.count, : h.count, : w.count])
        used = np.unique(pixels // lanes) * lanes
        taps = plane.taps(phases, kernel)
        tables.add_vectors(used, used + tables.results, taps, np.ones((len(used), len(taps)), bool))
        tables.rows_out += [
            (tables.results + plane.line(i, j, 0), d.start + d.step * i, h.start + h.step * j, w.start, w.step, w.count)
            for i in range(d.count)
            for j in range(h.count)
        ]
        tables.results += int(used[-1]) + lanes
    tables.rows_out.sort(key=lambda row: row[1:4])  # phases with a common row follow each other
    plane.describe(tables, lanes)
    tables.out = len(tables.rows_out) * ROW_COST + tables.results / lanes * VECTOR_COST
    return tables


def by_rows(axes: Axes, kernel: Ints, lanes: int, images: int, numbers: int, alone: bool = False) -> Tables:
    """Return the tables of the layout rows. The lanes are neighbouring pixels of one row of results, and a row must
    have at least as many pixels as a vector has lanes.

    alone=True means that each group has one input channel and one output channel.
    """
    whole = all(axis.whole() for axis in axes)
    if whole:
        tables = Tables(images, direct_in=True)
    else:
        axes, tables = _in_strips(axes, images, numbers, True)
    tables.direct_out = True
    (phases,) = combinations(axes)
    d, h, w = (phase.count for phase in phases)
    tables.out_move = (d if tables.along == 0 else 1) * h * w
    if whole:
        source = axes[1].source, axes[2].source
        taps: Rows = [((a * source[0] + b) * source[1] + c, number) for number, (a, b, c) in taps_of(phases, kernel)]
        pitch = source[1]
    else:
        plane = Plane(axes, lanes)
        taps = plane.taps(phases, kernel)
        plane.describe(tables, lanes)
        source, pitch = (plane.height, plane.pitch), plane.pitch
    i, j, k = np.ogrid[:d, :h, : _round_up(w, lanes) : lanes]
    k = np.minimum(k, w - lanes)
    meets = np.ones((d, h, k.size, len(taps)), bool)
    if alone and d == kernel[0] == 1 and kernel[1] in TALL and h >= QUAD and _is_grid(taps, kernel, pitch):
        tables.tall = kernel[1]
        taps.sort()
        j = (np.minimum(np.arange(0, h, QUAD), h - QUAD)[:, None] + np.arange(QUAD)).reshape(1, 1, -1)
        k = k.reshape(1, -1, 1)  # down the rows first
        meets = np.ones((j.size, k.size, len(taps)), bool)
    elif tables.strips == 1:
        meets &= all_meet(axes, phases).any(axis=2, keepdims=True)
    position = ((i * source[0] + j) * source[1] + k).ravel()
    place = ((i * axes[1].result + j) * w + k).ravel()
    tables.add_vectors(position, place, taps, meets.reshape(place.size, len(taps)))
    return tables


def _is_grid(taps: Rows, kernel: Ints, pitch: int) -> bool:
    """Return True if the taps, sorted by their shifts, form rows that are one pitch apart."""
    shifts = np.sort([shift for shift, _ in taps]).reshape(kernel[1], kernel[2])
    return bool((np.diff(shifts, axis=0) == pitch).all() and (np.diff(shifts, n=2, axis=1) == 0).all())


def by_images(axes: Axes, kernel: Ints, lanes: int, images: int) -> Tables:
    """Return the tables of the layout images. The lanes are images, and a segment is a group of images."""
    depth, height, width = (axis.reach() for axis in axes)

    def at(d: Any, h: Any, w: Any) -> Any:
        return ((d * height + h) * width + w) * lanes

    # Pixels beyond the reach, which a large stride never reads, go to one spare place at the end.
    spare = at(depth, 0, 0)
    d, h, w = np.meshgrid(*(np.arange(axis.source) + axis.low for axis in axes), indexing="ij")
    pixels = np.where((d < depth) & (h < height) & (w < width), at(d, h, w), spare).ravel()
    tables = Tables(-(-images // lanes), by_image=True, plane=spare + lanes, pixels_in=pixels)
    tables.results = math.prod(axis.result for axis in axes) * lanes
    tables.zeros = [(place, lanes) for place in np.setdiff1d(np.arange(0, spare, lanes), pixels)]
    for phases in combinations(axes):
        taps: Rows = [(at(*shift), number) for number, shift in taps_of(phases, kernel)]
        m = np.meshgrid(*(np.arange(phase.count) for phase in phases), indexing="ij")
        position = at(*(i * axis.step for i, axis in zip(m, axes, strict=True)))
        d, h, w = (phase.start + phase.step * i for i, phase in zip(m, phases, strict=True))
        place = ((d * axes[1].result + h) * axes[2].result + w) * lanes
        meets = all_meet(axes, phases).reshape(position.size, len(taps))
        tables.add_vectors(position.ravel(), place.ravel(), taps, meets)
    tables.into = len(pixels) * TRANSPOSE_COST
    tables.out = tables.results / lanes * TRANSPOSE_COST
    return tables
