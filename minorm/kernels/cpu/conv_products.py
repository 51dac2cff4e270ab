"""Builds the tables by which minorm_ext/products/plan.pxd computes convolutions of bfloat16 and integers as products.

A *plane* is the padded source with the channels of each pixel next to each other. Each result starts to read at a
certain position of the plane (`rows`). From there, the taps and channels of the result are at fixed distances
(`steps`), which are the same for all results of a phase. For weight gradients, these distances are the columns of the
product, and the product sums over the results. Some choices affect the bits of a sum: the order of the taps, the number
of images that are summed together, and the chunks. These choices depend only on the shapes.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

import minorm_ext
from minorm.kernels.cpu import conv_axes
from minorm.kernels.cpu.conv_axes import Axes, Ints, Pairs, Phase
from minorm.kernels.reference.conv import checked
from minorm.kernels.reference.conv_tiles import chunks_of, images_together
from minorm.kernels.reference.tiles import BLOCK

kernels: Any = minorm_ext.kernels("products")

PLANE = 48 << 10  # the most cells in the planes of a segment, if strips are possible
ROWS = 64  # results that a segment of small images should have
DEPTH = 512  # the same if the results are the depth

Phases = tuple[Phase, Phase, Phase]


def _places(axes: Axes, phases: Phases, counts: Ints, sizes: Ints, results: bool) -> Any:
    """Return a position for each result of `phases`, in memory order.

    With results=True, this is the position of the result in y. Otherwise it is the position in the plane where the
    result starts to read.
    """
    at: Any = np.zeros((1, 1, 1), np.intp)
    for i, (axis, phase, count) in enumerate(zip(axes, phases, counts, strict=True)):
        start, step = (phase.start, phase.step) if results else (0, axis.step)
        along = (start + np.arange(count) * step) * math.prod(sizes[i + 1 :])
        at = at + along.reshape([-1 if j == i else 1 for j in range(3)])
    return at.ravel()


def _taps(phases: Phases, kernel: Ints, plane: Ints) -> Iterator[tuple[int, int]]:
    """Yield, for each tap in memory order, the index of its weight and its distance in the plane."""
    for taps in itertools.product(*(phase.taps for phase in phases)):
        numbers, shifts = zip(*taps, strict=True)
        yield int(np.ravel_multi_index(numbers, kernel)), int(np.dot(shifts, (plane[1] * plane[2], plane[2], 1)))


class Cut:
    """Decides how images are cut into strips, or how many images are computed together. `plane()` is the size of a
    strip's plane, and `count` is the number of results of a strip along the axis that is cut.
    """

    def __init__(self, axes: Axes, images: int, channels: int, weights: bool) -> None:
        self.axes = axes
        self.along = next((i for i, axis in enumerate(axes) if axis.result > 1), 2)
        whole = max((phase.count for phase in axes[self.along].phases), default=0)
        across = math.prod(axis.result for i, axis in enumerate(axes) if i != self.along)
        unit = BLOCK // math.gcd(BLOCK, across) if weights else 1  # strips then end with whole blocks of a long depth
        self.count = max(1, whole)
        while self.count > unit and self.cells(channels) > PLANE:
            self.count = -(-self.count // (2 * unit)) * unit
        self.strips = max(1, -(-whole // self.count))
        results = math.prod(axis.result for axis in axes)
        self.together = images_together(results, images) if weights else 1
        self.padded = -(-self.together * results // BLOCK) * BLOCK
        self.fit = 1
        if self.strips == 1:
            most = min(DEPTH if weights else ROWS, PLANE * results // max(1, self.cells(channels)))
            self.fit = max(self.together, min(images, most // max(1, results)) // self.together * self.together)

    def strip(self) -> Axes:
        d, h, w = (axis.strip(self.count) if i == self.along else axis for i, axis in enumerate(self.axes))
        return d, h, w

    def plane(self) -> Ints:
        return tuple(axis.reach() for axis in self.strip())

    def cells(self, channels: int) -> int:
        return math.prod(self.plane()) * channels


class _Tables:
    """The tables of all phases, one after the other. `phases` has the position in each table where a phase starts."""

    def __init__(self) -> None:
        self.phases: list[Ints] = []
        self.parts: dict[str, list[Any]] = {
            "rows": [np.zeros(0)],
            "places": [np.zeros(0)],
            "steps": [np.zeros((0, 2))],
            "runs": [np.zeros(0)],
            "taps": [np.zeros(0)],
        }
        self.depths = self.most_rows = self.taken = 0  # depths: in whole blocks; taken: the taps of all results

    def add(self, along: int, inner: int, depth: int, **parts: Any) -> None:
        """Add a phase with `along` results on the axis that is cut, and `inner` results on the other axes."""
        rows, places, steps, runs, taps = (sum(map(len, self.parts[name])) for name in self.parts)
        count = len(parts["taps"])
        self.phases.append((along, inner, rows, places, steps, runs, depth, taps, count, self.depths))
        self.depths += -(-depth // BLOCK) * BLOCK
        self.most_rows = max(self.most_rows, len(parts["rows"]))
        self.taken += along * inner * count
        for name, part in parts.items():
            self.parts[name].append(part)

    def arrays(self) -> dict[str, Any]:
        types = {"places": np.intp}
        joined = {name: np.concatenate(parts) for name, parts in self.parts.items()}
        found = {name: array.astype(types.get(name, np.int32), order="C") for name, array in joined.items()}
        return {"phases": np.array(self.phases, np.intp), **found}


def _add_phase(
    tables: _Tables, phases: Phases, axes: Axes, kernel: Ints, channels: int, cut: Cut, weights: bool, width: int
) -> None:
    plane, result = cut.plane(), tuple(axis.result for axis in axes)
    size = math.prod(plane) * channels
    counts = tuple(min(phase.count, cut.count) if i == cut.along else phase.count for i, phase in enumerate(phases))
    taps = list(_taps(phases, kernel, plane))
    rows = (np.arange(cut.fit)[:, None] * size + _places(axes, phases, counts, plane, False) * channels).ravel()
    if weights:
        steps = _depth(rows, cut, cut.fit * size)
    else:
        distances = np.array([shift for _, shift in taps], np.intp)[:, None] * channels + np.arange(channels)
        steps = np.stack([distances.ravel(), np.arange(distances.size) * width], axis=1)
    tables.add(
        phases[cut.along].count,
        math.prod(phase.count for i, phase in enumerate(phases) if i != cut.along),
        0 if weights else len(steps),
        rows=rows,
        places=_places(axes, phases, counts, result, True),
        steps=steps,
        runs=_runs(steps),
        taps=np.array([number for number, _ in taps]),
    )


def _planned(
    axes: Axes, kernel: Ints, images: int, groups: int, channels: int, outputs: int, weights: bool = False
) -> Any:
    """Return the kernel's object Convolution, made from the tables."""
    return kernels.Convolution(*tables_of(axes, kernel, images, groups, channels, outputs, kernels.COLUMNS, weights))


