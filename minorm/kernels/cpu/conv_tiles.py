"""Chooses Winograd's F(2x2, 3x3) for the shapes where it pays, and cuts the tiles into jobs.

Results are computed in tiles of 2x2, each from a 4x4 tile of the source, by 16 multiply-adds for each pair of channels
instead of 36 (minorm_ext/conv/winograd.pxd). The saved time must exceed the time of transforming tiles, once for each
channel, and kernels, once for each pair of channels; `pays` compares the two.

Shapes alone decide, so that every instruction set takes the same algorithm, with the same bits. MINORM_WINOGRAD=0 in
the environment turns it off.
"""

from __future__ import annotations

from typing import Any

import minorm_ext
from minorm.kernels.cpu.conv_axes import Axes, Axis, Ints

kernels: Any = minorm_ext.kernels("conv")

# Costs in multiply-adds, measured with AVX-512, where transforms cost the most; only the magnitude matters.
TILE_COST, ROW_COST, IMAGE_COST = 100.0, 400.0, 2000.0  # for a tile of one channel, for a row of tiles, for an image
SUMS_COST = 1.3  # the factor for the gradient for the weights, which also transforms dy and adds up along vectors
KERNEL_COST = 250.0  # to transform a kernel, and to read it where it is used
WORTH = 1.05  # the loss accepted with AVX-512 for the gain with AVX2

# The number of tiles at a time. For results the tiles must stay in the second cache. The gradient for the weights takes
# more tiles, because it adds up its sums along vectors at the end of each piece.
LEAST, MOST, MOST_SUMS = 512, 1024, 2048  # bytes of a row of tiles
CACHE, CACHE_SUMS = 256 << 10, 8 << 20  # bytes of the tiles of all channels: those read, and all that are multiplied
PIECES = 256  # divided by the channels, 4 at most: how many should be left for several threads
CHUNKS = 16  # of pieces, at most, for the gradient for the weights, with any number of threads
PARTIAL = 8 << 20  # bytes of their sums
WAITING = 96  # outputs whose products wait to be put together
WAITING_ALONE = 24  # the same for a single piece: a job transforms their kernels and uses them from the cache
VECTOR = 16  # numbers in a vector, at most


def pays(images: int, channels: int, outputs: int, result: Ints, tiles: Ints, weights: bool) -> bool:
    """Is Winograd faster? Channels are those of a group; result and tiles are heights and widths of an image."""
    rows, columns = tiles
    transforms = (TILE_COST * columns + ROW_COST) * rows + IMAGE_COST
    each = 16 * rows * columns + transforms * (SUMS_COST if weights else 1) * (1 / channels + 1 / outputs)
    return WORTH * 9 * images * result[0] * result[1] > images * each + KERNEL_COST


def sizes(
    axes: Axes, kernel: Ints, images: int, groups: int, channels: int, outputs: int, itemsize: int, weights: bool
) -> dict[str, int] | None:
    """Return the sizes for the kernel's Winograd; None if it does not apply or does not pay."""
    if not minorm_ext.WINOGRAD or kernel != (1, 3, 3) or axes[0].result != 1 or not axes[0].trivial():
        return None
    top, left = (_low(axis) for axis in axes[1:])
    rows, columns = (-(-axis.result // 2) for axis in axes[1:])
    each, result = rows * columns, (axes[1].result, axes[2].result)
    if top is None or left is None or not pays(images, channels, outputs, result, (rows, columns), weights):
        return None
    if weights:
        fits = CACHE_SUMS // (16 * itemsize * (channels + outputs))
        most = min(fits, MOST_SUMS // itemsize, images * each // max(1, min(4, PIECES // channels)))
    else:
        most = min(CACHE // (16 * itemsize * channels), MOST // itemsize)
    most = max(LEAST // itemsize, most)
    together = -(-images // -(-images // max(1, most // each)))  # as even as they can be
    rows_together = -(-rows // min(rows, max(1, -(-each // most))))
    strips = -(-rows // rows_together)
    pieces = -(-images // together) * strips
    chunks = max(1, min(pieces, CHUNKS, PARTIAL // (16 * itemsize * groups * channels * outputs)))
    blocks = -(-outputs // kernels.BLOCK)
    alone = pieces == 1 and not weights
    units = blocks if weights else min(blocks, (WAITING_ALONE if alone else WAITING) // kernels.BLOCK)
    waiting = min(outputs, units * kernels.BLOCK)
    pitch = _vectors(together * rows_together * columns)
    # One vector more than needed from one product to the next: the 16 of a tile must not share a set of the cache.
    steps = [count * pitch + VECTOR for count in (channels, waiting)]
    kernel_step = _vectors(channels * (waiting if alone else outputs)) + VECTOR
    transforms = _vectors(12 * together * (rows_together + 1) * (columns + 1)) + 16 * VECTOR  # lines, and rows of tiles
    return {
        "images": images,
        "groups": groups,
        "channels": channels,
        "outputs": outputs,
        "height": axes[1].source,
        "width": axes[2].source,
        "result_height": axes[1].result,
        "result_width": axes[2].result,
        "top": top,
        "left": left,
        "rows": rows,
        "columns": columns,
        "images_at_once": together,
        "rows_at_once": rows_together,
        "strips": strips,
        "pieces": pieces,
        "chunks": -(-pieces // -(-pieces // chunks)),
        "blocks": blocks,
        "units": units,
        "pitch": pitch,
        "source_step": steps[0],
        "result_step": steps[1],
        "kernel_step": kernel_step,
        "chunk_step": 16 * groups * kernel_step + _vectors(groups * outputs),
        "transforms": transforms,
        "kernels": 0 if alone else 16 * groups * kernel_step,
        "scratch": 16 * (sum(steps) + (kernel_step if alone else 0)) + transforms,
    }


def _vectors(count: int) -> int:
    """Round a count of numbers up to whole vectors."""
    return -(-count // VECTOR) * VECTOR


def _low(axis: Axis) -> int | None:
    """Return the zeros before the source that the first result reads; None unless the taps are three neighbours."""
    if axis.step != 1 or len(axis.phases) != 1:
        return None
    shifts = sorted(shift for _, shift in axis.phases[0].taps)
    return axis.low - shifts[0] if shifts == list(range(shifts[0], shifts[0] + 3)) else None
