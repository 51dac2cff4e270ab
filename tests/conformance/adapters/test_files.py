"""The file that a runtime gets: data are fed, the rest are weights, outputs have types."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx")

from minorm.conformance.adapters.files import as_file, on_disk
from minorm.conformance.case import OUTPUTS
from minorm.conformance.cases import all_cases
from minorm.conformance.runtime_calls import Outcome
from minorm.conformance.verdict import RIGHT, judge
from minorm.onnx import backend


def test_it_is_sound_and_says_the_same() -> None:
    from onnx import checker

    for case in [c for c in all_cases() if c.kind == OUTPUTS][::23]:
        proto, x = as_file(case)
        if (case.operator, case.opset) != ("GroupNormalization", 18):  # which a later opset withdrew
            checker.check_model(proto)
        assert [value.name for value in proto.graph.input] == ["i0"]
        assert len(proto.graph.initializer) == len(case.inputs) - 1
        assert all(value.type.tensor_type.elem_type for value in proto.graph.output)
        with np.errstate(all="ignore"):
            found = tuple(backend.run_model(proto, [x]))
        assert judge(case, "minorm", Outcome("answered", "", found)).verdict == RIGHT, case.name


def test_on_disk_it_is_the_same_file_and_goes_away() -> None:
    case = all_cases()[0]
    with on_disk(case) as (path, x):
        assert path.read_bytes() == as_file(case)[0].SerializeToString()
        assert x is case.inputs[0]
    assert not path.parent.exists()
