"""Read NonMaxSuppression, RoiAlign and MaxRoiPool, operators on boxes in images."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.onnx.graph.memory_budget import TURN
from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.registry import EVERY, reads
from minorm.onnx.operators.traced_as_one_call import whole
from minorm.tensor.combining import stack
from minorm.tensor.tensor import Tensor

# NonMaxSuppression. Version 11 only says more clearly that a score must be above the threshold.


@reads("NonMaxSuppression", since=10, fixed=EVERY)
def read_nms(node: Node) -> Callable[..., Tensor]:
    """Return three indices (batch, class, box) for each kept box, in the shape (n, 3).

    The best box of a class comes first.
    """
    centered = node["center_point_box"]
    if centered not in (0, 1):
        raise ValueError(f"center_point_box is {centered}; expected 0 or 1")

    def suppress(
        boxes: Tensor,
        scores: Tensor,
        most: Tensor | None = None,
        overlap: Tensor | None = None,
        least: Tensor | None = None,
    ) -> Tensor:
        if boxes.ndim != 3 or boxes.shape[2] != 4 or scores.ndim != 3:
            raise ValueError(f"boxes have shape {boxes.shape}, scores {scores.shape}; expected (N, n, 4), (N, C, n)")
        if (boxes.shape[0], boxes.shape[1]) != (scores.shape[0], scores.shape[2]):
            raise ValueError(f"boxes have shape {boxes.shape}, scores {scores.shape}; expected one batch, and a score "
                             "for each box and class")  # fmt: skip
        count = int(_number(most, 0))
        count = min(max(count, 0), boxes.shape[1])
        limit, threshold = np.float32(_number(overlap, 0)), _number(least, -math.inf)
        batch, classes, n = scores.shape
        node.fits((batch, classes, count, 3), dtypes.int64)
        node.check_work(batch * classes, max(TURN // 10, n * count))
        found = [np.zeros((0, 3), np.int64)]
        for b in range(batch):
            corners = _corners(boxes.array[b], bool(centered))
            for c in range(classes):
                kept = _kept(corners, scores.array[b, c], count, limit, threshold, least is not None)
                found.append(np.stack([np.full(len(kept), b), np.full(len(kept), c), kept], 1))
        return Tensor(np.concatenate(found).astype(np.int64))

    return whole(node, suppress)


def _number(x: Tensor | None, default: float) -> float:
    return default if x is None or not x.numel() else float(x.array.reshape(-1)[0])


def _corners(boxes: Any, centered: bool) -> Any:
    """Return the corners of the boxes, (4, n): two coordinates of the lower corner, then two of the upper."""
    if centered:
        middle, size = boxes[:, :2], boxes[:, 2:]
        return np.concatenate([middle - size / 2, middle + size / 2], 1).T
    first, second = boxes[:, :2], boxes[:, 2:]
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], 1).T


def _kept(corners: Any, scores: Any, count: int, limit: Any, threshold: float, asked: bool) -> Any:
    """Return the indices of the boxes that remain after the suppression of overlapping boxes.

    Keep the best remaining box, drop all boxes that overlap this box too much, and repeat.
    """
    order = np.argsort(-scores, kind="stable")
    order = order[scores[order] > threshold] if asked else order
    low, high = corners[:2], corners[2:]
    area = np.prod(high - low, 0)
    kept: list[int] = []
    while len(order) and len(kept) < count:
        best, order = order[0], order[1:]
        kept.append(int(best))
        sides = np.minimum(high[:, [best]], high[:, order]) - np.maximum(low[:, [best]], low[:, order])
        shared = np.where((sides > 0).all(0), np.prod(sides, 0), 0)
        union = area[best] + area[order] - shared
        real = (shared > 0) & (area[best] > 0) & (area[order] > 0) & (union > 0)
        ratio = np.divide(shared, union, out=np.zeros_like(shared), where=real)
        order = order[~(real & (ratio > limit))]
    return np.array(kept, np.int64)


# RoiAlign. 16: the default is half_pixel, with coordinates half a pixel higher; before there was no choice.


@reads("RoiAlign", since=10, fixed=(1, 2))
def read_roi_align(node: Node) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Resample each box to one size; a cell of the result is the mean or the maximum of x at points of the cell."""
    half = node.since >= 16 and node["coordinate_transformation_mode"] == "half_pixel"
    mode, ratio, scale = node["mode"], node["sampling_ratio"], node["spatial_scale"]
    size = node["output_height"], node["output_width"]
    if mode not in ("avg", "max") or ratio < 0 or min(size) < 1:
        raise ValueError(
            f"mode is {mode!r}, sampling_ratio is {ratio}, the output size is {size}; expected mode avg or max, "
            "sampling_ratio >= 0, and output lengths of at least 1"
        )

    def align(x: Tensor, rois: Tensor, batch: Tensor) -> Tensor:
        _check_boxes(x, rois, batch)
        boxes = rois.array.astype(np.float64) * scale - (0.5 if half else 0.0)
        starts, lengths = boxes[:, 1::-1], (boxes[:, 2:] - boxes[:, :2])[:, ::-1]  # rows, then columns
        lengths = lengths if half else np.maximum(lengths, 1.0)
        node.fits((len(boxes), x.shape[1], *size), x.dtype)
        node.check_work(len(boxes), TURN)
        results = []
        for start, length, b in zip(starts, lengths, batch.array.tolist(), strict=True):
            taps = []
            for first, extent, n, cells in zip(start, length, x.shape[2:], size, strict=True):
                points = ratio or max(0, math.ceil(extent / cells))
                node.fits((cells, points, n), dtypes.float64)
                taps.append(_taps(first, extent, n, cells, points))
            image = x[b]
            if mode == "avg":
                rows, columns = (
                    Tensor(_matrix(*tap, n).astype(x.dtype)) for tap, n in zip(taps, x.shape[2:], strict=True)
                )
                node.check_work(x.shape[1], size[0] * x.shape[2] * x.shape[3] + math.prod(size) * x.shape[3])
                results.append(rows @ image @ columns.mT)
            else:
                results.append(_largest(node, image, taps))
        return stack(results) if results else x.new_zeros((0, x.shape[1], *size))

    return whole(node, align)


