"""Chooses the algorithm of a convolution and divides its work into jobs. A plan is kept for further calls with the same
shapes.

The plan uses Winograd's tiles where these are faster (conv_tiles.py). Otherwise it uses shifted reads, in the layout
with the lowest estimated time. This module also checks the shapes, so later calls with the same plan need no check.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

import minorm_ext
from minorm.kernels.cpu import conv_axes, conv_tiles
from minorm.kernels.cpu import conv_layout as layout
from minorm.kernels.cpu.conv_axes import Axes, Ints, Pairs
from minorm.kernels.cpu.conv_layout import Tables
from minorm.kernels.reference.conv import checked

kernels: Any = minorm_ext.kernels("conv")

MOST_PIXELS = 1024  # pixels of a plane that may be transposed
FIRST_CACHE = 24 << 10  # bytes of gradients, which the kernel reads again for every tap
LINE = 4 << 20  # the most bytes of a line that is packed as a whole
PARTIAL = 8 << 20  # the most bytes of partial weight gradients
JOB = 200e3  # the fewest multiply-adds of vectors for a job
CHUNKS = 16  # the most chunks of images for weight gradients, for any number of threads
PARTS = 4  # parts of channels if there are fewer chunks; every part packs all gradients again
LARGEST = 5e8  # the most multiply-adds of a segment in a job, which cannot be interrupted
LONG = 64  # the number of vectors that a weight's sum should take together


def best(
    axes: Axes, kernel: Ints, images: int, channels: int, outputs: int, itemsize: int, weights: bool = False
) -> Tables:
    """Return the layout with the least estimated time. `channels` and `outputs` are the channels of one group. With
    weights=True, the sum is the gradient of the weights, which reads dy in the positions of the results.
    """
    lanes = kernels.lanes(itemsize, weights)
    numbers = itemsize * (channels + outputs if weights else channels)
    found = [layout.by_lines(axes, kernel, lanes, images, numbers)]
    width = axes[2].result
    forward = all(phase.step == 1 for axis in axes for phase in axis.phases)
    packed = weights or not all(axis.whole() for axis in axes)  # without packing, jobs can be divided anywhere
    long = packed and axes[0].result == axes[1].result == 1 and numbers * width > LINE
    if forward and width >= lanes and not (weights and width % lanes) and not long:
        alone = channels == outputs == 1 and not weights
        found.append(layout.by_rows(axes, kernel, lanes, images, numbers, alone))
    sizes = [math.prod(axis.source for axis in axes), math.prod(axis.result for axis in axes)]
    if max(sizes) <= MOST_PIXELS:
        found.append(layout.by_images(axes, kernel, lanes, images))

    def cost(tables: Tables) -> float:
        results = tables.results * outputs if weights else 0
        return tables.cost(channels, outputs, (tables.plane * channels + results) * itemsize)

    return min(found, key=cost)


def chosen(
    axes: Axes,
    kernel: Ints,
    images: int,
    groups: int,
    channels: int,
    outputs: int,
    itemsize: int,
    weights: bool = False,
) -> dict[str, int] | Tables:
    """Return the sizes of Winograd's tiles if these are faster, else the layout of shifted reads."""
    found = conv_tiles.sizes(axes, kernel, images, groups, channels, outputs, itemsize, weights)
    return best(axes, kernel, images, channels, outputs, itemsize, weights) if found is None else found


