"""Each installed runtime answers right, except in the cases where it has a known defect."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("onnx")

from minorm.conformance import adapters
from minorm.conformance.cases import all_cases
from minorm.conformance.runtimes import RUNTIMES

PLACES = {(c.operator, c.opset, c.name): place for place, c in enumerate(all_cases())}
EXTRA = [name for name, runtime in RUNTIMES.items() if runtime.extra]
FILES = Path(adapters.__file__).parent
BATCH = "BatchNormalization", 15, "inference, float32"
FLAT = "BatchNormalization", 9, "inference, float32"
UNIT = "LayerNormalization", 17, "float32"
TRAINING = "BatchNormalization", 15, "training, y alone is fetched"
OFFSET = "LayerNormalization", 17, "offset 1e+06"
EXPECTED: dict[str, list[tuple[Any, str]]] = {
    "openvino": [(BATCH, "right"), (UNIT, "right"), (("LRN", 13, "size 2"), "wrong")],
    "opencv": [(BATCH, "right"), (UNIT, "right"), (OFFSET, "wrong")],
    "tract": [(BATCH, "right"), (UNIT, "right"), (("BatchNormalization", 15, "inference, rank 1"), "wrong")],
    "mnn": [(BATCH, "right"), (UNIT, "right"), (TRAINING, "wrong")],
    "ncnn": [(BATCH, "right"), (UNIT, "right")],
    "tvm": [(BATCH, "right"), (UNIT, "right")],
    "tinygrad": [(BATCH, "right"), (UNIT, "right")],
    "onnx2torch": [(FLAT, "right"), (UNIT, "right")],
    "flax": [(BATCH, "right"), (UNIT, "right"), (OFFSET, "wrong")],
    "keras": [(BATCH, "right"), (UNIT, "right")],
    "mlx": [(BATCH, "right"), (UNIT, "right"), (OFFSET, "right")],
    "paddle": [(BATCH, "right"), (UNIT, "right")],
}


def test_each_is_expected_to_answer() -> None:
    assert sorted(EXPECTED) == sorted(EXTRA)


@pytest.mark.parametrize("name", EXTRA)
def test_an_adapter_is_short_and_imports_without_its_runtime(name: str) -> None:
    assert len((FILES / f"{name}.py").read_text().splitlines()) <= 60
    assert callable(importlib.import_module(f"minorm.conformance.adapters.{name}").answer)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXTRA)
def test_what_it_says(name: str, judged: Any) -> None:
    cells = judged(name, [PLACES[key] for key, _ in EXPECTED[name]])
    assert [(c.verdict, c.said) if c.verdict != v else v for c, (_, v) in zip(cells, EXPECTED[name], strict=True)] == [
        verdict for _, verdict in EXPECTED[name]
    ]
    assert all(cell.defect for cell in cells if cell.verdict == "wrong")
