"""onnx.reference differs in the cases that known.py names, and in no others; onnxruntime in none but those below."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

import onnx

from minorm.conformance.node_cases.collecting import NodeCase, collect
from minorm.conformance.node_cases.known import REFERENCE

NODES = {case.name: case for case in collect() if case.kind == "node"}
ONNXRUNTIME = (  # from version 1.22 on, on the CPU
    "test_batchnorm_training_mode_offset_10000",  # its mean is not exact
    "test_instancenorm_offset_1000*",
    "test_group_normalization_offset_*",  # it runs the function body
    "test_group_normalization_float16_stash_float",
    "test_mvn_equal_values*",  # it gives 0 / 0
)


def differs(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


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
    assert right != differs(name, REFERENCE)


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
    assert right or differs(name, ONNXRUNTIME)


def test_every_pattern_names_a_case() -> None:
    for pattern in (*REFERENCE, *ONNXRUNTIME):
        assert any(differs(name, [pattern]) for name in NODES), pattern
