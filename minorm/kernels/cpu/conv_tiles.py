"""Decides whether Winograd's F(2x2, 3x3) is faster for a convolution, and divides the tiles into jobs.

Results are computed in tiles of 2x2, each from a 4x4 tile of the source, with 16 multiply-adds for each pair of
channels instead of 36 (minorm_ext/conv/winograd.pxd). But each tile must be transformed once for each channel, and the
kernel once for each pair of channels. `pays` compares this time with the time saved.

The decision depends only on the shapes, so that every instruction set uses the same algorithm and gives the same bits.
MINORM_WINOGRAD=0 in the environment turns Winograd off.
"""

from __future__ import annotations

from typing import Any

import minorm_ext
from minorm.kernels.cpu.conv_axes import Axes, Axis, Ints

kernels: Any = minorm_ext.kernels("conv")

# Costs in multiply-adds, measured with AVX-512, where transforms cost the most; only their magnitude matters.
TILE_COST, ROW_COST, IMAGE_COST = 100.0, 400.0, 2000.0  # for a tile of one channel, for a row of tiles, for an image
SUMS_COST = 1.3  # the factor for weight gradients, which also transform dy and add up along vectors
KERNEL_COST = 250.0  # to transform a kernel, and to read it later
WORTH = 1.05  # with AVX-512 a small loss is accepted, since AVX2 gains

# The number of tiles in a piece. For results the tiles must stay in the second-level cache. Weight gradients take more
# tiles, because they add up their sums along vectors at the end of each piece.
LEAST, MOST, MOST_SUMS = 512, 1024, 2048  # bytes of a row of tiles
CACHE, CACHE_SUMS = 256 << 10, 8 << 20  # bytes of tiles of all channels: those read, and all multiplied
PIECES = 256  # divided by the channels (at most by 4): the pieces that should remain for several threads
CHUNKS = 16  # the most chunks of pieces for weight gradients, for any number of threads
PARTIAL = 8 << 20  # bytes of the sums of chunks
WAITING = 96  # outputs whose products are kept until they are combined
WAITING_ALONE = 24  # the same for a single piece: a job transforms their kernels, and reads them from the cache
VECTOR = 16  # the most numbers in a vector


def pays(images: int, channels: int, outputs: int, result: Ints, tiles: Ints, weights: bool) -> bool:
    """Return True if Winograd is faster. `channels` and `outputs` are the channels of one group, and `result` and
    `tiles` are the (height, width) of an image, in results and in tiles.
    """
    rows, columns = tiles
    transforms = (TILE_COST * columns + ROW_COST) * rows + IMAGE_COST
    each = 16 * rows * columns + transforms * (SUMS_COST if weights else 1) * (1 / channels + 1 / outputs)
    return WORTH * 9 * images * result[0] * result[1] > images * each + KERNEL_COST


def sizes(
    axes: Axes, kernel: Ints, images: int, groups: int, channels: int, outputs: int, itemsize: int, weights: bool
) -> dict[str, int] | None:
    """Return the sizes for the kernel's object Winograd, or None if Winograd cannot be used or is not faster."""
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
    together = -(-images // -(-images // max(1, most // each)))  # as equal as possible
    rows_together = -(-rows // min(rows, max(1, -(-each // most))))
    strips = -(-rows // rows_together)
    pieces = -(-images // together) * strips
    chunks = max(1, min(pieces, CHUNKS, PARTIAL // (16 * itemsize * groups * channels * outputs)))
    blocks = -(-outputs // kernels.BLOCK)
    alone = pieces == 1 and not weights
    units = blocks if weights else min(blocks, (WAITING_ALONE if alone else WAITING) // kernels.BLOCK)
    waiting = min(outputs, units * kernels.BLOCK)
    pitch = _vectors(together * rows_together * columns)
    # One vector more than needed between two products, so that the 16 products of a tile do not share a set of the
    # cache.
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
    """Round a number of elements up to whole vectors."""
    return -(-count // VECTOR) * VECTOR


def _low(axis: Axis) -> int | None:
    """Return how many zeros the first result reads before the source.

    If the taps of a result are not three neighbours, return None.
    """
    if axis.step != 1 or len(axis.phases) != 1:
        return None
    shifts = sorted(shift for _, shift in axis.phases[0].taps)
    return axis.low - shifts[0] if shifts == list(range(shifts[0], shifts[0] + 3)) else None
