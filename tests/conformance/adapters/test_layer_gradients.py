"""The installed frameworks' gradients are right, except in the cases with a known defect."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("onnx")

from minorm.conformance.case import CUMULATIVE, GRADIENTS, MASKED
from minorm.conformance.cases import all_cases
from minorm.conformance.runtimes import RUNTIMES

CASES = {(c.operator, c.name): place for place, c in enumerate(all_cases()) if c.kind != "outputs"}
UNIT = "LayerNormalization", "gradients, float32"
OFFSET = "LayerNormalization", "gradients, offset 1e+06"
EXPECTED = {
    "minorm": {UNIT: "right", OFFSET: "right"},
    "torch": {UNIT: "right", ("GroupNormalization", "gradients, equal values"): "wrong"},
    "tinygrad": {UNIT: "right", ("GroupNormalization", "gradients, values 1e20"): "wrong"},
    "onnx2torch": {UNIT: "right"},
    "flax": {UNIT: "right", OFFSET: "wrong", ("BatchNormalization", "mask, float32"): "right"},
    "keras": {UNIT: "right", OFFSET: "right", ("BatchNormalization", "mask, float32"): "right"},
    "mlx": {UNIT: "right", OFFSET: "right"},
    "paddle": {UNIT: "right", ("GroupNormalization", "gradients, offset 1e+04"): "wrong"},
}


def test_who_is_asked() -> None:
    asked = {name: set(runtime.functions) - {"outputs"} for name, runtime in RUNTIMES.items()}
    assert {name for name, kinds in asked.items() if GRADIENTS in kinds} == set(EXPECTED)
    assert {name for name, kinds in asked.items() if MASKED in kinds} == {"minorm", "flax", "keras"}
    assert {name for name, kinds in asked.items() if CUMULATIVE in kinds} == {"minorm", "torch"}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPECTED)
def test_what_they_give(name: str, judged: Any) -> None:
    cells = judged(name, [CASES[key] for key in EXPECTED[name]])
    said = [(cell.verdict, cell.said) for cell in cells]
    assert [verdict for verdict, _ in said] == list(EXPECTED[name].values()), said
    assert all(cell.defect for cell in cells if cell.verdict == "wrong")
