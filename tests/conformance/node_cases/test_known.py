"""onnx.reference and onnxruntime differ in the cases that known.py names, and in no others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

import onnx

from minorm.conformance.node_cases import known
from minorm.conformance.node_cases.collecting import NodeCase, collect

NODES = {case.name: case for case in collect() if case.kind == "node"}


def agrees(case: NodeCase, got: Any) -> bool:
    return all(
        g.dtype == w.dtype
        and g.shape == w.shape
        and np.allclose(g.astype(np.float64), w.astype(np.float64), rtol=1e-3, atol=1e-7)
        for g, w in zip(map(np.asarray, got), case.outputs, strict=True)
    )


def feeds(case: NodeCase) -> dict[str, Any]:
    return dict(zip((info.name for info in case.model.graph.input), case.inputs, strict=True))


@pytest.mark.skipif(not onnx.__version__.startswith("1.23"), reason="known.py speaks of onnx 1.23")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NODES)
def test_reference(name: str) -> None:
    from onnx.reference import ReferenceEvaluator

    case = NODES[name]
    try:
        right = agrees(case, ReferenceEvaluator(case.model).run(None, feeds(case)))
    except Exception:  # noqa: BLE001  it raises all kinds
        right = False
    assert right == (known.why(name, known.REFERENCE) is None)


@pytest.mark.parametrize("name", NODES)
def test_onnxruntime(name: str) -> None:
    """On the machine and in the version that runs this; what it refuses is skipped."""
    runtime = pytest.importorskip("onnxruntime")
    case = NODES[name]
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = runtime.InferenceSession(case.model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001  its own classes have no common public base
        pytest.skip(str(error).splitlines()[0][:100])
    right = agrees(case, session.run(None, feeds(case)))
    if known.why(name, known.ONNXRUNTIME) is None:
        assert right


def test_every_pattern_names_a_case() -> None:
    for table in (known.REFERENCE, known.ONNXRUNTIME):
        for pattern in table:
            assert [name for name in NODES if known.why(name, {pattern: "why"})], pattern
