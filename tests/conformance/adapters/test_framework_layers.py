"""Cases that a framework's layers lack are refused before a call, in words that name the framework."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from minorm.conformance.adapters import framework_layers as layers
from minorm.conformance.cases import all_cases
from minorm.devices.dtypes import bfloat16

CASES = {(c.operator, c.opset, c.name): c for c in all_cases()}
ALL: dict[str, Any] = {case.operator: len for case in all_cases()}


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (("BatchNormalization", 7, "training, spatial 0"), "no statistics for each position"),
        (("BatchNormalization", 15, "inference, rank 1"), "needs a channel axis"),
        (("BatchNormalization", 9, "training, the batch's statistics"), "statistics of the batch"),
        (("GroupNormalization", 18, "float32"), "per channel, not per group"),
        (("LayerNormalization", 17, "scale broadcasts"), "shape of the normalized axes"),
        (("LayerNormalization", 17, "mean and 1 / std"), "returns only y"),
        (("RMSNormalization", 23, "scale broadcasts"), "shape of the normalized axes"),
        (("BatchNormalization", 15, "training, float32"), ""),
        (("GroupNormalization", 21, "float32"), ""),
        (("LayerNormalization", 17, "axis 1"), ""),
    ],
)
def test_forms(key: Any, words: str) -> None:
    if not words:
        assert layers.find(ALL, CASES[key], "Some framework") is len
        return
    with pytest.raises(NotImplementedError, match=f"^Some framework.*{words}"):
        layers.find(ALL, CASES[key], "Some framework")


def test_an_operator_that_it_lacks() -> None:
    with pytest.raises(NotImplementedError, match=r"^Some framework has no LRN$"):
        layers.find({}, CASES["LRN", 13, "size 3"], "Some framework")


def test_bfloat16_goes_by_way_of_float32() -> None:
    x = np.array([1.5, -3.0], np.float32).astype(bfloat16)
    seen = layers.to_tensor(lambda array, kind: (array.dtype, kind), x)
    assert seen == (np.float32, "bfloat16")
    assert layers.to_tensor(lambda array, kind: (array.dtype, kind), np.zeros(1)) == (np.float64, "float64")
    assert layers.to_array(x).tobytes() == x.tobytes()
    assert layers.to_array(np.ones(2, np.float16)).dtype == np.float16
