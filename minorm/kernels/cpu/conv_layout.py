"""How a convolution is laid out in vectors: everything about it that depends on shapes alone, worked out once.

The kernel (minorm_ext/conv.pyx) knows one thing: add up taps, each a shifted read of a packed copy of the source. What
is packed how, and which shift belongs to which tap, is decided here, and kept for the next call with these shapes.

A convolution and its gradient for the input are the same sum. Along one axis, number the results m = 0, 1, ...; tap t
of result m reads the padded source at

    m * step + shift[t]          padded index = source index + low

Forward, step is the stride and shift = t * dilation. For the gradient the results fall into `stride` phases, each with
the taps that reach it, and step is 1. Results of a phase stand at start, start + stride, ...

The lanes of a vector are either neighbouring pixels or images.

Pixels: every row of the source is followed by the zeros of its padding, and a plane is row after row, one long line. A
tap is the same shift everywhere, and vectors run across the ends of rows; what they compute between two rows is thrown
away. A step above 1 would tear the lanes apart, so then the source is packed in phases of its own, every step-th row
and column, and a tap reads the phase that it falls into.

Images: a vector is one pixel of as many images as it has lanes. Nothing is thrown away, taps that meet only padding
are left out, and any step is as good as 1; the price is to transpose on the way in and out. Good for small planes.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import minorm_ext

kernels: Any = minorm_ext.kernels("conv")
QUAD: int = kernels.QUAD  # vectors that the kernel computes at a time
CACHE = 384 << 10  # bytes that the packed sources of one job may take: they share the second cache with the rest
FIRST_CACHE = 24 << 10  # bytes of gradients that the kernel reads again for every tap

PARTIAL = 8 << 20  # bytes of weight gradients that wait to be added up
JOBS = 8  # into which the gradient for the weights is cut, whatever the number of threads
MOST_PIXELS = 1024  # in a plane whose pixels are transposed

# What moving data costs, in units of one multiply-add of vectors; measured, and only their size matters.
ROW_COST = 8.0  # to start a row
VECTOR_COST = 3.0  # to copy a vector of it
TRANSPOSE_COST = 8.0  # to transpose a vector

Ints = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]
Rows = list[tuple[int, ...]]


@dataclass(frozen=True)
class Phase:
    """Results start, start + step, ... (count of them), and their taps as (number, shift)."""

    start: int
    step: int
    count: int
    taps: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Axis:
    """The sum along one axis."""

    source: int  # length
    result: int
    low: int
    step: int
    phases: tuple[Phase, ...]

    @classmethod
    def forward(cls, x: int, kernel: int, stride: int, padding: tuple[int, int], dilation: int) -> Axis:
        """y[m] reads x at m * stride + t * dilation - low."""
        y = (x + sum(padding) - dilation * (kernel - 1) - 1) // stride + 1
        taps = tuple((t, t * dilation) for t in range(kernel))
        return cls(x, y, padding[0], stride, (Phase(0, 1, y, taps),))

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
        return cls(y, x, low, 1, tuple(_shifted(phase, low) for phase in phases))

    def strip(self, count: int) -> Axis:
        """At most `count` results of every phase."""
        phases = tuple(Phase(p.start, p.step, min(p.count, count), p.taps) for p in self.phases)
        return Axis(self.source, self.result, self.low, self.step, phases)

    def meets(self, phase: Phase) -> Any:
        """(results, taps) of the phase: is it the source that they meet, or padding?"""
        at = np.arange(phase.count)[:, None] * self.step + [shift for _, shift in phase.taps] - self.low
        return (at >= 0) & (at < self.source)

    def reach(self, divide: bool) -> int:
        """How much of the padded source is read, or of its phases (divide)."""
        ends = [
            phase.count - 1 + shift // self.step if divide else (phase.count - 1) * self.step + shift
            for phase in self.phases
            for _, shift in phase.taps
        ]
        return max(ends, default=0) + 1

    def pitch(self) -> int:
        """The length of a packed row. Its reach may go into the next row, as far as that begins with zeros."""
        reach = self.reach(divide=True)
        residues = {shift % self.step for phase in self.phases for _, shift in phase.taps} or {0}
        begin = min(max(0, -((c - self.low) // self.step)) for c in residues)
        end = max(min(-((c - self.low - self.source) // self.step), reach) for c in residues)
        return max(end, reach - begin, *(phase.count for phase in self.phases))


Axes = tuple[Axis, Axis, Axis]


def _shifted(phase: Phase, by: int) -> Phase:
    return Phase(phase.start, phase.step, phase.count, tuple((t, shift + by) for t, shift in phase.taps))


@dataclass
class Tables:
    """One layout. Places are counted in numbers, not bytes."""

    by_image: bool
    segments: int  # pieces that are packed by themselves: images, strips of images, or groups of images
    plane: int = 0  # packed numbers of one channel in a segment
    results: int = 0  # numbers of its results
    strips: int = 1  # of an image
    along: int = 1  # the axis they are cut along
    source_move: int = 0  # from one strip to the next along that axis
    result_move: int = 0
    row_step: int = 1
    row_length: int = 1
    rows_in: Rows = field(default_factory=list)  # (place in the plane, d, h, first w) of every packed row
    rows_out: Rows = field(default_factory=list)  # (place in the results, d, h, first w, step of w, count) of a row
    pixels_in: Any = ()  # the place in the plane of every pixel of the source
    zeros: Rows = field(default_factory=list)  # (place, count) in the plane that no row and no pixel covers
    position: list[Any] = field(default_factory=list)  # where each vector reads the plane, before the shift of a tap
    place: list[Any] = field(default_factory=list)  # where it is written in the results
    runs: Rows = field(default_factory=list)  # (first, count): the taps that a quad of vectors adds up
    taps: Rows = field(default_factory=list)  # (shift, number of the weight)
    ranges: Rows = field(
        default_factory=list
    )  # of every weight (shift, first, last vector that it meets); forward only
    vectors: int = 0  # without the repeated ones that fill the last quad
    work: int = 0  # multiply-adds of vectors in a segment, for one channel of the source and one of the result
    into: float = 0.0  # the cost of packing a channel, and of unpacking one, in the same unit
    out: float = 0.0

    def add_vectors(self, position: Any, place: Any, taps: Rows, meets: Any) -> None:
        """Put the vectors of one combination of phases in quads, each with the taps that any vector of it meets."""
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
        self.ranges = [(tap[0], min(a, b), b) for tap, a, b in zip(taps, first, last, strict=True)]

    def cost(self, channels: int, outputs: int) -> float:
        """A guess at the time of the sum, in multiply-adds of vectors."""
        return self.segments * (self.work * channels * outputs + self.into * channels + self.out * outputs)


def _combinations(axes: Axes) -> list[tuple[Phase, ...]]:
    """Every choice of one phase an axis, where it has results."""
    return [phases for phases in itertools.product(*(axis.phases for axis in axes)) if all(p.count for p in phases)]


def _taps(phases: tuple[Phase, ...], kernel: Ints) -> list[tuple[int, Ints]]:
    """(number of the weight, shift along every axis) for every tap of these phases."""
    result = []
    for taps in itertools.product(*(phase.taps for phase in phases)):
        (d, h, w), shift = zip(*taps, strict=True)
        result.append(((d * kernel[1] + h) * kernel[2] + w, shift))
    return result


def _meets(axes: Axes, phases: tuple[Phase, ...], cut: int | None) -> Any:
    """(d, h, w, tap): does the tap meet the source? Along the axis that is cut in strips, in some strip it does."""
    parts = [
        np.ones((phase.count, len(phase.taps)), bool) if i == cut else axis.meets(phase)
        for i, (axis, phase) in enumerate(zip(axes, phases, strict=True))
    ]
    d, h, w = parts
    result = d[:, None, None, :, None, None] & h[:, None, None, :, None] & w[:, None, None, :]
    return result.reshape(len(d), len(h), len(w), d.shape[1] * h.shape[1] * w.shape[1])


def by_pixels(axes: Axes, kernel: Ints, lanes: int, images: int, row_bytes: int) -> Tables:
    """Lanes are neighbouring pixels; a segment is an image or a strip of it. row_bytes: one number of every channel."""
    along = 0 if axes[0].result > 1 else 1
    count = max(phase.count for phase in axes[along].phases)
    packed = axes[2].pitch() * row_bytes * axes[2].step * (axes[1].reach(divide=True) if along == 0 else 1)
    halo = axes[along].reach(divide=True) - count
    rows = max(CACHE // (packed * axes[along].step) - halo, 2 * halo, 1)
    strips = -(-count // rows)
    rows = -(-count // strips)
    axes = tuple(axis.strip(rows) if i == along else axis for i, axis in enumerate(axes))  # type: ignore[assignment]

    depth, height, reach = (axis.reach(divide=True) for axis in axes)
    pitch = axes[2].pitch()

    def line(d: Any, h: Any, w: Any) -> Any:
        return (d * height + h) * pitch + w

    def in_vectors(inside: Any) -> Any:
        """Flags (d, h, w, tap) of results, as flags (vector, tap): is any of its lanes set?"""
        d, h, w, taps = inside.shape
        spread = np.zeros((d, height, pitch, taps), bool)
        spread[:, :h, :w] = inside
        vectors = -(-(line(d - 1, h - 1, w - 1) + 1) // lanes)
        flags = np.zeros((vectors * lanes, taps), bool)
        flags[: d * height * pitch] = spread.reshape(d * height * pitch, taps)[: vectors * lanes]
        return flags.reshape(vectors, lanes, taps).any(axis=1)

    covered = depth * height * pitch
    size = -(-(covered + max(0, reach - pitch) + lanes) // lanes) * lanes  # of a phase of the source
    sources: dict[Ints, int] = {}  # the phases that some tap reads
    tables = Tables(False, images * strips, strips=strips, along=along, row_step=axes[2].step, row_length=pitch)
    tables.source_move = rows * axes[along].step
    tables.result_move = rows * axes[along].phases[0].step
    for phases in _combinations(axes):
        taps: Rows = []
        for number, shift in _taps(phases, kernel):
            steps, residues = zip(*(divmod(s, axis.step) for s, axis in zip(shift, axes, strict=True)), strict=True)
            taps.append((sources.setdefault(residues, len(sources)) * size + line(*steps), number))
        meets = _meets(axes, phases, along if strips > 1 else None)
        used = np.flatnonzero(in_vectors(np.ones((*meets.shape[:3], 1), bool)))
        tables.add_vectors(used * lanes, used * lanes + tables.results, taps, in_vectors(meets)[used])
        d, h, w = phases
        tables.rows_out += [
            (tables.results + line(i, j, 0), d.start + d.step * i, h.start + h.step * j, w.start, w.step, w.count)
            for i in range(d.count)
            for j in range(h.count)
        ]
        tables.results += (int(used[-1]) + 1) * lanes
    tables.rows_in = [
        (
            number * size + line(d, h, 0),
            d * axes[0].step + residues[0] - axes[0].low,
            h * axes[1].step + residues[1] - axes[1].low,
            residues[2] - axes[2].low,
        )
        for residues, number in sources.items()
        for d in range(depth)
        for h in range(height)
    ]
    tables.plane = max(1, len(sources)) * size
    tables.zeros = [(number * size + covered, size - covered) for number in range(len(sources))]
    tables.into = len(tables.rows_in) * ROW_COST + tables.plane / lanes * VECTOR_COST
    tables.out = len(tables.rows_out) * ROW_COST + tables.results / lanes * VECTOR_COST
    return tables


def by_images(axes: Axes, kernel: Ints, lanes: int, images: int) -> Tables:
    """Lanes are images; a segment is a group of them."""
    depth, height, width = (axis.reach(divide=False) for axis in axes)

    def at(d: Any, h: Any, w: Any) -> Any:
        return ((d * height + h) * width + w) * lanes

    # Pixels beyond the reach, which a stride can leave over, go to one spare place at the end.
    spare = at(depth, 0, 0)
    d, h, w = np.meshgrid(*(np.arange(axis.source) + axis.low for axis in axes), indexing="ij")
    pixels = np.where((d < depth) & (h < height) & (w < width), at(d, h, w), spare).ravel()
    tables = Tables(True, -(-images // lanes), spare + lanes, math.prod(axis.result for axis in axes) * lanes)
    tables.pixels_in = pixels
    tables.zeros = [(place, lanes) for place in np.setdiff1d(np.arange(0, spare, lanes), pixels)]
    for phases in _combinations(axes):
        taps: Rows = [(at(*shift), number) for number, shift in _taps(phases, kernel)]
        m = np.meshgrid(*(np.arange(phase.count) for phase in phases), indexing="ij")
        position = at(*(i * axis.step for i, axis in zip(m, axes, strict=True)))
        d, h, w = (phase.start + phase.step * i for i, phase in zip(m, phases, strict=True))
        place = ((d * axes[1].result + h) * axes[2].result + w) * lanes
        meets = _meets(axes, phases, None)
        tables.add_vectors(position.ravel(), place.ravel(), taps, meets.reshape(position.size, len(taps)))
    tables.into = len(pixels) * TRANSPOSE_COST
    tables.out = tables.results / lanes * TRANSPOSE_COST
    return tables


def best(
    axes: Axes, kernel: Ints, images: int, channels: int, outputs: int, itemsize: int, both: bool = False
) -> Tables:
    """The kind of lanes that should be faster. Channels are those of a group; both: results are packed as well."""
    lanes = kernels.lanes(itemsize)
    numbers = channels + outputs if both else channels
    pixels = by_pixels(axes, kernel, lanes, images, numbers * itemsize)
    if any(
        math.prod(sizes) > MOST_PIXELS for sizes in zip(*((axis.source, axis.result) for axis in axes), strict=True)
    ):
        return pixels
    return min(pixels, by_images(axes, kernel, lanes, images), key=lambda tables: tables.cost(channels, outputs))


def _canonical(values: Any, filler: Any) -> Any:
    """One value for each of the axes d, h, w; a line is h = 1."""
    return (filler,) * (3 - len(values)) + tuple(values)


def _forward_axes(x_shape: Ints, w_shape: Ints, stride: Ints, padding: Pairs, dilation: Ints) -> tuple[Axes, Ints]:
    sizes = (_canonical(x_shape[2:], 1), _canonical(w_shape[2:], 1), _canonical(stride, 1))
    axes: Any = tuple(
        itertools.starmap(Axis.forward, zip(*sizes, _canonical(padding, (0, 0)), _canonical(dilation, 1), strict=True))
    )
    return axes, (x_shape[0], w_shape[0], *(axis.result for axis in axes[5 - len(x_shape) :]))


def _layout(
    tables: Tables,
    axes: Axes,
    images: int,
    groups: int,
    channels: int,
    outputs: int,
    kernel: Ints,
    itemsize: int,
    both: bool = False,
) -> Any:
    """The kernel's Layout, with how the work is cut; for the weights (both) that must depend on shapes alone."""
    segment = channels * tables.plane + (outputs * tables.results if both else 0)
    fit = max(1, CACHE // (itemsize * segment))
    taps = math.prod(kernel)
    weights = groups * channels * outputs * taps
    chunks = max(1, min(tables.segments, JOBS, PARTIAL // (weights * itemsize)))
    parts = min(-(-JOBS // chunks), groups * channels)
    run = max(1, FIRST_CACHE // (6 * tables.results * itemsize))
    sizes = {
        "images": images,
        "groups": groups,
        "channels": channels,
        "outputs": outputs,
        "kernel": taps,
        "source": [axis.source for axis in axes],
        "result": [axis.result for axis in axes],
        "fit": fit,
        "chunks": chunks,
        "parts": parts,
        "run": run,
    }
    fields = dict(vars(tables))
    for name in ("rows_in", "rows_out", "pixels_in", "zeros", "runs", "taps", "ranges"):
        fields[name] = np.array(fields[name], np.intp)
    for name in ("position", "place"):
        fields[name] = np.concatenate(fields[name]).astype(np.intp)
    return kernels.Layout(fields, sizes)


@functools.lru_cache(maxsize=256)
def forward(
    x_shape: Ints, w_shape: Ints, stride: Ints, padding: Pairs, dilation: Ints, groups: int, itemsize: int
) -> Any:
    """The layout of y = W * x, and the shape of y."""
    axes, y_shape = _forward_axes(x_shape, w_shape, stride, padding, dilation)
    kernel = _canonical(w_shape[2:], 1)
    channels, outputs = w_shape[1], w_shape[0] // groups
    tables = best(axes, kernel, x_shape[0], channels, outputs, itemsize)
    return _layout(tables, axes, x_shape[0], groups, channels, outputs, kernel, itemsize), y_shape


@functools.lru_cache(maxsize=256)
def grad_input(
    dy_shape: Ints,
    w_shape: Ints,
    x_shape: Ints,
    stride: Ints,
    padding: Pairs,
    dilation: Ints,
    groups: int,
    itemsize: int,
) -> Any:
    """The layout of dx = W^T * dy."""
    kernel = _canonical(w_shape[2:], 1)
    sizes = (_canonical(x_shape[2:], 1), kernel, _canonical(stride, 1), _canonical(padding, (0, 0)))
    rest = (_canonical(dilation, 1), _canonical(dy_shape[2:], 1))
    axes: Any = tuple(itertools.starmap(Axis.gradient, zip(*sizes, *rest, strict=True)))
    channels, outputs = w_shape[0] // groups, w_shape[1]
    tables = best(axes, kernel, x_shape[0], channels, outputs, itemsize)
    return _layout(tables, axes, x_shape[0], groups, channels, outputs, kernel, itemsize)


@functools.lru_cache(maxsize=256)
def grad_weight(
    x_shape: Ints, w_shape: Ints, stride: Ints, padding: Pairs, dilation: Ints, groups: int, itemsize: int
) -> Any:
    """The layout of dW = dy * x."""
    axes, _ = _forward_axes(x_shape, w_shape, stride, padding, dilation)
    kernel = _canonical(w_shape[2:], 1)
    channels, outputs = w_shape[1], w_shape[0] // groups
    tables = best(axes, kernel, x_shape[0], channels, outputs, itemsize, both=True)
    return _layout(tables, axes, x_shape[0], groups, channels, outputs, kernel, itemsize, both=True)
