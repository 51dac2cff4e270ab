"""The grid has what it promises: every version, the element types that each takes, and no case twice."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx")

import onnx

from minorm.conformance.case import draw, model
from minorm.conformance.cases import all_cases
from minorm.conformance.formula import FORMULAS
from minorm.onnx.graph.versions import PUBLISHED


def test_every_version_of_every_normalization_is_there() -> None:
    found = {(case.operator, case.opset) for case in all_cases()}
    assert found == {(operator, opset) for operator in FORMULAS for opset in PUBLISHED[operator]}


def test_no_case_is_there_twice() -> None:
    names = [(case.operator, case.opset, case.name) for case in all_cases()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    "words",
    ["offset 1e+06", "float16", "bfloat16", "N = 1", "empty batch", "spatial 0", "training", "momentum 0", "momentum 1",
     "size 4", "epsilon 1e-12", "epsilon 1"],
)  # fmt: skip
def test_what_matters_is_in_the_grid(words: str) -> None:
    assert any(words in case.name for case in all_cases())


def test_scale_of_each_group() -> None:
    for opset, numbers in ((18, 2), (21, 6)):
        case = next(c for c in all_cases() if (c.operator, c.opset) == ("GroupNormalization", opset))
        assert (case.inputs[0].shape[1], *case.inputs[1].shape) == (6, numbers)


def test_every_file_holds_the_types_that_its_version_takes() -> None:
    for case in all_cases():
        schema = onnx.defs.get_schema(case.operator, case.opset, "")
        allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
        for array, formal in zip(case.inputs, schema.inputs, strict=False):
            name = {"float64": "double", "float32": "float"}.get(str(array.dtype), str(array.dtype))
            kinds = allowed.get(formal.type_str, [formal.type_str])
            assert f"tensor({name})" in kinds, (case.operator, case.opset, case.name, formal.name)


def test_a_file_has_what_the_case_says() -> None:
    fresh = next(c for c in all_cases() if "fresh" in c.name and c.opset == 15)
    proto = model(fresh)
    assert [entry.name for entry in proto.graph.input] == ["i0"]
    assert [entry.name for entry in proto.graph.initializer] == ["i1", "i2", "i3", "i4"]
    assert [entry.name for entry in proto.graph.output] == ["y"]
    assert list(proto.graph.node[0].output) == ["y", "mean", "var"]
    assert proto.opset_import[0].version == 15


def test_numbers_are_the_same_in_every_process() -> None:
    assert draw((2,), np.float64, seed="s").tolist() == pytest.approx([-0.4280936121, 0.2902217140], abs=1e-9)