def _planned(
    axes: Axes,
    kernel: Ints,
    images: int,
    groups: int,
    channels: int,
    outputs: int,
    itemsize: int,
    weights: bool = False,
) -> Any:
    """Return the kernel's object Winograd or Layout, with the work divided into jobs. For weight gradients the jobs
    depend only on the shapes, not on the number of threads.
    """
    tables = chosen(axes, kernel, images, groups, channels, outputs, itemsize, weights)
    if isinstance(tables, dict):
        return kernels.Winograd(tables)
    lanes = kernels.lanes(itemsize, weights)
    taps = math.prod(kernel)
    results = tables.results * (outputs if weights else kernels.BLOCK)
    fit = max(1, layout.CACHE // (itemsize * (channels * tables.plane + results + 1)))
    if tables.direct_out and tables.strips > 1:
        fit = 1  # the distance between strips varies
    if channels == 1 and groups > 1 and not (weights or tables.by_image):
        fit = 1  # planes one after the other, as in memory
    partial = groups * channels * outputs * taps * itemsize
    jobs = int(tables.segments * tables.work * groups * channels * outputs / JOB)
    chunks = min(tables.segments, CHUNKS, jobs, PARTIAL // partial, tables.segments * tables.vectors // LONG)
    chunks = -(-tables.segments // -(-tables.segments // max(1, chunks)))  # as equal as possible
    parts = max(-(-min(jobs, PARTS) // chunks), int(tables.work * lanes * groups * channels * outputs / LARGEST))
    sizes = {
        "images": images,
        "groups": groups,
        "channels": channels,
        "outputs": outputs,
        "kernel": taps,
        "lanes": lanes,
        "source": [axis.source for axis in axes],
        "result": [axis.result for axis in axes],
        "fit": fit,
        "chunks": chunks,
        "parts": max(1, min(parts, groups * channels)),
        "run": max(1, FIRST_CACHE // (kernels.BLOCK * lanes * itemsize)),
        "columns": 3 if tables.by_image and kernel[2] == 3 else 4,
    }
    fields = dict(vars(tables))
    for name in ("rows_in", "rows_out", "pixels_in", "zeros", "runs", "taps", "ranges"):
        fields[name] = np.array(fields[name], np.intp)
    for name in ("position", "place"):
        fields[name] = np.concatenate(fields[name]).astype(np.intp)
    gaps = np.array([] if tables.by_image else [(0, tables.results)], np.intp)  # where results are packed like a source
    fields["packed_rows"] = fields["rows_in"], fields["zeros"], fields["pixels_in"]
    fields["result_rows"] = fields["rows_out"], gaps, fields["place"]
    return kernels.Layout(fields, sizes)


def _kernel_of(w_shape: Ints) -> Ints:
    """Return the lengths of the kernel along d, h, w."""
    return (1,) * (5 - len(w_shape)) + tuple(w_shape[2:])


@functools.lru_cache(maxsize=256)
def forward(
    x_shape: Ints, w_shape: Ints, stride: Ints, padding: Pairs, dilation: Ints, groups: int, itemsize: int
) -> Any:
    """Return the plan of y = W * x, and the shape of y."""
    y_shape = checked("conv.forward", x_shape, w_shape, stride, padding, dilation, groups)
    axes, kernel = conv_axes.forward(x_shape, w_shape, stride, padding, dilation), _kernel_of(w_shape)
    channels, outputs = w_shape[1], w_shape[0] // groups
    return _planned(axes, kernel, x_shape[0], groups, channels, outputs, itemsize), y_shape


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
    """Return the plan of dx = W^T * dy."""
    checked("conv.grad_input", x_shape, w_shape, stride, padding, dilation, groups, dy_shape)
    axes, kernel = conv_axes.gradient(dy_shape, w_shape, x_shape, stride, padding, dilation), _kernel_of(w_shape)
    channels, outputs = w_shape[0] // groups, w_shape[1]
    return _planned(axes, kernel, x_shape[0], groups, channels, outputs, itemsize)


@functools.lru_cache(maxsize=256)
def grad_weight(
    dy_shape: Ints,
    x_shape: Ints,
    w_shape: Ints,
    stride: Ints,
    padding: Pairs,
    dilation: Ints,
    groups: int,
    itemsize: int,
) -> Any:
    """Return the plan of dW = dy * x."""
    checked("conv.grad_weight", x_shape, w_shape, stride, padding, dilation, groups, dy_shape)
    axes, kernel = conv_axes.forward(x_shape, w_shape, stride, padding, dilation), _kernel_of(w_shape)
    channels, outputs = w_shape[1], w_shape[0] // groups
    return _planned(axes, kernel, x_shape[0], groups, channels, outputs, itemsize, weights=True)


def ways(
    x_shape: Ints, w_shape: Ints, stride: Ints, padding: Pairs, dilation: Ints, groups: int, itemsize: int
) -> tuple[Ints, dict[str, dict[str, int] | Tables]]:
    """Return the shape of y, and the algorithms of forward, grad_input and grad_weight, for `minorm.explain`."""
    y_shape = checked("conv.forward", x_shape, w_shape, stride, padding, dilation, groups)
    there, kernel = conv_axes.forward(x_shape, w_shape, stride, padding, dilation), _kernel_of(w_shape)
    back = conv_axes.gradient(y_shape, w_shape, x_shape, stride, padding, dilation)
    outputs, channels = w_shape[0] // groups, w_shape[1]
    return y_shape, {
        "forward": chosen(there, kernel, x_shape[0], groups, channels, outputs, itemsize),
        "grad_input": chosen(back, kernel, x_shape[0], groups, outputs, channels, itemsize),
        "grad_weight": chosen(there, kernel, x_shape[0], groups, channels, outputs, itemsize, weights=True),
    }
