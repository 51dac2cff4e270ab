"""Pad with negative numbers beside positive ones, against onnxruntime and NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F

pytest.importorskip("onnx")

import minorm.onnx as mo
from minorm.onnx.checking import verification


@pytest.mark.parametrize("pads", [(1, -1), (-1, 1), (-1, 3), (-2, 1), (1, -3), (-4, 2), (2, -4), (-2, 4), (6, -1)])
def test_wrap_cuts_first_and_repeats_what_is_left(pads: tuple[int, int], one_node: Any) -> None:
    pytest.importorskip("onnxruntime")
    x = np.arange(1, 6, dtype=np.float32)
    proto = one_node("Pad", [x, np.array(pads)], 19, held=(1,), mode="wrap")
    y = mo.load(proto)(mn.tensor(x)).array
    left = x[max(0, -pads[0]) : 5 - max(0, -pads[1])]
    np.testing.assert_array_equal(y, np.pad(left, [max(0, n) for n in pads], mode="wrap"))
    np.testing.assert_array_equal(y, verification.run(verification.start(proto), {"i0": x})[0])


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
@pytest.mark.parametrize("pads", [(3, -1), (-1, 3), (-2, 1), (1, -3)])
def test_copies_beside_a_cut_along_two_axes(mode: str, pads: tuple[int, int], one_node: Any) -> None:
    pytest.importorskip("onnxruntime")
    x = np.arange(30, dtype=np.float32).reshape(6, 5)
    amounts = np.array([pads[1], pads[0], pads[0], pads[1]])
    proto = one_node("Pad", [x, amounts], 19, held=(1,), mode=mode)
    want = verification.run(verification.start(proto), {"i0": x})[0]
    np.testing.assert_array_equal(mo.load(proto)(mn.tensor(x)).array, want)


def test_wrap_around_nothing_that_is_left_is_an_error(one_node: Any) -> None:
    x = np.arange(4, dtype=np.float32)
    model = mo.load(one_node("Pad", [x, np.array([-4, 2])], 19, held=(1,), mode="wrap"))
    with pytest.raises(ValueError, match="mode wrap repeats elements of axis 0, which is empty"):
        model(mn.tensor(x))


@pytest.mark.parametrize("dtype", [mn.float16, mn.float32, mn.float64])
@pytest.mark.parametrize("opset", [9, 13, 18, 19, 21])
@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_copies_around_free_axes_are_written(
    proved: Any, rng: np.random.Generator, mode: str, opset: int, dtype: Any
) -> None:
    x = mn.tensor(rng.normal(size=(2, 3, 4, 5)).astype(np.float32)).to(dtype)
    free = {"input_names": ["x"], "dynamic_axes": {"x": {0: "n", 2: "h", 3: "w"}}}
    proto = proved(lambda x: F.pad(x, (2, 1, -1, 3), mode), x, opset=opset, must_run=False, **free)
    found = {node.op_type for node in proto.graph.node}
    assert "Pad" in found or (mode == "circular" and opset < 19 and "Concat" in found)
    assert "Gather" not in found