def tables_of(
    axes: Axes, kernel: Ints, images: int, groups: int, channels: int, outputs: int, width: int, weights: bool = False
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the tables and the sizes for a kernel whose panels have `width` columns."""
    cut, tables = Cut(axes, images, channels, weights), _Tables()
    result = tuple(axis.result for axis in axes)
    for phases in conv_axes.combinations(axes):
        _add_phase(tables, phases, axes, kernel, channels, cut, weights, width)
    panels, targets = _columns(axes, kernel, cut.plane(), channels, width) if weights else ([], [])
    count = groups * channels * outputs * math.prod(kernel)
    along = axes[cut.along]
    sizes = {
        "images": images,
        "groups": groups,
        "channels": channels,
        "outputs": outputs,
        "source": [axis.source for axis in axes],
        "plane": list(cut.plane()),
        "low": [axis.low for axis in axes],
        "result_size": math.prod(result),
        "kernel": math.prod(kernel),
        "fit": cut.fit,
        "strips": cut.strips,
        "along": cut.along,
        "count": cut.count,
        "source_move": cut.count * along.step,
        "result_move": cut.count * along.phases[0].step * math.prod(result[cut.along + 1 :]),
        "most_rows": tables.most_rows,
        "weights": tables.depths,
        "together": cut.together,
        "padded": cut.padded,
        "zeros": max((start for start, _ in panels), default=0) + width if weights else 0,
        "chunks": chunks_of(images, math.prod(result), count),
        "work": groups * channels * outputs * tables.taken,
    }
    columns = {
        "panel_columns": np.array(panels, np.int32).reshape(-1, 2),
        "targets": np.array(targets, np.int32),
    }
    return {**tables.arrays(), **columns}, sizes


def _depth(places: Any, cut: Cut, zeros: int) -> Any:
    """Return (position in dy, position in the plane) for each term of a weight's sum. Zeros fill the last block."""
    results = len(places) // cut.fit * cut.together
    pairs = np.stack([np.arange(len(places)), places], axis=1).reshape(-1, results, 2)
    missing = cut.padded - results if cut.strips == 1 else 0
    nothing = np.broadcast_to(np.array([len(places), zeros]), (len(pairs), missing, 2))
    return np.concatenate([pairs, nothing], axis=1).reshape(-1, 2)


def _runs(steps: Any) -> Any:
    """Return a number for each block of `steps`, which says how evenly the block's steps are spaced.

    block.h explains these numbers, which are called `runs` there.
    """
    whole = len(steps) // BLOCK * BLOCK
    apart = np.diff(steps[:whole].reshape(-1, BLOCK, 2), axis=1)
    neighbours = (apart[..., 0] == 1).all(axis=1)
    even = (apart[..., 1] == apart[:, :1, 1]).all(axis=1) & (apart[:, 0, 1] > 0)
    runs = np.where(neighbours, np.where(even, apart[:, 0, 1], kernels.BY_TABLE), 0)
    return np.append(runs, 0)


def _columns(
    axes: Axes, kernel: Ints, plane: Ints, channels: int, width: int
) -> tuple[list[tuple[int, int]], list[int]]:
    """Return (position in the plane, number of columns) for each panel, and the index of the weight for each column.

    Taps that are next to each other in the plane become neighbouring columns.
    """
    (phases,) = conv_axes.combinations(axes)
    runs: list[tuple[int, list[int]]] = []
    taps = math.prod(kernel)
    end = -1
    for number, shift in _taps(phases, kernel, plane):
        if shift != end:
            runs.append((shift * channels, []))
        runs[-1][1].extend(channel * taps + number for channel in range(channels))
        end = shift + 1
    panels, targets = [], []
    for start, weights in runs:
        for at in range(0, len(weights), width):
            some = weights[at : at + width]
            panels.append((start + at, len(some)))
            targets += some + [-1] * (width - len(some))
    return panels, targets


def ways(
    x_shape: Ints, w_shape: Ints, stride: Ints, padding: Pairs, dilation: Ints, groups: int
) -> tuple[Ints, dict[str, Cut]]:
    """Return the shape of y, and how forward, grad_input and grad_weight cut the images, for `minorm.explain`."""
    y_shape = checked("conv.forward", x_shape, w_shape, stride, padding, dilation, groups)
    there = conv_axes.forward(x_shape, w_shape, stride, padding, dilation)
    back = conv_axes.gradient(y_shape, w_shape, x_shape, stride, padding, dilation)
    images, outputs = x_shape[0], w_shape[0] // groups
    return y_shape, {
        "forward": Cut(there, images, w_shape[1], False),
        "grad_input": Cut(back, images, outputs, False),
        "grad_weight": Cut(there, images, w_shape[1], True),
    }


def kernel_of(w_shape: Ints) -> Ints:
    """Return the lengths of the kernel along d, h, w."""
    return (1,) * (5 - len(w_shape)) + tuple(w_shape[2:])


@functools.lru_cache(maxsize=256)
def forward(x_shape: Ints, w_shape: Ints, stride: Ints, padding: Pairs, dilation: Ints, groups: int) -> Any:
    """Return the plan of y = W * x, and the shape of y."""
    y_shape = checked("conv.forward", x_shape, w_shape, stride, padding, dilation, groups)
    axes = conv_axes.forward(x_shape, w_shape, stride, padding, dilation)
    return _planned(axes, kernel_of(w_shape), x_shape[0], groups, w_shape[1], w_shape[0] // groups), y_shape


@functools.lru_cache(maxsize=256)
def grad_input(
    dy_shape: Ints, w_shape: Ints, x_shape: Ints, stride: Ints, padding: Pairs, dilation: Ints, groups: int
) -> Any:
    """Return the plan of dx = W^T * dy."""
    checked("conv.grad_input", x_shape, w_shape, stride, padding, dilation, groups, dy_shape)
    axes = conv_axes.gradient(dy_shape, w_shape, x_shape, stride, padding, dilation)
    return _planned(axes, kernel_of(w_shape), x_shape[0], groups, w_shape[0] // groups, w_shape[1])


@functools.lru_cache(maxsize=256)
def grad_weight(
    dy_shape: Ints, x_shape: Ints, w_shape: Ints, stride: Ints, padding: Pairs, dilation: Ints, groups: int
) -> Any:
    """Return the plan of dW = dy * x."""
    checked("conv.grad_weight", x_shape, w_shape, stride, padding, dilation, groups, dy_shape)
    axes = conv_axes.forward(x_shape, w_shape, stride, padding, dilation)
    return _planned(axes, kernel_of(w_shape), x_shape[0], groups, w_shape[1], w_shape[0] // groups, weights=True)
