"""The node cases are right: by the judge's own formulas, by differences of these, and by what minorm gives."""

from __future__ import annotations

import functools
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

import onnx

import minorm as mn
import minorm.onnx
from minorm.conformance.case import Case
from minorm.conformance.formula import due
from minorm.conformance.node_cases.collecting import NodeCase, collect, kind_of, source_files

CASES = {case.name: case for case in collect()}
NODES = [name for name, case in CASES.items() if case.kind == "node"]
GRADIENTS = [name for name, case in CASES.items() if case.kind == "simple"]


def as_case(case: NodeCase) -> Case:
    """Return the normalization alone as a case for the judge."""
    node = case.model.graph.node[0]
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    arrays = tuple(case.inputs[: len(node.input)])
    return Case(case.operator, case.opset, case.name, arrays, attributes, tuple(node.output))


def assert_as_onnx_compares(got: Any, wanted: Any) -> None:
    for g, w in zip(got, wanted, strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        np.testing.assert_allclose(g.astype(np.float64), w.astype(np.float64), rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("name", CASES)
def test_outputs_are_those_of_the_judge(name: str) -> None:
    case = CASES[name]
    wanted = due(as_case(case))
    outputs = case.outputs if case.kind == "node" else case.outputs[:1]
    for output, (value, dtype) in zip(outputs, wanted, strict=False):
        assert output.dtype == dtype
        with np.errstate(over="ignore"):
            np.testing.assert_allclose(output, value.astype(dtype), rtol=1e-6, atol=1e-6 * np.abs(value).max())


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_those_of_differences(name: str) -> None:
    case = CASES[name]
    forward, gradient = as_case(case), case.model.graph.node[-1]
    xs = onnx.helper.get_attribute_value(next(a for a in gradient.attribute if a.name == "xs"))
    names = [info.name for info in case.model.graph.input]
    dy = case.inputs[names.index("dy")].astype(np.float64)
    draw = np.random.default_rng(0)
    for key, dx in zip(xs, case.outputs[1:], strict=True):
        place = names.index(key.decode())

        def loss(moved: Any, place: int = place) -> float:
            inputs = [*forward.inputs]
            inputs[place] = moved
            return float((due(Case(forward.operator, forward.opset, "", tuple(inputs), forward.attributes,
                                   forward.outputs))[0][0] * dy).sum())  # fmt: skip

        x = case.inputs[place].astype(np.float64)
        for _ in range(3):
            direction = draw.standard_normal(x.shape)
            step = 1e-5 * max(float(x.std()), 1e-3)
            slope = (loss(x + step * direction) - loss(x - step * direction)) / (2 * step)
            scale = float(np.abs(dx * direction).sum())
            assert abs(slope - float((dx * direction).sum())) <= 2e-5 * scale, key


@pytest.mark.parametrize("name", NODES)
def test_minorm_gives_these_outputs(name: str) -> None:
    case = CASES[name]
    graph = minorm.onnx.load(case.model.SerializeToString())
    got = graph(*map(mn.Tensor, case.inputs))
    assert_as_onnx_compares([y.array for y in (got if isinstance(got, tuple) else (got,))], case.outputs)


@pytest.mark.parametrize("name", GRADIENTS)
def test_minorm_gives_these_gradients(name: str) -> None:
    """Through the graph without its last node, which asks for them."""
    case = CASES[name]
    model = onnx.ModelProto.FromString(case.model.SerializeToString())
    xs = [key.decode() for key in onnx.helper.get_attribute_value(model.graph.node[-1].attribute[0])]
    del model.graph.node[-1]
    del model.graph.output[:]
    model.graph.output.extend([onnx.ValueInfoProto(name="y"), onnx.ValueInfoProto(name="loss")])
    del model.opset_import[1:]
    names = [info.name for info in model.graph.input]
    given = {key: mn.Tensor(array, requires_grad=key in xs) for key, array in zip(names, case.inputs, strict=True)}
    y, loss = minorm.onnx.load(model.SerializeToString())(*given.values())
    loss.backward()
    scale = [max(1.0, float(np.abs(w).max())) for w in case.outputs]
    for got, wanted, size in zip((y.array, *(given[key].grad.array for key in xs)), case.outputs, scale, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=2e-6 * size)


def test_names_and_sizes() -> None:
    assert len(CASES) == len(collect()) > 140
    assert all(name.startswith("test_") for name in CASES)
    assert max(array.size for case in CASES.values() for array in (*case.inputs, *case.outputs)) <= 480


def test_each_momentum_in_each_version() -> None:
    found = {(case.opset, as_case(case).get("momentum", None)) for case in CASES.values()}
    wanted = [float(np.float32(momentum)) for momentum in (0, 0.1, 0.9, 1)]
    assert {(opset, momentum) for opset in (7, 9, 14, 15) for momentum in wanted} <= found


def test_the_same_numbers_each_time_and_nothing_left_behind() -> None:
    case = pytest.importorskip("onnx.backend.test.case.node")
    before = case.expect, len(case._NodeTestCases)
    again = {each.name: each for each in collect()}
    assert (case.expect, len(case._NodeTestCases)) == before
    for name, first in CASES.items():
        assert first.model.SerializeToString() == again[name].model.SerializeToString()
        for a, b in zip((*first.inputs, *first.outputs), (*again[name].inputs, *again[name].outputs), strict=True):
            assert a.tobytes() == b.tobytes()


def test_the_checker_accepts_the_files() -> None:
    for case in CASES.values():
        if (case.operator, case.opset) != ("GroupNormalization", 18):  # which it calls deprecated
            onnx.checker.check_model(case.model, full_check=case.kind == "node")


@functools.cache
def upstream() -> set[str]:
    code = "import onnx.backend.test.case.node as n; print(*{case.name for case in n.collect_testcases()})"
    said = subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, capture_output=True, text=True)
    return set(said.stdout.split())


@pytest.mark.slow
def test_onnx_has_no_case_of_these_names() -> None:
    assert "test_batchnorm_example" in upstream()
    assert not upstream() & CASES.keys()


def test_sources_run_with_what_onnx_has() -> None:
    """Its own `expect`, with its expansions of functions."""
    code = f"""
import runpy, sys
import onnx.backend.test.case.node as node, onnx.backend.test.case.model as model
for path in {[str(path) for path in source_files()]!r}:
    runpy.run_path(path)
assert not [name for name in sys.modules if name.startswith("minorm")]
print(*[case.name for case in node._NodeTestCases + model._SimpleModelTestCases])
"""
    said = subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, capture_output=True, text=True)
    names = said.stdout.split()
    assert set(CASES) <= set(names)
    assert "test_group_normalization_offset_100_expanded" in names
    assert {kind_of(path) for path in source_files()} == {"node", "simple"}
