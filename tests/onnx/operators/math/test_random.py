"""Nodes that draw: every version, seeds, written back as the same nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.onnx as mo
from minorm.functional import random as F
from minorm.onnx.graph.versions import PUBLISHED

X = np.full((3, 4), 0.5, np.float32)
NODES: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "RandomNormal": ([], {"shape": [3, 4], "mean": 1.0, "scale": 2.0}),
    "RandomUniform": ([], {"shape": [3, 4], "low": 1.0, "high": 2.0}),
    "RandomNormalLike": ([X], {"mean": 1.0}),
    "RandomUniformLike": ([X], {"high": 7.0}),
    "Bernoulli": ([X], {}),
    "Multinomial": ([X], {"sample_size": 9}),
}
ALL = [(operator, since) for operator in NODES for since in PUBLISHED[operator]]


def drawn(model: Any, operator: str) -> Any:
    return model(*map(mn.tensor, NODES[operator][0])).array


@pytest.mark.parametrize(("operator", "since"), ALL)
def test_a_node_draws_anew_each_time(one_node: Any, operator: str, since: int) -> None:
    inputs, attributes = NODES[operator]
    model = mo.load(one_node(operator, inputs, since, **attributes))
    mn.manual_seed(1)
    first, second = drawn(model, operator), drawn(model, operator)
    assert (first != second).any()
    mn.manual_seed(1)
    np.testing.assert_array_equal(drawn(model, operator), first)
    assert (first.dtype, first.shape) == ((np.int32, (3, 9)) if operator == "Multinomial" else (np.float32, (3, 4)))


@pytest.mark.parametrize(("operator", "since"), ALL)
def test_a_seed_in_the_file_repeats_the_draws_of_its_node(one_node: Any, operator: str, since: int) -> None:
    """Loaded twice: the same numbers, run by run, whatever else draws from minorm's generator."""
    inputs, attributes = NODES[operator]
    proto = one_node(operator, inputs, since, **attributes, seed=3.5)
    one, other = mo.load(proto), mo.load(proto)
    first, second = drawn(one, operator), drawn(one, operator)
    mn.rand(7)
    np.testing.assert_array_equal(drawn(other, operator), first)
    np.testing.assert_array_equal(drawn(other, operator), second)
    assert (first != second).any()
    different = mo.load(one_node(operator, inputs, since, **attributes, seed=3.25))
    assert (drawn(different, operator) != first).any()


@pytest.mark.parametrize("operator", NODES)
def test_types(one_node: Any, operator: str) -> None:
    inputs, attributes = NODES[operator]
    code, dtype = (7, np.int64) if operator == "Multinomial" else (11, np.float64)
    assert drawn(mo.load(one_node(operator, inputs, 22, **attributes, dtype=code)), operator).dtype == dtype
    with pytest.raises(mo.LoadError, match=f"{operator} .* dtype is 17; minorm draws bool, integers"):
        mo.load(one_node(operator, inputs, 22, **attributes, dtype=17))


@pytest.mark.parametrize("operator", NODES)
@pytest.mark.parametrize("seed", [{}, {"seed": 2.0}], ids=["", "seed"])
def test_written_back_as_the_same_node(one_node: Any, operator: str, seed: Any, opset: int) -> None:
    if opset < PUBLISHED[operator][0]:
        return
    inputs, attributes = NODES[operator]
    tensors = [*map(mn.tensor, inputs)] or [mn.tensor(X)]
    model = mo.load(one_node(operator, inputs, opset, **attributes, **seed))

    def scaled(*given: mn.Tensor) -> Any:
        return model(*given) if inputs else given[0] + model()

    proto = mo.export(scaled, tuple(tensors), None, opset_version=opset)
    node = proto.graph.node[0]
    assert node.op_type == operator
    from onnx import helper

    written = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    assert {name: written[name] for name in {**attributes, **seed}} == {**attributes, **seed}
    assert ("seed" in written) == bool(seed)
    result = mo.load(proto)(*tensors)
    assert result.shape == scaled(*tensors).shape


def test_an_opset_without_the_operator() -> None:
    with pytest.raises(mo.ExportError, match="it is Bernoulli of opset 15 on; the model's opset is 14"):
        mo.export(F.bernoulli, mn.tensor(X), None, opset_version=14)


@pytest.mark.parametrize(
    ("operator", "attributes", "message"),
    [
        ("RandomNormal", {"shape": [2**40]}, "more than max_bytes"),
        ("RandomUniform", {"shape": [-1]}, r"shape is \[-1\]; expected lengths of at least 0"),
        ("Multinomial", {"sample_size": 2**40}, "more than max_bytes"),
        ("Multinomial", {"sample_size": 0}, "sample_size is 0; expected at least 1"),
    ],
)
def test_mistakes(one_node: Any, operator: str, attributes: Any, message: str) -> None:
    inputs = NODES[operator][0]
    with pytest.raises(ValueError, match=f"{operator} .*{message}"):
        mo.load(one_node(operator, inputs, 22, **attributes))(*map(mn.tensor, inputs))