def _check_boxes(x: Tensor, rois: Tensor, batch: Tensor) -> None:
    if x.ndim != 4 or rois.ndim != 2 or rois.shape[1] != 4 or batch.shape != rois.shape[:1]:
        raise ValueError(
            f"X has shape {x.shape}, rois {rois.shape}, batch_indices {batch.shape}; expected (N, C, H, W), (n, 4) "
            "and (n,)"
        )
    inside = batch.array.size == 0 or 0 <= batch.array.min() <= batch.array.max() < x.shape[0]
    if not inside or min(x.shape[2:]) < 1 or not np.isfinite(rois.array.astype(np.float64)).all():
        raise ValueError(f"expected finite boxes, and batch_indices from 0 to {x.shape[0] - 1}; X has shape {x.shape}")


def _taps(first: float, extent: float, n: int, cells: int, points: int) -> tuple[Any, Any]:
    """Return the two neighbours of each point on an axis of length n, and their weights, as (cells, points, 2)."""
    place = first + (np.arange(cells)[:, None] + (np.arange(points) + 0.5) / max(1, points)) * (extent / cells)
    outside = (place < -1) | (place > n)
    place = np.clip(place, 0, n - 1)
    low = np.minimum(np.floor(place).astype(np.int64), max(0, n - 2))
    weight = np.stack([1 - (place - low), place - low], -1) * ~outside[..., None]
    return np.stack([low, np.minimum(low + 1, n - 1)], -1), weight


def _matrix(places: Any, weights: Any, n: int) -> Any:
    """Return the matrix (cells, n) that takes the mean over the points of each cell."""
    cells, points = places.shape[:2]
    matrix = np.zeros((cells, n))
    np.add.at(matrix, (np.arange(cells)[:, None, None], places), weights / max(1, points))
    return matrix


def _largest(node: Node, image: Tensor, taps: list[tuple[Any, Any]]) -> Tensor:
    """Return the maximum over the weighted neighbours of all points, like onnxruntime; 0 if there are no points."""
    (rows, high), (columns, wide) = ((p.reshape(len(p), -1), w.reshape(len(w), -1)) for p, w in taps)
    if not rows.shape[1] or not columns.shape[1]:
        return image.new_zeros((len(image), len(rows), len(columns)))
    node.fits((len(image), *rows.shape, *columns.shape), image.dtype)
    weights = (high[:, :, None, None] * wide).astype(image.dtype)
    return (image[:, rows[:, :, None, None], columns] * Tensor(weights)).amax((2, 4))


# MaxRoiPool


@reads("MaxRoiPool", since=1, fixed=(1,))
def read_max_roi_pool(node: Node) -> Callable[[Tensor, Tensor], Tensor]:
    """Cut each box into cells of whole pixels; return the largest element of each cell, or 0 for an empty cell."""
    size, scale = node["pooled_shape"], node["spatial_scale"]
    if len(size) != 2 or min(size) < 1:
        raise ValueError(f"pooled_shape is {size}; expected two lengths")

    def pool(x: Tensor, rois: Tensor) -> Tensor:
        if rois.ndim != 2 or rois.shape[1] != 5:
            raise ValueError(f"rois have shape {rois.shape}; expected (n, 5)")
        numbers = rois.array.astype(np.float64)
        _check_boxes(x, Tensor(numbers[:, 1:]), Tensor(np.nan_to_num(numbers[:, 0]).astype(np.int64)))
        node.fits((len(numbers), x.shape[1], *size), x.dtype)
        node.check_work(len(numbers) * math.prod(size), TURN)
        results = []
        for b, *box in numbers:
            left, top, right, bottom = (math.floor(abs(n * scale) + 0.5) * (1 if n * scale >= 0 else -1) for n in box)
            rows, columns = (
                _cells(first, last, n, cells)
                for first, last, n, cells in zip((top, left), (bottom, right), x.shape[2:], size, strict=True)
            )
            image = x[int(b)]
            cells = [_peak(image, row, column) for row in rows for column in columns]
            results.append(stack(cells, 1).reshape(x.shape[1], *size))
        return stack(results) if results else x.new_zeros((0, x.shape[1], *size))

    return whole(node, pool)


def _cells(first: int, last: int, n: int, cells: int) -> list[slice]:
    step = max(last - first + 1, 1) / cells
    bounds = [(math.floor(i * step) + first, math.ceil((i + 1) * step) + first) for i in range(cells)]
    return [slice(min(max(low, 0), n), min(max(high, 0), n)) for low, high in bounds]


def _peak(image: Tensor, row: slice, column: slice) -> Tensor:
    cell = image[:, row, column]
    return cell.amax((1, 2)) if cell.numel() else image.new_zeros((len(image),))
