"""The bands of MelWeightMatrix against a loop over frequencies, and onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.onnx as mo
from tests.onnx.runtime import expected


@pytest.mark.parametrize(
    ("bands", "length", "rate", "low", "high"), [(8, 64, 8000, 20.0, 4000.0), (3, 256, 16000, 0.0, 7600.0)]
)
def test_bands_are_triangles_as_in_onnxruntime(
    one_node: Any, bands: int, length: int, rate: int, low: float, high: float
) -> None:
    arrays = [np.array(n) for n in (bands, length, rate)] + [np.array(f, np.float32) for f in (low, high)]
    proto = one_node("MelWeightMatrix", arrays, 17)
    matrix = mo.load(proto)(*map(mn.Tensor, arrays))
    assert matrix.shape == (length // 2 + 1, bands)
    np.testing.assert_allclose(matrix.array, expected(proto, *arrays)[0], atol=1e-6)


@pytest.mark.parametrize(
    ("operator", "arrays", "message"),
    [
        ("HannWindow", [np.array(-1)], "size is -1; expected one number of at least 0"),
        ("HannWindow", [np.array(2**40)], "more than max_bytes"),
        ("MelWeightMatrix", [np.array(n) for n in (3, 8, 0)] + [np.float32(0), np.float32(9)], "sample_rate is 0"),
        ("MelWeightMatrix", [np.array(n) for n in (2**30, 2**30, 9)] + [np.float32(0), np.float32(9)], "max_bytes"),
        (
            "MelWeightMatrix",
            [np.array(n) for n in (3, 8, 9)] + [np.float32(0), np.float32(np.inf)],
            "expected sample_rate >= 1",
        ),
    ],
)
def test_numbers_that_make_no_window_are_errors(one_node: Any, operator: str, arrays: Any, message: str) -> None:
    model = mo.load(one_node(operator, arrays, 17))
    with pytest.raises(ValueError, match=message):
        model(*[mn.Tensor(np.asarray(a)) for a in arrays])
