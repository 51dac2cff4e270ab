"""Boxes: onnxruntime's choices and pooled images, and the gradients of these."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.onnx as mo
from minorm.testing import gradcheck
from tests.onnx.runtime import expected

RNG = np.random.default_rng(3)
IMAGE = RNG.normal(size=(2, 3, 7, 9)).astype(np.float32)
ROIS = np.array([[0, 0, 8, 6], [1.3, 2.2, 5.7, 6.4], [-3, -2, 4, 20], [6, 5, 6.2, 5.1], [2, 2, 2, 2]], np.float32)
BATCH = np.array([0, 1, 1, 0, 1])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("centered", [0, 1])
def test_the_boxes_kept_are_onnxruntimes(one_node: Any, seed: int, centered: int) -> None:
    rng = np.random.default_rng(seed)
    boxes = rng.uniform(0, 10, (2, 30, 4)).astype(np.float32)
    scores = np.round(rng.uniform(size=(2, 3, 30)), 2).astype(np.float32)  # some are equal
    most, overlap, least = np.array([7]), np.array([0.3], np.float32), np.array([0.2], np.float32)
    arrays = [boxes, scores, most, overlap, least]
    proto = one_node("NonMaxSuppression", arrays, 11, held=(2, 3, 4), center_point_box=centered)
    np.testing.assert_array_equal(
        mo.load(proto)(mn.Tensor(boxes), mn.Tensor(scores)).array, expected(proto, boxes, scores)[0]
    )


def test_without_numbers_nothing_is_kept(one_node: Any) -> None:
    boxes, scores = RNG.uniform(size=(1, 4, 4)).astype(np.float32), RNG.uniform(size=(1, 1, 4)).astype(np.float32)
    proto = one_node("NonMaxSuppression", [boxes, scores], 11)
    assert mo.load(proto)(mn.Tensor(boxes), mn.Tensor(scores)).shape == (0, 3)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("since", [10, 16])
def test_roi_align(one_node: Any, mode: str, ratio: int, since: int) -> None:
    attributes = {"mode": mode, "sampling_ratio": ratio, "output_height": 2, "output_width": 3, "spatial_scale": 0.9}
    proto = one_node("RoiAlign", [IMAGE, ROIS, BATCH], since, held=(1, 2), **attributes)
    np.testing.assert_allclose(mo.load(proto)(mn.Tensor(IMAGE)).array, expected(proto, IMAGE)[0], rtol=1e-5, atol=1e-6)
    wide = IMAGE[:, :1, :5, :6].astype(np.float64)
    gradcheck(
        mo.load(one_node("RoiAlign", [wide, ROIS.astype(np.float64), BATCH], since, held=(1, 2), **attributes)), wide
    )


def test_max_roi_pool(one_node: Any) -> None:
    rois = np.concatenate([BATCH[:, None], ROIS], 1).astype(np.float32)
    proto = one_node("MaxRoiPool", [IMAGE, rois], 7, held=(1,), pooled_shape=(2, 3), spatial_scale=0.8)
    np.testing.assert_allclose(mo.load(proto)(mn.Tensor(IMAGE)).array, expected(proto, IMAGE)[0], rtol=1e-6)
    wide = IMAGE[:, :1, :5, :6].astype(np.float64)
    model = one_node(
        "MaxRoiPool", [wide, rois.astype(np.float64)], 22, held=(1,), pooled_shape=(2, 3), spatial_scale=0.8
    )
    gradcheck(mo.load(model), wide)


@pytest.mark.parametrize(
    ("operator", "arrays", "attributes", "message"),
    [
        ("RoiAlign", [IMAGE, ROIS, BATCH + 1], {}, "expected finite boxes, and batch_indices from 0 to 1"),
        ("RoiAlign", [IMAGE, ROIS * np.float32(np.nan), BATCH], {}, "expected finite boxes"),
        ("RoiAlign", [IMAGE, ROIS[:, :3], BATCH], {}, r"rois \(5, 3\)"),
        ("RoiAlign", [IMAGE, ROIS * np.float32(1e12), BATCH], {}, "more than max_bytes"),
        ("MaxRoiPool", [IMAGE, ROIS], {"pooled_shape": (2, 2)}, r"rois have shape \(5, 4\)"),
        ("NonMaxSuppression", [IMAGE[0], IMAGE[0]], {}, r"boxes have shape \(3, 7, 9\)"),
    ],
)
def test_what_cannot_be_is_an_error(one_node: Any, operator: str, arrays: Any, attributes: Any, message: str) -> None:
    model = mo.load(one_node(operator, arrays, 16, held=range(1, len(arrays)), **attributes))
    with pytest.raises(ValueError, match=message):
        model(mn.Tensor(arrays[0]))
